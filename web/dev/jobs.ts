// The jobs of the canned world.
import type { Job, JobEvent, JobState, ShortState } from '../src/api/types.ts';
import { LOG_EVERY, lossAt, type Run, rateAt, speedAt, top1At, valAt } from './curves.ts';
import { random } from './random.ts';
import { jobFile } from './yaml.ts';

export interface WorldJob {
  job: Job;
  history: JobEvent[];
  run: Run;
  step: number;
}

const OWNERS = ['ada', 'grace', 'linus', 'barbara', 'edsger', 'margaret'];
const MODELS = ['resnet50', 'resnet18', 'resnet101', 'convnext_tiny', 'vit_small_patch16'];
const SHORT: Record<string, string> = {
  resnet50: 'rn50',
  resnet18: 'rn18',
  resnet101: 'rn101',
  convnext_tiny: 'cnxt-t',
  vit_small_patch16: 'vit-s16',
};
const KINDS = ['lr-sweep', 'baseline', 'mixup', 'long', 'blurpool', 'ema', 'trivial', '176px'];

export const us = (seconds: number): string => String(Math.round(seconds * 1e6));
export const stateName = (state: ShortState): JobState => `JOB_STATE_${state}`;

const BLANK: Omit<Job, 'id' | 'name' | 'state' | 'submitted_us' | 'owner'> = {
  reason: 'REASON_CODE_SUBMITTED',
  reason_text: '',
  generation: '0',
  priority: 0,
  nodes: 1,
  ranks_per_node: 8,
  placements: [],
  started_us: '0',
  ended_us: '0',
  restarts: 0,
  job_yaml: '',
  last_event_number: '0',
  rank_exits: [],
  checkpoint_dir: '',
  project: '',
  queue_position: 0,
  time_limit_ms: '0',
  held_ms: '0',
  rerun_of: '0',
  max_nodes: 1,
  nodes_now: 0,
  resize_interval_ms: '0',
  after: [],
  not_before_us: '0',
  sweep_id: '0',
  sweep_settings: [],
  expected_start_us: '0',
  kind: 'JOB_KIND_TRAINING',
  per_node: false,
  device_hours: 0,
  cost: 0,
} as never;

export function blankJob(id: number, name: string, owner: string, submitted: number): Job {
  return {
    ...BLANK,
    id: String(id),
    name,
    state: 'JOB_STATE_QUEUED',
    submitted_us: us(submitted),
    owner,
  } as Job;
}

/** Sets what follows from the step that the run is at. */
export function setFigures(one: WorldJob): void {
  const { run, step, job } = one;
  const total = run.epochs * run.stepsPerEpoch;
  if (step < LOG_EVERY) return;
  const perStep = run.secondsPerStep;
  const devices = job.nodes * job.ranks_per_node;
  job.last_step = {
    step: String(step),
    epoch: step / run.stepsPerEpoch,
    loss: lossAt(run, step),
    top1: top1At(run, step),
    learning_rate: rateAt(run, step),
    rank_images_per_second: speedAt(run, step) / devices,
    images_per_second: speedAt(run, step),
    input_wait_ratio: 0.012,
    eta_seconds: (total - step) * perStep,
    total_steps: String(total),
    gradient_norm: 0.9,
    times: {
      steps: LOG_EVERY,
      input_seconds: perStep * 0.012 * LOG_EVERY,
      forward_seconds: perStep * 0.31 * LOG_EVERY,
      backward_seconds: perStep * 0.53 * LOG_EVERY,
      communication_seconds: perStep * 0.11 * LOG_EVERY,
      optimizer_seconds: perStep * 0.038 * LOG_EVERY,
      all_reduce_seconds: perStep * 0.2,
      all_reduce_hidden_ratio: 0.81,
    },
    // Reports and the like are the rest.
    loader: { interval_seconds: perStep * LOG_EVERY * 1.02 },
  };
  if (devices > 1) {
    job.last_step.ranks = {
      own_least_seconds: perStep * 0.82,
      own_mean_seconds: perStep * 0.85,
      own_most_seconds: perStep * (run.seed % 3 === 0 ? 1.04 : 0.89),
      wait_least_seconds: perStep * 0.02,
      wait_mean_seconds: perStep * 0.11,
      wait_most_seconds: perStep * 0.16,
      slowest_rank: run.seed % devices,
      slowest_input_seconds: perStep * 0.09,
      ranks: devices,
    };
  }
  const epoch = Math.floor(step / run.stepsPerEpoch);
  if (epoch > 0) {
    const val = valAt(run, epoch);
    job.last_epoch = {
      epoch,
      step: String(epoch * run.stepsPerEpoch),
      val_loss: val.loss,
      val_top1: val.top1,
      val_top5: val.top5,
      val_images: '50000',
      val_seconds: 9.2,
      total_epochs: run.epochs,
    };
    job.last_checkpoint = {
      path: `${job.checkpoint_dir}/g${job.generation}/step${epoch * run.stepsPerEpoch}`,
      step: String(epoch * run.stepsPerEpoch),
      generation: job.generation,
      size_bytes: '205824512',
      manifest_sha256: 'ab'.repeat(32),
    };
  }
}

