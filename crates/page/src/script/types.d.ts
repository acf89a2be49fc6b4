// The document that the page is drawn from, as far as the script reads it. For the type checker
// only: it is no part of the page. Amounts are bytes, times nanoseconds; null is unknown.

type Tone = 'plain' | 'strong' | 'alert' | 'quiet';
type Maybe = number | null;

interface AnswerLine {
  tone: Tone;
  text: string;
}

interface PageDocument {
  format: string;
  version: number;
  title: string;
  target: string;
  answer: AnswerLine[];
  report: Report;
  curves: Curves | null;
  bands: Band[];
  flags: Flag[];
  processes: PageProcess[];
  /** Of each process resident memory by stack, where stacks were recorded. */
  flames?: Flame[];
  /** The same at the peak. */
  flames_at_peak?: Flame[];
  diff?: Diff;
  other?: PageDocument;
}

/** A step function: a value holds until the next one. Before the first, limits and GPUs are unknown, and all else is 0. */
interface WrittenSeries {
  id: string;
  name: string;
  pid?: Maybe;
  upid?: Maybe;
  /** Gaps between indices of the common instants. */
  at: number[];
  /** Differences to the last known value; null is unknown from there on. */
  bytes: Maybe[];
}
interface WithTimes {
  time_ns: number[];
}
interface Curves extends WithTimes {
  start_unix_ns: Maybe;
  end_ns: number;
  stacks: { by: string; label: string; total: string; series: WrittenSeries[] }[];
  lines: WrittenSeries[];
  bounds: WrittenSeries[];
  /** `limit` has no change where there is none. */
  limits: ({ by: string; label: string; used: WrittenSeries; limit: WrittenSeries } & WithTimes)[];
  gpus: ({
    id: string;
    label: string;
    total_bytes: Maybe;
    used: WrittenSeries;
    series: WrittenSeries[];
  } & WithTimes)[];
}
interface Band {
  name: string;
  role: string | null;
  pid: Maybe;
  /** The line of the report that it is a step of, and its number there. */
  stage: string | null;
  step: Maybe;
  begin_ns: number;
  end_ns: number;
  depth: number;
}
/** A function with what it and what it called touched first; at the root a process. */
interface Flame {
  name: string;
  kind: 'python' | 'native' | null;
  upid?: number;
  bytes: number;
  parts: Flame[];
}
interface Flag {
  at_ns: number;
  kind: string;
  text: string;
}
interface PageProcess {
  upid: number;
  pid: Maybe;
  parent: number | null;
  name: string;
  title: string | null;
  role: string | null;
  cgroup: string | null;
  begin_ns: number;
  end_ns: Maybe;
  ending: string;
  peak_bytes: Maybe;
  peak_bound: string | null;
  peak_bound_bytes: Maybe;
  peak_at_ns: Maybe;
  rss: [number, Maybe][];
}

