import type { Job, ShortState } from '../api/types.ts';
import { flatYaml } from './flat_yaml.ts';
import { ms, num, shortEnum } from './format.ts';

/** What the table of jobs shows of one, as numbers: NaN for what it does not have. */
export interface JobRow {
  id: number;
  job: Job;
  state: ShortState;
  name: string;
  owner: string;
  progress: number;
  eta: number;
  speed: number;
  loss: number;
  /** Of the newest validation: that of training is another figure. */
  top1: number;
  nodes: number;
  age: number;
  submitted: number;
  cost: number;
  priority: number;
  why: string;
  /** All that the search looks at, in lower case. */
  text: string;
}

export const LIVE_STATES: readonly ShortState[] = ['QUEUED', 'STARTING', 'RUNNING', 'PREEMPTING', 'PAUSED'];

/** While it has devices. */
export const HOLDS: readonly ShortState[] = ['STARTING', 'RUNNING', 'PREEMPTING'];

export function stateOf(job: Job): ShortState {
  return shortEnum(job.state, 'JOB_STATE_') as ShortState;
}

export function isOver(state: ShortState): boolean {
  return state === 'COMPLETED' || state === 'FAILED' || state === 'CANCELLED';
}

/** Whether it has devices: its ranks are there, and not only were. */
export function holdsDevices(job: Job): boolean {
  return HOLDS.includes(stateOf(job));
}

/** Whether a job may have the number: they count from 1, and none gets beyond what pages can count. */
export function isJobNumber(text: string): boolean {
  return /^\d+$/.test(text) && Number(text) > 0 && Number.isSafeInteger(Number(text));
}

/** The most that a priority may be, and with a minus the least. */
const MOST_PRIORITY = 1000;

/** What is wrong with a priority as somebody wrote it; empty when nothing is. */
export function faultOfPriority(text: string): string {
  const good = /^[+-]?\d+$/.test(text.trim()) && Math.abs(Number(text)) <= MOST_PRIORITY;
  return good ? '' : `A whole number from -${MOST_PRIORITY} to ${MOST_PRIORITY} is allowed.`;
}

/** Share of the run's steps that are done, from 0 to 1; NaN where nobody knows. */
export function progressOf(job: Job): number {
  const total = num(job.last_step?.total_steps);
  if (stateOf(job) === 'COMPLETED' && !endedEarly(job)) return 1;
  const done = Math.max(num(job.last_step?.step), endedEarly(job) ? num(job.last_epoch?.step) || 0 : 0);
  return total > 0 ? Math.min(done / total, 1) : Number.NaN;
}

/** Completed, but before its last step: one of the worst of its sweep, or by early_stop. The end of a run that goes on to
 * its last step is always validated. */
function endedEarly(job: Job): boolean {
  if (job.external || stateOf(job) !== 'COMPLETED') return false;
  const validated = num(job.last_epoch?.step);
  return (
    job.reason === 'REASON_CODE_HALVED' || (validated > 0 && validated < num(job.last_step?.total_steps))
  );
}

/** Epochs of the whole run, by its file, or by its last validation where that does not say; NaN where nobody knows. */
export function totalEpochs(job: Job): number {
  return (
    Number(flatYaml(job.job_yaml ?? '').get('train.epochs')) ||
    num(job.last_epoch?.total_epochs) ||
    Number.NaN
  );
}

/** How long it has run, over all its starts and without the time between them, seconds; NaN before the first. */
export function ranFor(job: Job, now: number): number {
  const started = ms(job.started_us);
  if (!Number.isFinite(started)) return Number.NaN;
  const state = stateOf(job);
  if (job.external) return ((isOver(state) ? ms(job.ended_us) : now) - started) / 1000;
  return num(job.held_ms) / 1000 + (holdsDevices(job) ? Math.max(now - started, 0) / 1000 : 0);
}

/** With the moment at which it is told, for what goes on from there. */
export function toldNow(job: Job): Job {
  return { ...job, told_ms: Date.now() };
}

