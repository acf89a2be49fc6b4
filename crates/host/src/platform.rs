//! Reads the facts of a host that is not Linux: what the platform tells through sysinfo.

use super::facts::HostFacts;
use memtrace_model::Bytes;

impl HostFacts {
    /// Reads the facts of this machine.
    pub fn read() -> Self {
        let mut facts = Self::unknown();
        match sysinfo::System::host_name() {
            Ok(name) => facts.hostname = name,
            Err(error) => facts.note_unread("hostname", error),
        }
        match sysinfo::System::kernel_version() {
            Ok(release) => facts.kernel = release,
            Err(error) => facts.note_unread("kernel", error),
        }
        facts.arch = sysinfo::System::cpu_arch();
        // SAFETY: sysconf has no preconditions; it answers -1 for what it does not know.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if page_size > 0 {
            facts.page_size_bytes = Bytes(page_size);
        }
        facts.online_cpu_count = std::thread::available_parallelism()
            .ok()
            .and_then(|count| u32::try_from(count.get()).ok());
        // SAFETY: geteuid has no preconditions and cannot fail.
        facts.euid = Some(unsafe { libc::geteuid() });
        match sysinfo::System::new() {
            Ok(mut system) => {
                system.refresh_memory();
                let total = i64::try_from(system.total_memory()).ok();
                facts.mem_total_bytes = total.filter(|total| *total > 0).map(Bytes);
            }
            Err(error) => facts.note_unread("mem_total_bytes", error),
        }
        facts
    }
}