// Parts of the object of `memtrace report -f json` (docs/report.schema.json).
interface When {
  time: string | null;
  offset_ns: number;
}
interface Who {
  pid: Maybe;
  upid: Maybe;
  name: string | null;
}
interface Amounts {
  rss_bytes: Maybe;
  anon_bytes: Maybe;
  file_bytes: Maybe;
  shmem_bytes: Maybe;
  swap_bytes: Maybe;
}
interface Report {
  recording: {
    path: string | null;
    is_live: boolean;
    memtrace_version: string;
    state: string;
    problems: string[];
    hostname: string;
    kernel: string;
    arch: string;
    cpu_count: number;
    mem_total_bytes: Maybe;
    target: { kind: string; argv?: string[]; [key: string]: unknown };
    command_exit_code: Maybe;
    backend: string;
    backend_reason: string;
    interval_ns: number;
    start: When;
    duration_ns: number;
  };
  cost: {
    cpu_ns: number;
    cpu_share: Maybe;
    peak_rss_bytes: Maybe;
    bpf_run_ns: Maybe;
    written_bytes: number;
    row_count: number;
    lost_event_count: number;
    interval_ns: number;
  } | null;
  losses: Loss[];
  notes: Loss[];
  peak: Composition | null;
  at: Composition | null;
  oom_kills: { at: When; victim_name: string | null; victim_pid: number; held: Composition | null }[];
  roles: { name: string; upids: number[] }[];
  phases: {
    count: number;
    line_count: number;
    baseline_held_bytes: Maybe;
    baseline_at: When;
    is_lower_bound: boolean;
    peak_is_lower_bound: boolean;
    lines: (Phase | Repeated)[];
  } | null;
  gpu: { devices: { device: string; index: Maybe; name: string | null }[] } | null;
  processes: Process[];
  process_count: number;
}
interface Loss {
  severity: string;
  subject: string;
  count: Maybe;
  detail: string;
  first: When | null;
  last: When | null;
}
interface Composition {
  at: When;
  held_bytes: Maybe;
  sum_of_rss_bytes: Maybe;
  holder_count: number;
  holders: (Who & Amounts)[];
  ledgers: Attribution[];
}
interface Attribution {
  scope: string;
  cgroup: string | null;
  current_bytes: Maybe;
  age_ns: number;
  anonymous_bytes: Maybe;
  anonymous: (Who & { bytes: number })[];
  other_processes_bytes: Maybe;
  other_process_count: Maybe;
  recorder_bytes: Maybe;
  shared_bytes: Maybe;
  shared: SharedObject[];
  other_shared_bytes: Maybe;
  files_bytes: Maybe;
  files: CachedFile[];
  other_files_bytes: Maybe;
  shared_elsewhere: SharedObject[];
  files_elsewhere: CachedFile[];
  kernel_bytes: Maybe;
  kernel_outside_bytes: Maybe;
  kernel: { part: string; bytes: number }[];
  residual_bytes: Maybe;
  limit_bytes: Maybe;
}
interface SharedObject {
  kind: string | null;
  name: string | null;
  device: string;
  inode: number;
  allocated_bytes: Maybe;
  resident_bytes: Maybe;
  mapper_count: number;
}
interface CachedFile {
  path: string;
  cached_bytes: Maybe;
  user_count: number;
}
interface Stretch {
  begin: Amounts;
  end: Amounts;
  delta: Amounts;
  peak_rss_bytes: Maybe;
  peak_at: When | null;
}
interface Level {
  begin_bytes: Maybe;
  end_bytes: Maybe;
  delta_bytes: Maybe;
  peak_bytes: Maybe;
}
interface Slope {
  bytes_per_step: number;
  low_bytes_per_step: Maybe;
  high_bytes_per_step: Maybe;
  step_count: number;
  first_step: number;
  last_step: number;
}
interface Phase extends Who {
  name: string;
  process_name: string | null;
  depth: number;
  begin: When | null;
  end: When;
  duration_ns: Maybe;
  ended_by: string;
  held: Level;
  tree_uncertain: { begin: boolean; end: boolean };
  since_baseline_bytes: Maybe;
  roles: (Stretch & { name: string })[];
  gpu: Level | null;
}
interface Spread {
  known_count: number;
  sum_bytes: number;
  mean_bytes: Maybe;
  p95_bytes: number;
}
interface Measures {
  delta: Spread | null;
  end: Spread | null;
  peak_bytes: Maybe;
}
interface Repeated extends Who {
  name: string;
  /** `phase`, `instant` or `title`: only a phase has bands. */
  kind: string;
  process_name: string | null;
  process_count: number;
  count: number;
  begin: When;
  end: When;
  timed_count: number;
  total_ns: number;
  held: Measures;
  tree_delta_bytes: Maybe;
  gpu_delta_bytes: Maybe;
  since_baseline_bytes: Maybe;
  roles: (Measures & { name: string; slope: Slope | null })[];
  gpu: Measures | null;
  steps: {
    first: number;
    last: number;
    count: number;
    tree: Slope | null;
    own: Slope | null;
    gpu: Slope | null;
    grower: (Who & { slope: Slope }) | null;
  } | null;
}
interface Process {
  upid: number;
  pid: Maybe;
  parent_upid: Maybe;
  name: string;
  role: string | null;
  rank: string | null;
  comm: string;
  exe: string | null;
  cmdline: string | null;
  last_title: string | null;
  uid: Maybe;
  cgroup: string | null;
  container_id: string | null;
  start: When;
  end: When | null;
  ended: string;
  exit_code: Maybe;
  exit_signal: Maybe;
  oom_killed: boolean | null;
  peak: {
    rss_bytes: Maybe;
    bound: string | null;
    error_bytes: Maybe;
    source: string | null;
    at: When | null;
    series: Amounts;
  };
  growth: { bytes_per_hour: Maybe; verdict: string } | null;
}

