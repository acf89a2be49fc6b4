//! Packs the BPF object that `cargo xtask ebpf` builds.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    memtrace_packed::pack("memtrace.bpf.o", &["bpf/memtrace.bpf.o"])
}
