//! Where there is no /proc: what the platform tells through sysinfo.

use super::{PERIOD, unknown};
use crate::{CollectError, Collector, Pass};
use memtrace_model::{Bytes, DurationNs};
use sysinfo::System;

/// Observes the machine's memory.
#[derive(Debug, Default)]
pub struct NodeCollector {
    system: Option<System>,
}

impl NodeCollector {
    /// A collector for this machine.
    pub fn new() -> Self {
        Self::default()
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
        let system = match &mut self.system {
            Some(system) => system,
            missing => missing.insert(
                System::new().map_err(|error| CollectError::new("memory of the machine", error))?,
            ),
        };
        system.refresh_memory();
        let amount = |bytes: u64| i64::try_from(bytes).ok().map(Bytes);
        let mut row = unknown(pass.tick);
        row.mem_total_bytes = amount(system.total_memory());
        row.mem_free_bytes = amount(system.free_memory());
        row.mem_available_bytes = amount(system.available_memory());
        row.swap_total_bytes = amount(system.total_swap());
        row.swap_free_bytes = amount(system.free_swap());
        pass.write(row);
        Ok(())
    }
}
