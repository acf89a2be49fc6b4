//! Who touches new memory: samples of growth become stacks and sites, the tables `stack` and
//! `growth_site`.
//!
//! The kernel hands over a sample with its registers, the top of its stack and its frames of Python
//! as addresses (`bpf/stacks`). The collector unwinds at once (`unwind`), with the tables of the
//! mapped files (`elf`), and reads what the frames of Python are (`python`) from the process
//! (`watched`); copies of stacks are kept nowhere. `sites` adds up by stack and looks at sampled
//! addresses again, whether their pages are still there.

mod calls;
mod collector;
mod elf;
mod frames;
mod perf_map;
mod python;
mod sites;
mod unwind;
mod watched;

pub use collector::StackCollector;