// The object of `memtrace diff -f json`.
interface Change {
  before_bytes: Maybe;
  after_bytes: Maybe;
  change_bytes: Maybe;
  change_ratio: Maybe;
}
interface Comparison {
  name: string;
  process_count_before: Maybe;
  process_count_after: Maybe;
  kinds: { [kind: string]: { peak: Change; mean: Change; bytes_per_hour: Change } };
  gpu_peak: Change;
}
interface Diff {
  before: { path: string | null; hostname: string; duration_ns: number; process_count: number };
  after: { path: string | null; hostname: string; duration_ns: number; process_count: number };
  whole: Comparison;
  roles: Comparison[];
}

// The page of a run of many hosts, and parts of the object of `memtrace report ROOT -f json`.
interface RunDocument {
  format: string;
  version: number;
  title: string;
  answer: AnswerLine[];
  report: RunReport;
  curves: RunCurves | null;
  flags: Flag[];
  /** How long lists are that may have been cut. */
  counts: { hosts: number; roles: number; outliers: number; phases: number };
}
interface RunCurves extends WithTimes {
  start_unix_ns: Maybe;
  end_ns: number;
  stretch_ns: number;
  /** The best figure, what it was no less than, and no more than. */
  all: WrittenSeries[];
  hosts: HostCurve[];
  others: OtherHosts | null;
}
interface HostCurve {
  host: string;
  /** The most in each stretch, then the least. */
  held: WrittenSeries[];
}
interface OtherHosts {
  count: number;
  /** The highest of them, the median and the lowest. */
  held: WrittenSeries[];
}
interface WallTime {
  time: string | null;
  wall_ns: Maybe;
}
interface RunReport {
  memtrace_version: string;
  run: string;
  start: WallTime | null;
  end: WallTime | null;
  host_count: number;
  recording_count: number;
  expected_host_count: Maybe;
  peak: { at: WallTime } | null;
  hosts: HostLine[];
  outliers: Outlier[];
  ends: ChainLink[];
  end_count: number;
  roles: JobRole[];
  ranks: RankLine[];
  rank_count: number;
  phases: JobPhase[];
  problems: { host: string; rec: string | null; text: string }[];
}
interface HostLine {
  host: string;
  status: string;
  peak_bytes: Maybe;
  peak_at: WallTime | null;
  at_job_peak_bytes: Maybe;
  limit_bytes: Maybe;
  headroom_bytes: Maybe;
  left_ns: Maybe;
  end_count: number;
  largest: string | null;
}
interface Outlier {
  role: string;
  rank: string | null;
  host: string;
  measure: string;
  bytes: number;
  median_bytes: number;
  threshold_bytes: number;
  other_count: number;
}
interface ChainLink {
  host: string;
  at: WallTime | null;
  after_first_ns: Maybe;
  is_after_first: boolean;
  is_oom_kill: boolean;
  is_host: boolean;
  cgroup: string | null;
  name: string | null;
  pid: Maybe;
  how: string;
}
interface JobRole {
  name: string;
  host_count: number;
  process_count: number;
  highest_bytes: Maybe;
  highest_host: string | null;
  lowest_bytes: Maybe;
  median_bytes: Maybe;
  at_job_peak_bytes: Maybe;
  growing_count: number;
  bytes_per_hour: Maybe;
}
interface RankLine {
  role: string;
  rank: string;
  host: string;
  pid: Maybe;
  peak_bytes: Maybe;
  bytes_per_hour: Maybe;
  stage: string | null;
  bytes_per_step: Maybe;
}
interface JobPhase {
  name: string;
  count: number;
  process_count: number;
  host_count: number;
  median_mean_ns: number;
  slowest_mean_ns: number;
  slowest_host: string;
  slowest_rank: string | null;
  longest_ns: number;
}

// Known to browsers since 2023, and to newer type checkers.
declare class DecompressionStream implements GenericTransformStream {
  constructor(format: 'deflate-raw');
  readonly readable: ReadableStream;
  readonly writable: WritableStream;
}
