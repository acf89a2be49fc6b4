//! Addresses of kernel symbols.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// The address of a kernel symbol. `None` when it does not exist, or when addresses are
/// hidden (they read as zero without CAP_SYSLOG, see kptr_restrict).
pub fn address(name: &str) -> Option<u64> {
    let mut reader = BufReader::with_capacity(64 * 1024, File::open("/proc/kallsyms").ok()?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        // "ffffffff82c0e4a0 D __per_cpu_offset"; module symbols follow with a tab.
        let text = std::str::from_utf8(&line).ok()?.trim_end();
        let mut fields = text.split(' ');
        let (address, _kind, symbol) = (fields.next()?, fields.next()?, fields.next()?);
        if symbol == name {
            return u64::from_str_radix(address, 16).ok().filter(|address| *address != 0);
        }
    }
}
