//! `gpu_process`: the GPU memory of each process over time.

use super::GpuSource;
use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Tgid, Upid, WallNs};

table! {
    /// Memory of one process on one GPU, also of processes that are not recorded otherwise. A row holds from its time until the next row of the same device, process, instance and client (a step function); a keyframe every 30 s. One that has left the device has a last row of zero bytes.
    pub struct GpuProcessRow in "gpu_process" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// The device, as in `gpu_device`.
        device: String,
        /// The process, where it is one of the recording.
        upid: Option<Upid>,
        /// The process id as the driver tells it: that of the pid namespace of memtrace, or of the machine where the driver does not translate it.
        tgid: Tgid,
        /// The kernel's name of a process that is not of the recording.
        comm: Option<String>,
        /// The command line of a process that is not of the recording.
        cmdline: Option<String>,
        /// Who reported it.
        source: Option<GpuSource>,
        /// What it uses the device for; null when unknown.
        kind: Option<GpuUse>,
        /// Memory on the device. Null where the driver can't tell: "not available", or 0 bytes for a process with a context inside a pid namespace.
        used_bytes: Option<Bytes>,
        /// The highest it held, where accounting mode tells; null otherwise.
        peak_bytes: Option<Bytes>,
        /// Memory of the machine that belongs to the client (DRM regions gtt, system); null where it is not reported. Not part of used_bytes.
        host_bytes: Option<Bytes>,
        /// MIG: the GPU instance.
        gpu_instance_id: Option<i32>,
        /// MIG: the compute instance.
        compute_instance_id: Option<i32>,
        /// DRM: the client. Rows of several processes with one client tell of one piece of memory, which is to be counted once.
        client_id: Option<i64>,
        /// DRM: how many recorded processes hold a descriptor of the client.
        sharer_count: Option<i32>,
    }
}

labels! {
    /// What a process uses a GPU for.
    pub enum GpuUse {
        /// Computing: a CUDA context.
        Compute = "compute",
        /// Graphics: a context for drawing.
        Graphics = "graphics",
        /// Both; counted once.
        ComputeGraphics = "compute_graphics",
        /// Computing through the MPS server.
        Mps = "mps",
    }
}