export function addChange(
  one: WorldJob,
  at: number,
  to: ShortState,
  text: string,
  actor: string,
  reason = 'SUBMITTED',
): void {
  const { job, history } = one;
  const from = history[history.length - 1]?.state_change?.to ?? 'JOB_STATE_UNSPECIFIED';
  const number = Number(job.last_event_number) + 1;
  job.state = stateName(to);
  job.reason = `REASON_CODE_${reason}`;
  job.reason_text = text;
  job.last_event_number = String(number);
  history.push({
    number: String(number),
    time_us: us(at),
    generation: job.generation,
    state_change: { from, to: job.state, reason: job.reason, text, actor },
  });
}

/** Job `id`, as it was submitted; its state comes later. */
export function makeJob(id: number, now: number, count: number): WorldJob {
  const dice = random(id * 7919);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(dice() * list.length)]!;
  const model = pick(MODELS);
  const owner = pick(OWNERS);
  const nodes = pick([1, 1, 1, 1, 2, 2, 4]);
  const epochs = pick([16, 40, 90, 90]);
  const batch = nodes * 8 * pick([128, 256]);
  const lr = Number((((batch / 1024) * pick([0.8, 1, 2, 4])) / 2).toPrecision(3));
  const priority = pick([0, 0, 0, 0, 0, 10, 50]);
  const name = `${SHORT[model]}-${pick(KINDS)}-${id % 90}`;
  // The newest a moment ago, the oldest months.
  const submitted = now - 120 - ((count - id) / count) ** 1.6 * count * 400;
  const job = blankJob(id, name, owner, submitted);
  const options = {
    name,
    nodes,
    ranks: 8,
    model,
    epochs,
    batch,
    lr,
    decay: pick(['5.0e-5', '1.0e-4', '2.0e-5']),
    smoothing: pick(['0.1', '0.0']),
    priority,
  };
  Object.assign(job, { nodes, max_nodes: nodes, priority, job_yaml: jobFile(options) });
  job.checkpoint_dir = `s3://vision-runs/checkpoints/${name}-a1b2-${id}`;
  const run: Run = {
    seed: id,
    epochs,
    stepsPerEpoch: Math.round(1281167 / batch),
    begun: submitted + 40 + dice() * 3000,
    secondsPerStep: batch / (nodes * 8 * (2100 + 900 * dice())),
    batch,
    rate: lr,
    skill: 0.2 + 0.7 * dice(),
  };
  const one: WorldJob = { job, history: [], run, step: 0 };
  addChange(one, submitted, 'QUEUED', 'newly submitted', `user:${owner}`);
  return one;
}

/** Lets a job start on nodes. */
export function startJob(one: WorldJob, at: number, nodes: readonly string[]): void {
  const { job } = one;
  job.generation = String(Number(job.generation) + 1);
  job.nodes_now = nodes.length;
  job.started_us = us(at);
  job.queue_position = 0;
  job.placements = nodes.map((node, i) => ({
    node,
    first_rank: i * job.ranks_per_node,
    devices: Array.from({ length: job.ranks_per_node }, (_, d) => d),
    ranks: job.ranks_per_node,
  }));
  addChange(one, at, 'STARTING', `placed on ${nodes.join(', ')}`, 'scheduler', 'PLACED');
  addChange(
    one,
    at + 6,
    'RUNNING',
    `all ${nodes.length * job.ranks_per_node} ranks train`,
    `agent:${nodes[0]}`,
    'ALL_RANKS_STARTED',
  );
}

/** Ends a job at a share of its steps. */
export function endJob(one: WorldJob, how: 'COMPLETED' | 'FAILED' | 'CANCELLED', share: number): void {
  const { job, run } = one;
  one.step = Math.floor(run.epochs * run.stepsPerEpoch * share);
  const took = one.step * run.secondsPerStep + 30;
  setFigures(one);
  job.ended_us = us(run.begun + took);
  job.device_hours = (took / 3600) * job.nodes * job.ranks_per_node;
  job.cost = job.device_hours * 4.1;
  const texts = {
    COMPLETED: `trained to the last step; top-1 ${((job.last_epoch?.val_top1 as number) * 100 || 0).toFixed(2)} %`,
    FAILED: `rank 3 on node gpu-${(run.seed % 12) + 1} failed with exit code 1 at step ${one.step}, backward pass; its log says "CUDA out of memory"`,
    CANCELLED: `cancelled by ${job.owner}`,
  };
  const reasons = { COMPLETED: 'FINISHED', FAILED: 'RANK_FAILED', CANCELLED: 'CANCELLED_BY_USER' };
  addChange(
    one,
    run.begun + took,
    how,
    texts[how],
    how === 'CANCELLED' ? `user:${job.owner}` : 'agent:gpu-1',
    reasons[how],
  );
  if (how === 'FAILED') {
    job.rank_exits = [
      {
        rank: 3,
        exit_code: 1,
        signal: 0,
        last_error_line: 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB',
        program: false,
        told: false,
      },
    ];
  }
}
