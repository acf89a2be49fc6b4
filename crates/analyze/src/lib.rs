//! Thinks: the rows of a recording go in, findings come out, with what each says of itself. No I/O.
//!
//! [`analyze`] is the entry. It reads each table once, as a stream: the `mem` table can hold
//! ten million rows, and a report is read on machines smaller than the one that was recorded.
//! Findings are serde types, and are the JSON report: a key is never renamed within its version.
//! `report` lays out what they say; `store` is where rows come from, through [`RowSource`].

mod allocations;
mod analysis;
mod answer;
mod attribution;
mod attributor;
mod bins;
mod clock;
mod comparison;
mod composition;
mod conditions;
mod cost;
mod curves;
mod diff;
mod endings;
#[cfg(test)]
mod golden;
mod gpu;
mod groups;
mod growth;
mod held;
mod host_clock;
mod hosts;
mod json_schema;
mod keys;
mod layout;
mod leftovers;
mod life;
mod limits;
mod live;
mod load_files;
mod log_kills;
mod losses;
mod mappings;
mod memory_tables;
mod moment;
mod name;
mod on_gpus;
mod oom;
mod page;
mod pass;
mod peak;
mod perfetto;
mod phases;
mod pods;
mod process;
mod process_table;
mod process_tree;
mod readings_near;
mod recycled;
mod report;
mod rlimits;
mod roles;
mod run;
mod samples;
mod sections;
mod sender;
mod shares;
mod sharing;
mod signal;
mod surroundings;
mod teardown;
mod termination;
mod titles;
mod torch;
mod trend;
mod who;

pub use allocations::{
    AllocationGain, AllocationSite, CodeLine, CudaLine, CudaLines, Flame, HeldByLine, LineHolding,
    ProcessAllocations, RssThen, Sampled, StackFile, StackFrame, export_stacks,
};
pub use analysis::{Analysis, CurvePoint, TreeFinding};
pub use attribution::{
    AnonLine, Attribution, CachedFile, Elsewhere, EndingLine, KernelLine, KernelPart, Scope,
    SharedObject,
};
pub use clock::RunClock;
pub use comparison::{Change, Changes, DiffReport, Difference, Excess};
pub use composition::{Composition, Holder, HolderGroup, together};
pub use conditions::{
    Axis, Condition, Conditions, FailedRequest, Increment, RequestFigures, RoleGrowth, Seconds,
    Sending,
};
pub use cost::RecorderCost;
pub use curves::{
    Band, CurveLimit, CurveSeries, CurveStack, Curves, Drawings, Gaps, GpuCurves, Levels,
};
pub use diff::{Comparison, Diff, KindChange, LayoutChange, StageChange};
pub use endings::Ending;
pub use gpu::{
    Audit, Contexts, Cuda, CudaMoved, CudaParts, CudaRefusal, CudaUnplaced, Fall, GpuDevice,
    GpuHolder, GpuLedger, GpuLine, GpuPart, GpuPeak, GpuProcess, Gpus, HostGain,
};
pub use growth::{Growth, Verdict};
pub use held::{Held, HeldBasis, HeldKinds, UNNAMED};
pub use hosts::{
    Bounded, ComparedRun, HostChange, HostPart, JobRoleChange, Line, PartError, Place,
    RUN_SECTIONS, RankStageChange, RunCurves, RunDiff, RunReport, Unread, merge, merge_with_curves,
    reduce,
};
pub use json_schema::json_schema;
pub use keys::PeakAt;
pub use layout::{Cause, Confidence, Layout, LayoutLine};
pub use leftovers::{Leftovers, OrphanedShmObject, Survivor};
pub use life::{Child, KindsAt, LayoutAt, Life, MappingLine, ProcessError, SharedWith};
pub use limits::{LimitKind, LimitUse};
pub use live::{
    Deep, Family, Frame, Limit, Live, METRICS, Metric, OOM_KILLS, RECORDER_UP, RoleNow, SERIES_MAX,
};
pub use load_files::{LoadRun, WallSpan, trace_head, trace_line};
pub use log_kills::LogKill;
pub use losses::Loss;
pub use mappings::{Mapping, Mappings, ProcessMappings};
pub use moment::{Moment, MomentError, ParseMomentError};
pub use on_gpus::NamedGpu;
pub use oom::{
    Grower, GrownKind, GrownObject, HeldKind, KindLine, Leak, LimitHolder, OomFinding, PostMortem,
    Pressure,
};
pub use peak::{Bound, Peak, PeakOrigin};
pub use perfetto::{Recorded, perfetto};
pub use phases::{
    DeviceLevel, GpuChange, HolderChange, Level, Measures, Phase, PhaseEnd, PhaseError, PhaseFocus,
    PhaseForm, PhaseLine, PhasePart, Phases, Repeated, RoleChange, RoleStretch, Slope, Spread,
    StepGrower, Steps, Stretch, Uncertain,
};
pub use process::Process;
pub use process_tree::{ProcessTree, TreeLine};
pub use rlimits::Rlimits;
pub use roles::{KindFigures, RoleAtPeak, RoleFinding, RoleHolding, RoleOnGpus, RoleShares};
pub use run::{AnalyzeError, Options, analyze, analyze_into};
pub use samples::{
    Allocated, Allocations, GpuPlace, GpuProcessSample, GpuSample, LabelledPeak, MemorySample,
    Names, NodeReading, SampleOptions, SampleSummary, Samples, files as sample_files, gpu_files,
    sample, sample_gpus,
};
pub use sections::growth::in_words as growth_in_words;
pub use sections::oom_kills::cause as oom_cause;
pub use sections::phases::{checkpoints, startup_log};
pub use sections::{Report, SECTIONS};
pub use shares::Share;
pub use surroundings::{CgroupUse, NodeUse, RecorderUse};
pub use torch::{TorchSite, TorchSnapshot};
pub use who::{Bundle, Who};

pub use memtrace_timeline::{Amounts, Sum, Totals};

#[cfg(test)]
mod tests;
