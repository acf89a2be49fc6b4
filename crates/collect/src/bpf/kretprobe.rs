//! A kretprobe, and what it let pass.

use aya::programs::kprobe::KProbeLink;
use aya::programs::links::{FdLink, LinkError};
use memtrace_host::{bpf, bpf_fd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// An attached kretprobe.
pub(super) struct Kretprobe {
    /// Dropping it detaches the probe.
    _link: FdLink,
    /// The same link, to ask the kernel about it: aya keeps its own descriptor to itself.
    asked: Option<OwnedFd>,
}

impl Kretprobe {
    pub(super) fn new(link: KProbeLink) -> Result<Self, LinkError> {
        let link = FdLink::try_from(link)?;
        let asked = link.info().ok().and_then(|info| open(info.id()).ok());
        Ok(Self { _link: link, asked })
    }

    /// How many calls it had no room for; `None` where that can't be known.
    pub(super) fn missed(&self) -> Option<u64> {
        let asked = self.asked.as_ref()?;
        let mut info = LinkInfo::default();
        let mut request = InfoByFd {
            fd: asked.as_raw_fd().cast_unsigned(),
            length: size_of::<LinkInfo>() as u32,
            info: (&raw mut info) as u64,
        };
        bpf(BPF_OBJ_GET_INFO_BY_FD, &mut request).ok()?;
        // An older kernel knows less, and says how much it filled in.
        let is_reported = request.length as usize >= std::mem::offset_of!(LinkInfo, missed) + 8;
        (is_reported && info.event_type == BPF_PERF_EVENT_KRETPROBE).then_some(info.missed)
    }
}

const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_GET_FD_BY_ID: libc::c_long = 30;
/// A value of `enum bpf_perf_event_type`.
const BPF_PERF_EVENT_KRETPROBE: u32 = 4;

/// The part of union bpf_attr that BPF_OBJ_GET_INFO_BY_FD takes (include/uapi/linux/bpf.h).
#[repr(C)]
struct InfoByFd {
    fd: u32,
    length: u32,
    info: u64,
}

/// struct bpf_link_info up to perf_event.kprobe.missed (6.7).
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    link_type: u32,
    id: u32,
    prog_id: u32,
    _pad: u32,
    event_type: u32,
    _event_pad: u32,
    func_name: u64,
    name_len: u32,
    offset: u32,
    addr: u64,
    missed: u64,
}

fn open(link: u32) -> io::Result<OwnedFd> {
    bpf_fd(BPF_LINK_GET_FD_BY_ID, &mut [link, 0, 0])
}
