import { num } from '../lib/format.ts';
import { SmallCurve } from '../lib/small_curve.ts';
import { ApiError, api } from './client.ts';
import { epoch } from './live.ts';
import type { LiveStep, MetricSeries } from './types.ts';

/** Training losses and top-1 by job, over the whole run: for the small curves of the table. */
export const recentLoss = new Map<string, SmallCurve>();
export const recentTop1 = new Map<string, SmallCurve>();

const CURVES = [
  ['loss', recentLoss],
  ['top1', recentTop1],
] as const;
const MOST_POINTS = 40;
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
  for (const [name, curves] of CURVES) {
    const curve = curves.get(step.job_id) ?? new SmallCurve(MOST_POINTS);
    curve.add(Number(step.step), Number(step[name]));
    curves.set(step.job_id, curve);
  }
}

/** The job was deleted. */
export function dropCurves(id: string): void {
  for (const [, curves] of CURVES) curves.delete(id);
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
    const { series } = await api.metrics(id, names, 'step', { points: MOST_POINTS });
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
  for (const [name, curves] of CURVES) {
    const points = series.find((one) => one.name === name)?.points ?? [];
    const end = Number(points.at(-1)?.[0] ?? Number.NEGATIVE_INFINITY);
    const curve = new SmallCurve(
      MOST_POINTS,
      points.map((point) => ({ step: Number(point[0]), value: num(point[3]) })),
    );
    for (const step of since) if (Number(step.step) > end) curve.add(Number(step.step), Number(step[name]));
    curves.set(id, curve);
  }
  changed();
}

/** What imgd would refuse again. */
function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && [400, 401, 403, 404].includes(error.status);
}
