//! What memtrace talks about: units, identities, and the tables of a recording.
//!
//! It imports no other crate of memtrace. A table is one file in [`tables`]; its columns are
//! declared once, there, and everything else (Arrow schema, Parquet, `memtrace schema`,
//! docs/tables.md) is read from that declaration.

mod bounded_json;
mod cell;
mod clock;
pub mod clocks;
mod host_list;
mod instant;
pub mod keys;
mod kind;
pub mod label;
mod load;
mod mark;
mod mark_rules;
mod order;
mod pattern;
mod place;
mod pod;
mod question;
mod roles;
mod row_source;
mod run;
mod secrets;
mod shell;
mod table;
pub mod tables;
mod units;

pub use bounded_json::{BoundedJson, JsonBounds};
pub use cell::{Cell, CellError, CellSink, CellSource, ColumnType};
pub use clock::{ClockOffset, ClockReading};
pub use clocks::{Clock, Clocks};
pub use host_list::{HostListError, parse_host_list};
pub use instant::Instant;
pub use kind::{Kind, PerKind};
pub use label::Label;
pub use load::ERROR_BYTES_MAX;
pub use load::{LoadCondition, Message, RequestMessage};
pub use mark::cut_at;
pub use mark::{
    MARK_BYTES_MAX, MARK_NAME_BYTES_MAX, MARK_SOCKET_VARIABLE, MARK_VERSION, MarkError,
    MarkMessage, SelfReport,
};
pub use mark_rules::{
    BUILTIN_MARK_RULES, END_IS_UNKNOWN, KillRule, MarkRule, MarkRuleError, MarkRuleKind,
    builtin_mark_rules, mark_rules,
};
pub use order::Order;
pub use place::{PlaceName, PlaceNameError, RunPlace};
pub use pod::pod_of_cgroup;
pub use question::{
    DescendantsAnswer, DescendantsQuestion, DescendantsSource, QUESTION_BYTES_MAX,
    QUESTION_SOCKET_SUFFIX,
};
pub use roles::{Environments, Found, MAIN, ProcessTraits, Role, Rules, RulesError, says_little};
pub use row_source::{FreshRows, RowSource};
pub use run::{
    Downsampled, Framework, GpuInfo, RECORDER_BYTES_MAX, RunInfo, RunState, SCHEMA_VERSION,
    SchemaVersion, Target,
};
pub use secrets::{masked, masked_arguments, masked_json};
pub use shell::quoted;
pub use table::{Column, Row, Table};
pub use tables::{
    CacheSource, CachedFileRow, CgroupMemRow, ClockRow, CudaCallRow, CudaKind, CudaMemoryRow,
    DiagKind, DiagRow, FINDINGS, Fate, Finding, FirstSeenBy, FrameKind, GrowthSiteRow, LayoutPart,
    LayoutRow, MappingKind, MappingRow, MarkKind, MarkRow, MarkSource, MemRow, MemSource,
    NodeMemRow, OomRow, OrphanedShmRow, PeakSource, PhaseEnd, PhaseForm, PhaseRow, ProcessRow,
    PssRow, PssSource, Record, RequestOutcome, RequestRow, RoleMemRow, SelfCostRow, Severity,
    ShmFamily, ShmObjectRow, StackRow, SurvivorRow, TABLES, TitleRow, TitleSource, TmpfsRow,
    VmEventRow, VmOp, VmSummaryRow, trim_title,
};
pub use units::{BootNs, Bytes, DurationNs, PageSize, Pages, Tgid, Upid, WallNs};
