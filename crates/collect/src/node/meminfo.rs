//! Linux: /proc/meminfo, /proc/pressure/memory and /proc/net/sockstat, through kept descriptors.

use super::{PERIOD, unknown};
use crate::fields::{kib, number, pairs, pressure};
use crate::kept::{KeptFile, TextBuffer};
use crate::on_change::OnChange;
use crate::{CollectError, Collector, Pass};
use memtrace_host::clock;
use memtrace_model::{Bytes, DurationNs, NodeMemRow, Record};
use std::path::{Path, PathBuf};

/// A reading that took longer was interrupted, and is made again, so many times.
const INTERRUPTED: DurationNs = DurationNs(3_000_000);
const TRIES: usize = 3;

/// Observes the machine's memory.
#[derive(Debug)]
pub struct NodeCollector {
    path: PathBuf,
    meminfo: Option<KeptFile>,
    /// `None` without PSI. A kernel that has it switched off refuses the reading instead.
    pressure: Option<KeptFile>,
    /// `None` in a kernel without networks.
    sockets: Option<KeptFile>,
    buffer: TextBuffer,
    rows: OnChange<NodeMemRow>,
}

impl NodeCollector {
    /// A collector for this machine.
    pub fn new() -> Self {
        Self::at(Path::new("/proc"))
    }

    fn at(root: &Path) -> Self {
        Self {
            path: root.join("meminfo"),
            meminfo: None,
            pressure: KeptFile::open(&root.join("pressure/memory")).ok(),
            sockets: KeptFile::open(&root.join("net/sockstat")).ok(),
            buffer: TextBuffer::default(),
            rows: OnChange::default(),
        }
    }

    fn read(&mut self, row: &mut NodeMemRow) -> std::io::Result<()> {
        let meminfo = match &mut self.meminfo {
            Some(file) => file,
            closed => closed.insert(KeptFile::open(&self.path)?),
        };
        enter_meminfo(meminfo.read(&mut self.buffer)?, row);
        if let Some(file) = &self.pressure
            && let Ok(text) = file.read(&mut self.buffer)
        {
            (row.psi_some_ns, row.psi_full_ns) = pressure(text);
        }
        if let Some(file) = &self.sockets
            && let Ok(text) = file.read(&mut self.buffer)
        {
            row.sockets_bytes = sockets(text, rustix::param::page_size());
        }
        Ok(())
    }
}

impl Default for NodeCollector {
    fn default() -> Self {
        Self::new()
    }
}

/// `TCP: inuse 1 orphan 0 tw 0 alloc 1 mem 152`: pages, of all network namespaces together
/// (sockstat_seq_show, net/ipv4/proc.c). What UDP has there is in slab as well: small buffers are.
fn sockets(text: &[u8], page_size: usize) -> Option<Bytes> {
    let (_, value) = pairs(text).find(|(protocol, _)| *protocol == b"TCP")?;
    let mut words = value.split(|byte| *byte == b' ');
    words.find(|word| *word == b"mem")?;
    let pages: i64 = number(words.next()?)?;
    pages.checked_mul(i64::try_from(page_size).ok()?).map(Bytes)
}

fn enter_meminfo(text: &[u8], row: &mut NodeMemRow) {
    let mut huge_pages: Option<i64> = None;
    let mut free_huge_pages: Option<i64> = None;
    let mut huge_page_size = None;
    for (key, value) in pairs(text) {
        let cell = match key {
            b"MemTotal" => &mut row.mem_total_bytes,
            b"MemFree" => &mut row.mem_free_bytes,
            b"MemAvailable" => &mut row.mem_available_bytes,
            b"Buffers" => &mut row.buffers_bytes,
            b"Cached" => &mut row.cached_bytes,
            b"AnonPages" => &mut row.anon_bytes,
            b"Mapped" => &mut row.mapped_bytes,
            b"Shmem" => &mut row.shmem_bytes,
            b"SReclaimable" => &mut row.slab_reclaimable_bytes,
            b"SUnreclaim" => &mut row.slab_unreclaimable_bytes,
            b"KernelStack" => &mut row.kernel_stack_bytes,
            b"PageTables" => &mut row.page_tables_bytes,
            b"Percpu" => &mut row.percpu_bytes,
            b"Hugetlb" => &mut row.hugetlb_bytes,
            b"SwapTotal" => &mut row.swap_total_bytes,
            b"SwapFree" => &mut row.swap_free_bytes,
            b"HugePages_Total" => {
                huge_pages = number(value);
                continue;
            }
            b"HugePages_Free" => {
                free_huge_pages = number(value);
                continue;
            }
            b"Hugepagesize" => &mut huge_page_size,
            _ => continue,
        };
        *cell = kib(value);
    }
    // Hugetlb, which counts all sizes, is there since 4.18; before, the default size.
    if row.hugetlb_bytes.is_none()
        && let (Some(count), Some(Bytes(size))) = (huge_pages, huge_page_size)
    {
        row.hugetlb_bytes = count.checked_mul(size).map(Bytes);
    }
    if let (Some(all), Some(count), Some(Bytes(size))) =
        (row.hugetlb_bytes, free_huge_pages, huge_page_size)
    {
        let free = count.checked_mul(size).map(Bytes);
        row.hugetlb_used_bytes = free.map(|free| all - free);
    }
}

