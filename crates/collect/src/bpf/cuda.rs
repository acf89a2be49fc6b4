//! Probes on the functions of libcuda, by one link for all of them (uprobe_multi, Linux 6.6).
//!
//! A probe of its own for each takes the kernel some 80 ms to detach, one after the other: ten
//! seconds at the end of a recording. aya 0.14 knows no such links, so the two programs are loaded
//! here: its parser has the instructions, and its maps are those of all programs.

use super::error::{LoadError, refused};
use super::object::object;
use crate::cuda::{FUNCTIONS, Library};
use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya_obj::Object;
use memtrace_host::{BPF_PROG_LOAD, ProgramLoad, bpf_fd};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Room for calls that have not returned, where they are seen.
pub(super) const ENTERED_MAX: u32 = 16_384;

/// Libraries that are probed at most: containers can bring copies of their own.
const LIBRARIES_MAX: usize = 16;

const ENTER: &str = "cuda_enter";
const RETURN: &str = "cuda_return";

/// Whether a program is one of those that see the calls.
pub(super) fn is_program(name: &str) -> bool {
    name == ENTER || name == RETURN
}

/// The probes. Dropping it detaches them.
pub(super) struct CudaProbes {
    enter: OwnedFd,
    leave: OwnedFd,
    links: Vec<OwnedFd>,
}

impl CudaProbes {
    /// Loads the programs. Needs every map of the object.
    ///
    /// # Errors
    /// When the kernel refuses them: before 6.6 it has no such links.
    pub(super) fn load(ebpf: &Ebpf) -> Result<Self, LoadError> {
        let absent = || LoadError::Absent("programs for calls of the CUDA driver");
        let mut parsed = Object::parse(object()).map_err(|_| absent())?;
        let maps: Vec<_> = parsed
            .maps
            .iter()
            .filter_map(|(name, map)| Some((name.clone(), data(ebpf.map(name)?)?, map.clone())))
            .collect();
        let sections = parsed.functions.keys().map(|(section, _)| *section);
        let sections = sections.collect();
        let fds = maps
            .iter()
            .map(|(name, data, map)| (name.as_str(), data.fd().as_fd().as_raw_fd(), map));
        parsed.relocate_maps(fds, &sections).map_err(|_| absent())?;
        parsed.relocate_calls(&sections).map_err(|_| absent())?;
        let loaded = |name| {
            let program = parsed.programs.get(name).ok_or_else(absent)?;
            let function = parsed.functions.get(&program.function_key());
            let instructions = &function.ok_or_else(absent)?.instructions;
            let mut load = ProgramLoad {
                prog_type: BPF_PROG_TYPE_KPROBE,
                insn_cnt: instructions.len() as u32,
                insns: instructions.as_ptr() as u64,
                license: program.license.as_ptr() as u64,
                expected_attach_type: BPF_TRACE_UPROBE_MULTI,
                ..ProgramLoad::default()
            };
            bpf_fd(BPF_PROG_LOAD, &mut load).map_err(|error| refused(name, "load", &error))
        };
        Ok(Self {
            enter: loaded(ENTER)?,
            leave: loaded(RETURN)?,
            links: Vec::new(),
        })
    }

    /// The programs, by name.
    pub(super) fn programs(&self) -> [(&'static str, &OwnedFd); 2] {
        [(ENTER, &self.enter), (RETURN, &self.leave)]
    }

    /// Probes a library, of whoever maps it. The program of the return hangs there first: a call
    /// that is entered between the two is not seen, rather than kept.
    pub(super) fn attach(&mut self, library: &Library) -> Result<(), LoadError> {
        if self.links.len() >= 2 * LIBRARIES_MAX {
            let detail = format!("{LIBRARIES_MAX} copies of libcuda are probed already");
            return Err(refused(ENTER, "attach", &detail));
        }
        let mut links = Vec::with_capacity(2);
        for (name, program, flags) in [
            (RETURN, &self.leave, BPF_F_UPROBE_MULTI_RETURN),
            (ENTER, &self.enter, 0),
        ] {
            let link = linked(program, library, flags);
            links.push(link.map_err(|error| refused(name, "attach", &error))?);
        }
        self.links.append(&mut links);
        Ok(())
    }
}

fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::PerCpuArray(data)
        | Map::Queue(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}

fn linked(program: &OwnedFd, library: &Library, flags: u32) -> io::Result<OwnedFd> {
    let path = CString::new(format!("/proc/self/fd/{}", library.file.as_raw_fd()))?;
    let offsets: Vec<u64> = library.offsets.iter().map(|(_, offset)| *offset).collect();
    let cookies = library.offsets.iter().map(|(number, _)| *number);
    let cookies: Vec<u64> = cookies
        .map(|number| FUNCTIONS[number].cookie(number).pack())
        .collect();
    let mut create = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_fd: 0,
        attach_type: BPF_TRACE_UPROBE_MULTI,
        link_flags: 0,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        ref_ctr_offsets: 0,
        cookies: cookies.as_ptr() as u64,
        cnt: offsets.len() as u32,
        flags,
        pid: 0,
        reserved: 0,
    };
    bpf_fd(BPF_LINK_CREATE, &mut create)
}

const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;

/// The part of union bpf_attr that BPF_LINK_CREATE takes for uprobe_multi
/// (include/uapi/linux/bpf.h).
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    link_flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    flags: u32,
    pid: u32,
    reserved: u32,
}
