//! Whether the kernel lets a program be attached to a function, and whether it has a helper: asked by
//! doing it.
//!
//! No file tells. The first trial loads a program of two instructions and attaches it to
//! `bpf_fentry_test1`, a function that the kernel has for such tests and nothing else calls. The
//! second calls the helper with arguments that it does not take, and looks how that is refused.

use super::bpf_call::{BPF_PROG_LOAD, ProgramLoad, bpf_fd};
use super::btf::Btf;
use std::io;
use std::os::fd::AsRawFd;

const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
const FUNCTION: &str = "bpf_fentry_test1";

const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_FEXIT: u32 = 25;

const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// `call bpf_for_each_map_elem; exit`
static ITERATE: [u64; 2] = [0x85 | 164 << 32, 0x95];

/// `r0 = 0; exit`
static RETURN_ZERO: [u64; 2] = [0xb7, 0x95];

/// The part that BPF_RAW_TRACEPOINT_OPEN takes.
#[repr(C)]
struct Open {
    name: u64,
    prog_fd: u32,
    reserved: u32,
}

/// Tries. The error says which step was refused and why.
pub(super) fn attach_to_function() -> Result<(), String> {
    let step = |step: &'static str| move |error: io::Error| format!("{step}: {error}");
    let bytes = std::fs::read(BTF_PATH).map_err(step("read the kernel's BTF"))?;
    let btf = Btf::parse(&bytes, &[FUNCTION]).map_err(|error| error.to_string())?;
    let function = btf
        .function_id(FUNCTION)
        .ok_or("the kernel has no function to try it on")?;
    let mut load = ProgramLoad {
        prog_type: BPF_PROG_TYPE_TRACING,
        insn_cnt: RETURN_ZERO.len() as u32,
        insns: RETURN_ZERO.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        expected_attach_type: BPF_TRACE_FEXIT,
        attach_btf_id: function,
        ..ProgramLoad::default()
    };
    let program = bpf_fd(BPF_PROG_LOAD, &mut load).map_err(step("load"))?;
    let mut open = Open {
        name: 0,
        prog_fd: program.as_raw_fd().cast_unsigned(),
        reserved: 0,
    };
    // Closing what it answers detaches the program.
    bpf_fd(BPF_RAW_TRACEPOINT_OPEN, &mut open)
        .map(drop)
        .map_err(step("attach"))
}

/// Whether programs can call bpf_for_each_map_elem; `None` where the kernel says neither.
pub(super) fn has_map_iteration() -> Option<bool> {
    let mut load = ProgramLoad {
        prog_type: BPF_PROG_TYPE_RAW_TRACEPOINT,
        insn_cnt: ITERATE.len() as u32,
        insns: ITERATE.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        ..ProgramLoad::default()
    };
    match bpf_fd(BPF_PROG_LOAD, &mut load).err()?.raw_os_error()? {
        // The verifier looks at arguments only of a helper that it knows (check_helper_call).
        libc::EACCES => Some(true),
        libc::EINVAL => Some(false),
        _ => None,
    }
}
