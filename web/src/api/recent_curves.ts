import { ApiError, api } from './client.ts';
import { epoch } from './live.ts';
import type { LiveStep, MetricSeries } from './types.ts';

/** Training losses and top-1 by job, the last of them as the stream told: for the small curves of the table. */
export const recentLoss = new Map<string, number[]>();
export const recentTop1 = new Map<string, number[]>();

const CURVES = [
  ['loss', recentLoss],
  ['top1', recentTop1],
] as const;
const RECENT = 40;
const AGAIN_MS = 1000;
const MOST_AGAIN_MS = 30_000;

/** How many look at a job's curves, and of those jobs the ones that are still to be loaded, in turn. */
const looked = new Map<string, number>();
const due = new Set<string>();
/** Since the last break of the connection. */
const loaded = new Set<string>();
/** The job whose curves are awaited, and what the stream told of it meanwhile. */
let awaited = '';
let since: LiveStep[] = [];
let loads = false;
let changed = () => {};

/** Calls `draw` when curves were loaded. After a break of the connection those that are still looked at are loaded anew. */
export function followCurves(draw: () => void): void {
  changed = draw;
  epoch.listen(() => {
    loaded.clear();
    for (const id of looked.keys()) want(id);
  });
}

/** Loads a job's small curves, once however many look at them; one job after the other. Returns what ends the look: what
 * nobody looks at any more when its turn comes is not loaded. */
export function lookAtCurves(id: string): () => void {
  looked.set(id, (looked.get(id) ?? 0) + 1);
  want(id);
  return () => {
    const left = looked.get(id)! - 1;
    if (left > 0) looked.set(id, left);
    else {
      looked.delete(id);
      due.delete(id);
    }
  };
}

function want(id: string): void {
  if (loaded.has(id)) return;
  due.add(id);
  if (!loads) void loadDue();
}

export function noteStep(step: LiveStep): void {
  if (step.job_id === awaited) since.push(step);
  for (const [name, recent] of CURVES)
    keep(recent, step.job_id, [...(recent.get(step.job_id) ?? []), Number(step[name])]);
}

/** The job was deleted. */
export function dropCurves(id: string): void {
  for (const [, recent] of CURVES) recent.delete(id);
  due.delete(id);
  if (awaited === id) awaited = '';
}

async function loadDue(): Promise<void> {
  loads = true;
  let wait = AGAIN_MS;
  for (let [id] = due; id !== undefined; [id] = due) {
    due.delete(id);
    loaded.add(id);
    if (await load(id)) {
      wait = AGAIN_MS;
      continue;
    }
    loaded.delete(id);
    if (looked.has(id)) due.add(id);
    await new Promise((passed) => setTimeout(passed, wait));
    wait = Math.min(wait * 2, MOST_AGAIN_MS);
  }
  loads = false;
}

/** False where it is to be tried again; what is known stays then. */
async function load(id: string): Promise<boolean> {
  awaited = id;
  since = [];
  const names = CURVES.map(([name]) => name);
  try {
    const { series } = await api.metrics(id, names, 'step', { points: RECENT });
    if (awaited === id) fill(id, series);
    return true;
  } catch (error) {
    return awaited !== id || isRefusal(error);
  } finally {
    awaited = '';
  }
}

/** With the history, which has what the stream told before it was asked for. */
function fill(id: string, series: readonly MetricSeries[]): void {
  for (const [name, recent] of CURVES) {
    const points = series.find((one) => one.name === name)?.points ?? [];
    const end = Number(points.at(-1)?.[0] ?? Number.NEGATIVE_INFINITY);
    const after = since.filter((step) => Number(step.step) > end).map((step) => Number(step[name]));
    keep(recent, id, [...points.map((point) => Number(point[3])), ...after]);
  }
  changed();
}

function keep(recent: Map<string, number[]>, id: string, values: number[]): void {
  recent.set(id, values.slice(-RECENT));
}

/** What imgd would refuse again. */
function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && [400, 401, 403, 404].includes(error.status);
}
