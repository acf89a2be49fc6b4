//! Loading and attaching the programs that see mmap, munmap, mremap, brk and madvise, by the
//! first way that the kernel accepts.

use super::error::{LoadError, refused};
use super::kretprobe::Kretprobe;
use super::program::program;
use aya::programs::{BtfTracePoint, FExit, KProbe};
use aya::{Btf, Ebpf};
use memtrace_abi::{Layout, VmOp};
use memtrace_host::ProbeWay;
use memtrace_host::btf::Btf as KernelBtf;

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

/// The program of the kretprobes.
pub(super) const KRETPROBE: &str = "vm_kretprobe";
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
    layout.regs_function_args = [reg("di")?, reg("si")?, reg("dx")?, reg("cx")?, reg("r8")?];
    layout.regs_instruction = reg("ip")?;
    layout.regs_stack = reg("sp")?;
    layout.regs_frame = reg("bp")?;
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
    layout.regs_function_args = [regs, regs + 8, regs + 16, regs + 24, regs + 32];
    layout.regs_mode = reg("pstate")?;
    layout.mode_mask = PSR_MODE32_BIT;
    layout.mode_compat = PSR_MODE32_BIT;
    Some(())
}

/// Whether a program is one of those that see the calls.
pub(super) fn is_program(name: &str) -> bool {
    name == KRETPROBE || name == SYS_EXIT || CALLS.iter().any(|call| call.fexit == name)
}

/// The programs of one way, attached. Dropping the object that they are part of detaches
/// them.
pub(super) struct Calls {
    /// The way that was taken.
    pub(super) way: ProbeWay,
    kretprobes: Vec<Kretprobe>,
}

impl Calls {
    /// Calls that kretprobes let pass unseen, of any process of the machine: each can follow
    /// a limited number of calls at a time. `None` where the kernel does not tell (before
    /// 6.7), or not us (without CAP_SYS_ADMIN). Nothing else than kretprobes misses this way.
    pub(super) fn missed(&self) -> Option<u64> {
        self.kretprobes.iter().map(Kretprobe::missed).sum()
    }
}

/// Takes the first way that the kernel accepts: its programs are loaded and attached.
/// `refusals` gets a sentence for each way that it does not.
pub(super) fn take(
    ebpf: &mut Ebpf,
    ways: &[ProbeWay],
    btf: &Btf,
    refusals: &mut Vec<String>,
) -> Option<Calls> {
    first_accepted(ways, refusals, |way| {
        let taken = take_way(ebpf, way, btf);
        if taken.is_err() {
            // What of it was loaded and attached would be held for nothing.
            let _ = unload(ebpf, way);
        }
        taken.map(|kretprobes| Calls { way, kretprobes })
    })
}

fn first_accepted<T>(
    ways: &[ProbeWay],
    refusals: &mut Vec<String>,
    mut take: impl FnMut(ProbeWay) -> Result<T, LoadError>,
) -> Option<T> {
    ways.iter().find_map(|way| match take(*way) {
        Ok(taken) => Some(taken),
        Err(error) => {
            refusals.push(format!("{way}: {error}"));
            None
        }
    })
}

/// One program after the other, so that a kernel that refuses the way at all says so before
/// the rest is loaded.
fn take_way(ebpf: &mut Ebpf, way: ProbeWay, btf: &Btf) -> Result<Vec<Kretprobe>, LoadError> {
    match way {
        ProbeWay::Fentry => {
            for call in &CALLS {
                let function: &mut FExit = program(ebpf, call.fexit)?;
                function
                    .load(call.function, btf)
                    .map_err(|error| refused(call.fexit, "load", &error))?;
                function
                    .attach()
                    .map_err(|error| refused(call.fexit, "attach", &error))?;
            }
            Ok(Vec::new())
        }
        ProbeWay::Kprobe => {
            let probe: &mut KProbe = program(ebpf, KRETPROBE)?;
            probe
                .load()
                .map_err(|error| refused(KRETPROBE, "load", &error))?;
            let attached = CALLS.iter().map(|call| {
                let link = probe.attach(call.function, 0);
                let link = link.and_then(|id| probe.take_link(id));
                let link = link.map_err(|error| refused(KRETPROBE, "attach", &error))?;
                Kretprobe::new(link).map_err(|error| refused(KRETPROBE, "attach", &error))
            });
            attached.collect()
        }
        ProbeWay::Syscalls => {
            let tracepoint: &mut BtfTracePoint = program(ebpf, SYS_EXIT)?;
            tracepoint
                .load(SYS_EXIT_TRACEPOINT, btf)
                .map_err(|error| refused(SYS_EXIT, "load", &error))?;
            tracepoint
                .attach()
                .map_err(|error| refused(SYS_EXIT, "attach", &error))?;
            Ok(Vec::new())
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_is_refused_when_it_is_attached_gives_place_to_the_next() {
        let mut refusals = Vec::new();
        let mut tried = Vec::new();
        let taken = first_accepted(&ProbeWay::ALL, &mut refusals, |way| {
            tried.push(way);
            match way {
                ProbeWay::Fentry => Err(refused("vm_fexit_brk", "attach", &"EPERM")),
                way => Ok(way),
            }
        });
        assert_eq!(taken, Some(ProbeWay::Kprobe));
        assert_eq!(tried, [ProbeWay::Fentry, ProbeWay::Kprobe]);
        assert_eq!(refusals, ["fentry: attach BPF program vm_fexit_brk: EPERM"]);
    }

    #[test]
    fn where_every_way_is_refused_there_is_none_and_each_says_why() {
        let mut refusals = Vec::new();
        let none: Option<()> = first_accepted(&ProbeWay::ALL, &mut refusals, |way| {
            Err(refused("vm", "load", &way))
        });
        assert_eq!(none, None);
        assert_eq!(refusals.len(), ProbeWay::ALL.len());
    }
}
