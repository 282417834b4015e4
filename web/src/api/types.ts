// The messages of proto/imgd/v1 as proto3 JSON has them: the proto's names, 64-bit numbers as text, enums by name.

/** A 64-bit number, as text. */
export type Int64 = string;
/** Numbers that JSON can't write come as text: "NaN", "Infinity". */
export type Double = number | string;

export const JOB_STATES = [
  'QUEUED',
  'STARTING',
  'RUNNING',
  'PREEMPTING',
  'PAUSED',
  'COMPLETED',
  'FAILED',
  'CANCELLED',
] as const;
export type ShortState = (typeof JOB_STATES)[number];
export type JobState = `JOB_STATE_${ShortState | 'UNSPECIFIED'}`;

export interface Placement {
  node: string;
  first_rank: number;
  devices: number[];
  ranks: number;
}

export interface StepTimes {
  steps: number;
  input_seconds: number;
  forward_seconds: number;
  backward_seconds: number;
  communication_seconds: number;
  optimizer_seconds: number;
  all_reduce_seconds: number;
  all_reduce_hidden_ratio: number;
}

export interface RankSpread {
  own_least_seconds: number;
  own_mean_seconds: number;
  own_most_seconds: number;
  wait_least_seconds: number;
  wait_mean_seconds: number;
  wait_most_seconds: number;
  slowest_rank: number;
  slowest_input_seconds: number;
  ranks: number;
}

export interface StepMetrics {
  step: Int64;
  epoch: Double;
  loss: Double;
  top1: Double;
  learning_rate: Double;
  rank_images_per_second: Double;
  images_per_second: Double;
  input_wait_ratio: Double;
  eta_seconds: Double;
  total_steps: Int64;
  gradient_norm: Double;
  times?: StepTimes;
  loader?: { interval_seconds: Double };
  ranks?: RankSpread;
  devices?: DeviceSpread;
}

/** How busy the job's GPUs were, from 0 to 1; absent where none could be read. */
export interface DeviceSpread {
  busy_least_ratio: Double;
  busy_mean_ratio: Double;
  busy_most_ratio: Double;
}

export interface EpochMetrics {
  epoch: number;
  step: Int64;
  val_loss: Double;
  val_top1: Double;
  val_top5: Double;
  val_images: Int64;
  val_seconds: Double;
  total_epochs: number;
}

export interface CheckpointWritten {
  path: string;
  step: Int64;
  generation: Int64;
  size_bytes: Int64;
  manifest_sha256: string;
  write_seconds?: number;
}

export interface RankExit {
  rank: number;
  exit_code: number;
  signal: number;
  last_error_line: string;
  program: boolean;
  told: boolean;
}

export interface Dependency {
  job_id: Int64;
  job_name: string;
  when: 'AFTER_END_UNSPECIFIED' | 'AFTER_END_OK' | 'AFTER_END_ANY' | 'AFTER_END_FAILED';
  ended: JobState;
}

export interface Job {
  /** When this page was told of it; no part of the answer. */
  told_ms?: number;
  id: Int64;
  name: string;
  state: JobState;
  reason: string;
  reason_text: string;
  generation: Int64;
  priority: number;
  nodes: number;
  ranks_per_node: number;
  placements: Placement[];
  submitted_us: Int64;
  started_us: Int64;
  ended_us: Int64;
  last_step?: StepMetrics;
  last_epoch?: EpochMetrics;
  last_checkpoint?: CheckpointWritten;
  restarts: number;
  owner: string;
  project: string;
  job_yaml: string;
  last_event_number: Int64;
  rank_exits: RankExit[];
  checkpoint_dir: string;
  queue_position: number;
  external?: { hosts: string[]; last_heard_us: Int64; token: string };
  time_limit_ms: Int64;
  held_ms: Int64;
  rerun_of: Int64;
  max_nodes: number;
  nodes_now: number;
  after: Dependency[];
  not_before_us: Int64;
  sweep_id: Int64;
  sweep_settings: { name: string; value: string }[];
  expected_start_us: Int64;
  kind: 'JOB_KIND_UNSPECIFIED' | 'JOB_KIND_TRAINING' | 'JOB_KIND_COMMAND' | 'JOB_KIND_CONVERSION';
  per_node: boolean;
  device_hours: number;
  cost: number;
}