/** Time that it held devices, times their number, hours: what imgd told, and of what runs what it has held since. */
export function deviceHours(job: Job, now: number): number {
  if (!holdsDevices(job) || job.external) return job.device_hours;
  const devices = (job.nodes_now || job.nodes) * job.ranks_per_node;
  return job.device_hours + (Math.max(now - (job.told_ms ?? now), 0) / 3_600_000) * devices;
}

/** What that costs: what imgd told, for as much longer as it has held them since. */
export function costOf(job: Job, now: number): number {
  return job.device_hours > 0 ? (job.cost * deviceHours(job, now)) / job.device_hours : job.cost;
}

/** Whether it ever had devices: a start may have failed before its first step. */
export function everStarted(job: Job): boolean {
  return Boolean(job.external) || num(job.generation) > 0;
}

/** Until its end at the speed of now; NaN while it does not run, and where nobody knows, of which imgd says 0. */
export function secondsLeft(job: Job): number {
  return (stateOf(job) === 'RUNNING' && num(job.last_step?.eta_seconds)) || Number.NaN;
}

/** Images a second; NaN while it does not run, and for a start that has reported nothing yet, of which imgd says 0. */
export function speedOf(job: Job): number {
  return (stateOf(job) === 'RUNNING' && num(job.last_step?.images_per_second)) || Number.NaN;
}

export function rowOf(job: Job): JobRow {
  return {
    id: Number(job.id),
    job,
    state: stateOf(job),
    name: job.name,
    owner: job.owner,
    progress: progressOf(job),
    eta: secondsLeft(job),
    speed: speedOf(job),
    loss: num(job.last_step?.loss),
    top1: num(job.last_epoch?.val_top1),
    nodes: job.nodes_now || job.nodes,
    age: ms(job.submitted_us),
    submitted: ms(job.submitted_us),
    cost: costOf(job, Date.now()),
    priority: job.priority,
    why: job.reason_text,
    text: `${job.id} ${job.name} ${job.owner} ${job.reason_text} ${job.placements.map((p) => p.node).join(' ')}`.toLowerCase(),
  };
}

export const SORT_KEYS = [
  'id', 'state', 'name', 'owner', 'progress', 'eta', 'speed', 'loss', 'top1', 'nodes', 'age', 'cost', 'priority',
] as const; // biome-ignore format: one line reads better
export type SortKey = (typeof SORT_KEYS)[number];

export interface JobFilter {
  states: ReadonlySet<ShortState>;
  owner: string;
  text: string;
}

/** All words of the search have to be in a row; "owner" and states narrow it further. */
export function filterJobs(rows: readonly JobRow[], filter: JobFilter): JobRow[] {
  const parts = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(
    (row) =>
      (filter.states.size === 0 || filter.states.has(row.state)) &&
      (filter.owner === '' || row.owner === filter.owner) &&
      parts.every((part) => row.text.includes(part)),
  );
}

const STATE_ORDER: Record<ShortState, number> = {
  // What is over is one group, newest first.
  RUNNING: 0, STARTING: 1, PREEMPTING: 2, QUEUED: 3, PAUSED: 4, FAILED: 5,
  CANCELLED: 5,
  COMPLETED: 5,
}; // biome-ignore format: one line reads better

/** Sorts a copy; what has no figure comes last whichever way, and equals go by number, newest first. */
export function sortJobs(rows: readonly JobRow[], key: SortKey, descending: boolean): JobRow[] {
  const sign = descending ? -1 : 1;
  const value = (row: JobRow): number | string =>
    key === 'state' ? STATE_ORDER[row.state] : key === 'age' ? -row.age : row[key];
  return [...rows].sort((a, b) => {
    const x = value(a);
    const y = value(b);
    const none = Number(Number.isNaN(x)) - Number(Number.isNaN(y));
    if (none !== 0) return none;
    const order = typeof x === 'string' ? x.localeCompare(y as string) : x - (y as number);
    return (order || 0) !== 0 ? order * sign : b.id - a.id;
  });
}

export function countStates(rows: readonly JobRow[]): Map<ShortState, number> {
  const out = new Map<ShortState, number>();
  for (const row of rows) out.set(row.state, (out.get(row.state) ?? 0) + 1);
  return out;
}
