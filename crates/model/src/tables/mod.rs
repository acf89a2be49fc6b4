//! The tables of a recording, one file each, and the list of them.

mod cached_file;
mod cgroup_mem;
mod clock;
mod cuda;
mod diag;
mod gpu_device;
mod gpu_process;
mod growth_site;
mod held;
mod layout;
mod mapping;
mod mark;
mod mem;
mod node_mem;
mod oom;
mod orphaned_shm;
mod phase;
mod process;
mod pss;
mod request;
mod role_mem;
mod self_cost;
mod shm_object;
mod stack;
mod survivor;
mod title;
mod tmpfs;
mod torch_memory;
mod vm_event;
mod vm_summary;

pub use cached_file::{CacheSource, CachedFileRow};
pub use cgroup_mem::CgroupMemRow;
pub use clock::ClockRow;
pub use cuda::{CudaCallRow, CudaKind, CudaMemoryRow};
pub use diag::{DiagKind, DiagRow, Severity};
pub use gpu_device::{GpuDeviceRow, GpuSource};
pub use gpu_process::{GpuProcessRow, GpuUse};
pub use growth_site::GrowthSiteRow;
pub use held::{HeldBasis, HeldRow};
pub use layout::{LayoutPart, LayoutRow};
pub use mapping::{MappingKind, MappingRow};
pub use mark::{MarkKind, MarkRow, MarkSource};
pub use mem::{MemRow, MemSource};
pub use node_mem::NodeMemRow;
pub use oom::OomRow;
pub use orphaned_shm::OrphanedShmRow;
pub use phase::{PhaseEnd, PhaseForm, PhaseRow};
pub use process::{FirstSeenBy, PeakSource, ProcessRow};
pub use pss::{PssRow, PssSource};
pub use request::{RequestOutcome, RequestRow};
pub use role_mem::RoleMemRow;
pub use self_cost::SelfCostRow;
pub use shm_object::{ShmFamily, ShmObjectRow};
pub use stack::{FrameKind, StackRow};
pub use survivor::{Fate, SurvivorRow};
pub use title::{TitleRow, TitleSource, trim_title};
pub use tmpfs::TmpfsRow;
pub use torch_memory::{TorchBlockState, TorchMemoryRow};
pub use vm_event::{VmEventRow, VmOp};
pub use vm_summary::VmSummaryRow;

use super::table::{Row, Table};

/// How a row lies in a [`Record`].
macro_rules! held {
    ($row:ident) => { $row };
    ($row:ident $boxed:ident) => { $boxed<$row> };
}

/// Bytes of the row itself that lie outside of the [`Record`].
macro_rules! outside {
    ($row:ident) => {
        0
    };
    ($row:ident $boxed:ident) => {
        size_of::<$row>()
    };
}

macro_rules! tables {
    (
        $(#[doc = $doc:literal])+
        $record:ident of $(#[doc = $list_doc:literal])+ $list:ident {
            $($variant:ident($row:ident) $(in $boxed:ident)?,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub enum $record {
            $(
                #[doc = concat!("A row of [`", stringify!($row), "`].")]
                $variant(held!($row $($boxed)?)),
            )+
        }

        $(impl From<$row> for $record {
            fn from(row: $row) -> Self {
                Self::$variant(row.into())
            }
        })+

        $(#[doc = $list_doc])+
        pub static $list: &[&Table] = &[$(<$row as Row>::TABLE),+];

        impl $record {
            #[doc = concat!("The table this row belongs to, as an index into [`", stringify!($list), "`].")]
            pub fn table_index(&self) -> usize {
                #[derive(Clone, Copy)]
                enum Index { $($variant),+ }
                match self { $(Self::$variant(_) => Index::$variant as usize,)+ }
            }

            /// Bytes that it holds outside of itself.
            pub fn heap_bytes(&self) -> usize {
                match self { $(Self::$variant(row) => outside!($row $($boxed)?) + row.heap_bytes(),)+ }
            }

            /// Writes the row's cells, left to right.
            pub fn put(&self, sink: &mut impl super::cell::CellSink) {
                match self { $(Self::$variant(row) => row.put(sink),)+ }
            }
        }
    };
}

tables! {
    /// One row of any table: what collectors send and the store writes. Wide rows, of which
    /// there are few, lie outside of it: a batch holds tens of thousands of the others.
    Record of
    /// Every table of a recording.
    TABLES {
        Process(ProcessRow) in Box,
        Title(TitleRow),
        Mem(MemRow),
        Pss(PssRow) in Box,
        Mapping(MappingRow) in Box,
        Layout(LayoutRow) in Box,
        ShmObject(ShmObjectRow) in Box,
        CachedFile(CachedFileRow),
        OrphanedShmObject(OrphanedShmRow),
        Survivor(SurvivorRow),
        Mark(MarkRow),
        Request(RequestRow) in Box,
        VmEvent(VmEventRow),
        VmSummary(VmSummaryRow),
        Stack(StackRow),
        GrowthSite(GrowthSiteRow),
        Oom(OomRow) in Box,
        CgroupMem(CgroupMemRow) in Box,
        NodeMem(NodeMemRow) in Box,
        Tmpfs(TmpfsRow),
        GpuDevice(GpuDeviceRow) in Box,
        GpuProcess(GpuProcessRow) in Box,
        CudaCall(CudaCallRow) in Box,
        CudaMemory(CudaMemoryRow) in Box,
        TorchMemory(TorchMemoryRow) in Box,
        Clock(ClockRow),
        SelfCost(SelfCostRow) in Box,
        Diag(DiagRow),
    }
}

tables! {
    /// One row of a table of findings.
    Finding of
    /// Every table that `memtrace report --save-findings` writes beside those of a recording: what
    /// the report finds, for programs that read tables.
    FINDINGS {
        Phase(PhaseRow) in Box,
        RoleMem(RoleMemRow),
        Held(HeldRow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_table_and_column_is_named_once_and_documented() {
        let mut tables = HashSet::new();
        for table in TABLES.iter().chain(FINDINGS) {
            assert!(tables.insert(table.name), "two tables named {}", table.name);
            assert!(!table.doc.trim().is_empty(), "{} has no doc", table.name);
            let mut columns = HashSet::new();
            for column in table.columns {
                assert!(
                    columns.insert(column.name),
                    "{}.{} twice",
                    table.name,
                    column.name
                );
                assert!(
                    !column.doc.trim().is_empty(),
                    "{}.{}",
                    table.name,
                    column.name
                );
            }
        }
    }

    #[test]
    fn a_name_that_ends_in_a_unit_has_that_unit() {
        for table in TABLES.iter().chain(FINDINGS) {
            for column in table.columns {
                for unit in ["bytes", "ns"] {
                    assert_eq!(
                        column.name.ends_with(&format!("_{unit}")),
                        column.unit == Some(unit) && !column.name.ends_with("ts"),
                        "{}.{}",
                        table.name,
                        column.name
                    );
                }
            }
        }
    }
}
