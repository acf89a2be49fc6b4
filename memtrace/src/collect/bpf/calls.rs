//! Loading and attaching the programs that see mmap, munmap, mremap, brk and madvise, by the
//! first way that the kernel accepts.

use super::load::{LoadError, program, refused};
use crate::host::ProbeWay;
use crate::host::btf::Btf as KernelBtf;
use aya::programs::{BtfTracePoint, FExit, KProbe};
use aya::{Btf, Ebpf};
use memtrace_abi::{Layout, VmOp};

/// One call: where this architecture has it, and the fexit program for it.
struct Call {
    number: libc::c_long,
    function: &'static str,
    fexit: &'static str,
}

#[cfg(target_arch = "x86_64")]
macro_rules! function {
    ($name:literal) => {
        concat!("__x64_sys_", $name)
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! function {
    ($name:literal) => {
        concat!("__arm64_sys_", $name)
    };
}
// The plan refuses probes elsewhere.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! function {
    ($name:literal) => {
        concat!("sys_", $name)
    };
}

/// In the order of [`VmOp::ALL`].
const CALLS: [Call; VmOp::COUNT] = [
    Call {
        number: libc::SYS_mmap,
        function: function!("mmap"),
        fexit: "vm_fexit_mmap",
    },
    Call {
        number: libc::SYS_munmap,
        function: function!("munmap"),
        fexit: "vm_fexit_munmap",
    },
    Call {
        number: libc::SYS_mremap,
        function: function!("mremap"),
        fexit: "vm_fexit_mremap",
    },
    Call {
        number: libc::SYS_brk,
        function: function!("brk"),
        fexit: "vm_fexit_brk",
    },
    Call {
        number: libc::SYS_madvise,
        function: function!("madvise"),
        fexit: "vm_fexit_madvise",
    },
];

const KRETPROBE: &str = "vm_kretprobe";
const SYS_EXIT: &str = "vm_sys_exit";
const SYS_EXIT_TRACEPOINT: &str = "sys_exit";

/// What the programs are bound to, as BTF names it.
pub(super) const ATTACHED_TO: &[&str] = &[
    "btf_trace_sys_exit",
    CALLS[0].function,
    CALLS[1].function,
    CALLS[2].function,
    CALLS[3].function,
    CALLS[4].function,
];

/// The types that [`place`] looks up.
pub(super) const WANTED: &[&str] = &["pt_regs", "files_struct", "fdtable", "file", "dentry"];

/// The numbers of the calls on this architecture.
pub(super) fn numbers() -> [u32; VmOp::COUNT] {
    // A system call's number is small.
    CALLS.map(|call| call.number as u32)
}

/// Fills in where the registers, and the names of mapped files, are. False where this
/// kernel's registers are not to be found.
pub(super) fn place(btf: &KernelBtf<'_>, layout: &mut Layout) -> bool {
    let files = || {
        let files = btf.field("task_struct", "files")?.offset;
        let fdt = btf.field("files_struct", "fdt")?.offset;
        let max = btf.field("fdtable", "max_fds")?.offset;
        let fd = btf.field("fdtable", "fd")?.offset;
        let path = btf.field("file", "f_path")?;
        let dentry = btf.field_of(path, "dentry")?.offset;
        let name = btf.field_of(btf.field("dentry", "d_name")?, "name")?.offset;
        Some([files, fdt, max, fd, dentry, name])
    };
    if let Some([files, fdt, max, fd, dentry, name]) = files() {
        layout.task_files = files;
        layout.files_fdt = fdt;
        layout.fdt_max = max;
        layout.fdt_fd = fd;
        layout.file_dentry = dentry;
        layout.dentry_name = name;
    }
    place_x86(btf, layout)
        .or_else(|| place_arm64(btf, layout))
        .is_some()
}

/// arch/x86/include/asm/ptrace.h: the order of arguments is that of syscall(2). A 32-bit
/// program runs in the code segment __USER32_CS.
fn place_x86(btf: &KernelBtf<'_>, layout: &mut Layout) -> Option<()> {
    const USER32_CS: u32 = 0x23;
    let reg = |name| Some(btf.field("pt_regs", name)?.offset);
    layout.regs_call = reg("orig_ax")?;
    layout.regs_args = [reg("di")?, reg("si")?, reg("dx")?, reg("r10")?, reg("r8")?];
    layout.regs_result = reg("ax")?;
    layout.regs_mode = reg("cs")?;
    layout.mode_mask = 0xffff;
    layout.mode_compat = USER32_CS;
    Some(())
}

/// arch/arm64/include/asm/ptrace.h: regs[0] holds the result when the call returns, so the
/// first argument comes from orig_x0. PSR_MODE32_BIT in pstate marks a 32-bit program.
fn place_arm64(btf: &KernelBtf<'_>, layout: &mut Layout) -> Option<()> {
    const PSR_MODE32_BIT: u32 = 0x10;
    let reg = |name| Some(btf.field("pt_regs", name)?.offset);
    let regs = reg("regs")?;
    layout.regs_call = reg("syscallno")?;
    layout.regs_args = [reg("orig_x0")?, regs + 8, regs + 16, regs + 24, regs + 32];
    layout.regs_result = regs;
    layout.regs_mode = reg("pstate")?;
    layout.mode_mask = PSR_MODE32_BIT;
    layout.mode_compat = PSR_MODE32_BIT;
    Some(())
}

/// Loads the programs of the first way that the kernel accepts; `refusals` gets a sentence
/// for each that it does not.
pub(super) fn load(
    ebpf: &mut Ebpf,
    ways: &[ProbeWay],
    btf: &Btf,
    refusals: &mut Vec<String>,
) -> Option<ProbeWay> {
    ways.iter()
        .copied()
        .find(|way| match load_way(ebpf, *way, btf) {
            Ok(()) => true,
            Err(error) => {
                refusals.push(format!("{way}: {error}"));
                // What of it was loaded would be held for nothing.
                let _ = unload(ebpf, *way);
                false
            }
        })
}

fn load_way(ebpf: &mut Ebpf, way: ProbeWay, btf: &Btf) -> Result<(), LoadError> {
    match way {
        ProbeWay::Fentry => CALLS.iter().enumerate().try_for_each(|(position, call)| {
            let function: &mut FExit = program(ebpf, call.fexit)?;
            function
                .load(call.function, btf)
                .map_err(|error| refused(call.fexit, "load", &error))?;
            if position > 0 {
                return Ok(());
            }
            // A kernel that refuses the way at all says so here, before the rest is loaded.
            let attached = function.attach();
            attached
                .and_then(|link| function.detach(link))
                .map_err(|error| refused(call.fexit, "attach", &error))
        }),
        ProbeWay::Kprobe => {
            let probe: &mut KProbe = program(ebpf, KRETPROBE)?;
            probe
                .load()
                .map_err(|error| refused(KRETPROBE, "load", &error))
        }
        ProbeWay::Syscalls => {
            let tracepoint: &mut BtfTracePoint = program(ebpf, SYS_EXIT)?;
            tracepoint
                .load(SYS_EXIT_TRACEPOINT, btf)
                .map_err(|error| refused(SYS_EXIT, "load", &error))
        }
    }
}

/// Attaches what was loaded: all of it, or nothing.
pub(super) fn attach(ebpf: &mut Ebpf, way: ProbeWay) -> Result<(), LoadError> {
    let attached = attach_each(ebpf, way);
    if attached.is_err() {
        unload(ebpf, way)?;
    }
    attached
}

fn unload(ebpf: &mut Ebpf, way: ProbeWay) -> Result<(), LoadError> {
    // What can't be unloaded was not loaded.
    match way {
        ProbeWay::Fentry => {
            for call in &CALLS {
                let function: &mut FExit = program(ebpf, call.fexit)?;
                let _ = function.unload();
            }
        }
        ProbeWay::Kprobe => {
            let probe: &mut KProbe = program(ebpf, KRETPROBE)?;
            let _ = probe.unload();
        }
        ProbeWay::Syscalls => {
            let tracepoint: &mut BtfTracePoint = program(ebpf, SYS_EXIT)?;
            let _ = tracepoint.unload();
        }
    }
    Ok(())
}

fn attach_each(ebpf: &mut Ebpf, way: ProbeWay) -> Result<(), LoadError> {
    match way {
        ProbeWay::Fentry => CALLS.iter().try_for_each(|call| {
            let function: &mut FExit = program(ebpf, call.fexit)?;
            function
                .attach()
                .map(|_| ())
                .map_err(|error| refused(call.fexit, "attach", &error))
        }),
        ProbeWay::Kprobe => CALLS.iter().try_for_each(|call| {
            let probe: &mut KProbe = program(ebpf, KRETPROBE)?;
            probe
                .attach(call.function, 0)
                .map(|_| ())
                .map_err(|error| refused(KRETPROBE, "attach", &error))
        }),
        ProbeWay::Syscalls => {
            let tracepoint: &mut BtfTracePoint = program(ebpf, SYS_EXIT)?;
            tracepoint
                .attach()
                .map(|_| ())
                .map_err(|error| refused(SYS_EXIT, "attach", &error))
        }
    }
}