export interface StateChange {
  from: JobState;
  to: JobState;
  reason: string;
  text: string;
  actor: string;
}

export interface JobEvent {
  number: Int64;
  time_us: Int64;
  generation: Int64;
  state_change?: StateChange;
}

export interface GetJobResponse {
  job: Job;
  history: JobEvent[];
  warning: string;
}

export interface ListJobsResponse {
  jobs: Job[];
  next_page_token: string;
  warning: string;
}

export interface SubmitJobResponse {
  job: Job;
  warnings: string[];
  existed: boolean;
  sweep?: { id: Int64; name: string; members: number; max_running: number };
}

export interface DeviceReading {
  busy_ratio: number;
  memory_used_bytes: Int64;
  power_watts: number;
  temperature_celsius: number;
  error: string;
  sm_clock_hertz: number;
  throttled_by: string;
  xid: number;
}

export interface Device {
  index: number;
  model: string;
  uuid: string;
  memory_bytes: Int64;
  job_id: Int64;
  reading?: DeviceReading;
  held_text: string;
}

export interface Node {
  name: string;
  state: 'NODE_STATE_UNSPECIFIED' | 'NODE_STATE_READY' | 'NODE_STATE_UNREACHABLE' | 'NODE_STATE_LOST';
  agent_version: string;
  address: string;
  devices: Device[];
  last_heartbeat_us: Int64;
  /** Ready, but its agent is away, for a short time yet. */
  disconnected?: boolean;
  reason_text: string;
  joined_us: Int64;
  labels: Record<string, string>;
  set_aside?: {
    drain: boolean;
    reason: string;
    actor: string;
    since_us: Int64;
    empty: boolean;
    by_imgd: boolean;
  };
  struck_by: Int64[];
  problems: { kind: string; text: string }[];
  price_per_hour: number;
  notice?: { at_us: Int64; action: string };
  /** Mean of its devices in each of the last minutes; in lists alone, not in what comes by itself. */
  recent_busy_ratios?: (number | 'NaN')[];
}

export interface NodeRun {
  job_id: Int64;
  job_name: string;
  generation: Int64;
  first_rank: number;
  ranks: number;
  started_us: Int64;
  ended_us: Int64;
  ended_text: string;
}

export interface BudgetUsage {
  period: string;
  used: number;
  most: number;
  since_us: Int64;
  until_us: Int64;
}

export interface AccountUsage {
  kind: 'ACCOUNT_KIND_UNSPECIFIED' | 'ACCOUNT_KIND_USER' | 'ACCOUNT_KIND_PROJECT';
  name: string;
  devices: number;
  most_devices: number;
  queued: number;
  most_queued: number;
  device_hours?: BudgetUsage;
  spend?: BudgetUsage;
  recent_device_hours: number;
  /** What it is to have beside others; 1 where nothing is said. */
  share: number;
}

export interface ListUsageResponse {
  accounts: AccountUsage[];
  currency: string;
  warning: string;
}

export interface ReportedCheckpoint {
  checkpoint: CheckpointWritten;
  time_us: Int64;
  presence: `CHECKPOINT_PRESENCE_${'UNSPECIFIED' | 'HERE' | 'GONE'}`;
  /** What its files are asked for by. */
  name: string;
  files: { name: string; size_bytes: Int64 }[];
  /** Why imgd can't see it; empty where it can. */
  unseen: string;
  /** What validation found; absent where there was none. */
  val_top1?: number;
  /** Why it stays: "last", "best", "every 10 epochs", "pinned". */
  kept_as: string[];
}

/** Some images of a validation; their pictures have addresses of their own. */
export interface SampleImages {
  step: Int64;
  epoch: Double;
  images: {
    name: string;
    class_name: string;
    answer: string;
    probability: Double;
    loss: Double;
    worst: boolean;
    right: boolean;
  }[];
}