impl Collector for NodeCollector {
    fn name(&self) -> &'static str {
        "node"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn follows_processes(&self) -> bool {
        true
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        let mut row = unknown(pass.tick);
        for _ in 0..TRIES {
            // The tick began before others were asked.
            row.boot_ns = clock::boot();
            self.read(&mut row)
                .map_err(|error| CollectError::new(self.path.display().to_string(), error))?;
            if clock::boot() - row.boot_ns <= INTERRUPTED {
                break;
            }
        }
        row.ts = pass.tick.clock.to_wall(row.boot_ns);
        let rows = self.rows.rows(row, pass.tick.is_keyframe);
        pass.out.extend(rows.map(Record::from));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProcessTable, Tick};
    use memtrace_model::{BootNs, ClockOffset, ClockReading, WallNs};
    use std::fs;

    const MEMINFO: &str = "MemTotal:       24684092 kB\nMemFree:        1000 kB\nMemAvailable:   2000 kB\nBuffers:        3 kB\nCached:         4 kB\nSwapCached:     99 kB\nSwapTotal:      5 kB\nSwapFree:       6 kB\nAnonPages:      7 kB\nMapped:         8 kB\nShmem:          9 kB\nSReclaimable:   10 kB\nSUnreclaim:     11 kB\nKernelStack:    12 kB\nPageTables:     13 kB\nPercpu:         14 kB\nHugePages_Total:       2\nHugepagesize:       2048 kB\n";

    fn read(root: &Path) -> Result<NodeMemRow, CollectError> {
        let tick = Tick {
            boot: BootNs(1),
            clock: ClockOffset::at(ClockReading {
                boot_ns: BootNs(0),
                monotonic_ns: 0,
                wall_ns: WallNs(0),
            }),
            is_keyframe: false,
        };
        let mut out = Vec::new();
        let mut collector = NodeCollector::at(root);
        collector.collect(&mut Pass::new(
            &tick,
            &mut ProcessTable::default(),
            &mut out,
        ))?;
        match out.pop() {
            Some(Record::NodeMem(row)) => Ok(*row),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn amounts_are_bytes_and_the_pool_of_huge_pages_is_one_of_them() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("meminfo"), MEMINFO).unwrap();
        let row = read(root.path()).unwrap();
        assert_eq!(row.mem_total_bytes, Some(Bytes(24_684_092 * 1024)));
        assert_eq!(row.cached_bytes, Some(Bytes(4096)), "not SwapCached");
        assert_eq!(row.hugetlb_bytes, Some(Bytes(4 << 20)));
        assert_eq!(row.psi_some_ns, None);
        let newer = format!("{MEMINFO}Hugetlb:  1048576 kB\n");
        fs::write(root.path().join("meminfo"), newer).unwrap();
        fs::create_dir(root.path().join("pressure")).unwrap();
        fs::write(
            root.path().join("pressure/memory"),
            "some avg10=0.00 total=3\n",
        )
        .unwrap();
        let row = read(root.path()).unwrap();
        assert_eq!(row.hugetlb_bytes, Some(Bytes(1 << 30)));
        assert_eq!(row.psi_some_ns, Some(DurationNs(3000)));
        assert_eq!(row.psi_full_ns, None);
    }

    #[test]
    fn pages_of_sockets_are_bytes() {
        let text = b"sockets: used 19\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 152\nUDP: inuse 0 mem 3\nUDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n";
        assert_eq!(sockets(text, 4096), Some(Bytes(152 * 4096)));
        assert_eq!(sockets(b"sockets: used 19\n", 4096), None);
    }

    #[test]
    fn a_missing_meminfo_is_an_error_that_names_it() {
        let root = tempfile::tempdir().unwrap();
        let error = read(root.path()).unwrap_err();
        assert!(error.subject.ends_with("meminfo"), "{error}");
    }

    #[test]
    fn this_machine_has_more_memory_in_all_than_is_free() {
        let row = read(Path::new("/proc")).unwrap();
        assert!(row.mem_total_bytes > row.mem_free_bytes);
        assert!(row.mem_free_bytes.is_some_and(|free| free.0 > 0));
    }
}