export interface ClassFigures {
  step: Int64;
  epoch: Double;
  classes: { label: number; name: string; images: Int64; top1: Int64; top5: Int64 }[];
  mistakes: { name: string; answer: string; images: number }[];
  worst: { name: string; class_name: string; answer: string; probability: number; loss: number }[];
  /** By label and answer; empty for many classes. */
  confusion: number[];
  class_count: number;
}

/** An amount for each stretch that was asked for. */
export interface OwnerUsage {
  owner: string;
  device_hours: number[];
  cost: number[];
}

export interface Dataset {
  name: string;
  address: string;
  images: Int64;
  classes: number;
  owner: string;
  registered_us: Int64;
  made_by: Int64;
  /** Absent while no conversion runs. */
  progress?: DatasetProgress;
  /** 0: never. */
  verified_us: Int64;
  broken: Int64;
  /** When it was last told what the set holds; 0: never. */
  described_us: Int64;
}

export interface DatasetProgress {
  job_id: Int64;
  doing: string;
  part: string;
  done: Int64;
  total: Int64;
  shards_done: Int64;
  shards: Int64;
  bytes: Int64;
  time_us: Int64;
}

export interface DatasetFinding {
  place: string;
  reason: string;
}

export interface DatasetPart {
  name: string;
  images: Int64;
  class_count: number;
  /** By label; of very many the first. */
  classes: { name: string; images: Int64 }[];
}

/** What was found by who looked at a set; its pictures have addresses of their own. */
export interface DatasetContents {
  time_us: Int64;
  version: string;
  told_by: string;
  parts: DatasetPart[];
  samples: { part: string; name: string; label: number; class_name: string }[];
  left_out: Int64;
  left_out_images: DatasetFinding[];
}

export interface DatasetVerification {
  time_us: Int64;
  version: string;
  told_by: string;
  images: Int64;
  decoded: Int64;
  shards: Int64;
  checksums: Int64;
  indexes: Int64;
  broken: Int64;
  findings: DatasetFinding[];
  doubtful: Int64;
}

export interface GetDatasetResponse {
  dataset: Dataset;
  facts: { contents?: DatasetContents; verification?: DatasetVerification };
}

export interface LogLine {
  rank: number;
  line_number: Int64;
  time_us: Int64;
  is_stderr: boolean;
  text: string;
  generation: Int64;
}

export interface LogPage {
  lines: LogLine[];
  truncated: boolean;
  generation: Int64;
  /** Where it goes on: opaque. */
  next: string;
  previous: string;
}

/** One decision of the record (event.proto). */
export interface Decision {
  number: Int64;
  time_us: Int64;
  actor: string;
  reason: string;
  text: string;
  job_id: Int64;
  generation: Int64;
  from: JobState;
  to: JobState;
  node: string;
}

/** GET /api/v1/jobs/{job}/metrics: each point is [x, least, most, last] of the stretch that it stands for, and the
 * smoothed value where that was asked for; x is in steps, epochs, images, or seconds since 1970. */
export type MetricPoint = [number, number, number, number, number?];
export interface MetricSeries {
  name: string;
  points: MetricPoint[];
  mean?: number | null;
}
export interface MetricsResponse {
  images_per_epoch: number;
  series: MetricSeries[];
  /** Where it was asked for, and there are some. */
  ranks?: RankStretch[];
}
/** A stretch of a start's steps: seconds a step of each rank. */
export interface RankStretch {
  generation: Int64;
  first_step: Int64;
  steps: Int64;
  own_seconds: Double[];
  wait_seconds: Double[];
}
export type MetricAxis = 'step' | 'epoch' | 'images' | 'time';

/** `event: job_gone` of the stream: it was deleted, by somebody or by what is kept for how long. */
export interface JobGone {
  id: Int64;
}

/** `event: step` of the stream. */
export interface LiveStep
  extends Partial<Pick<StepMetrics, 'times' | 'loader' | 'ranks' | 'devices' | 'total_steps'>> {
  job_id: Int64;
  time_us?: Int64;
  generation: Int64;
  step: Int64;
  epoch: Double;
  loss: Double;
  top1: Double;
  images_per_second: Double;
  learning_rate: Double;
  eta_seconds: Double;
}
