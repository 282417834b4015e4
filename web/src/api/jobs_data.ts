import { type JobRow, rowOf, toldNow } from '../lib/jobs.ts';
import { isLater, withStep } from '../lib/steps.ts';
import { Store } from '../lib/store.ts';
import { ApiError, api, onSession } from './client.ts';
import { epoch, isTold, onceTold, onLive } from './live.ts';
import { dropCurves, followCurves, noteStep } from './recent_curves.ts';
import type { Job, JobGone, LiveStep } from './types.ts';
import { serverWarning } from './warning.ts';

/** All jobs that imgd keeps, as far as they are loaded. `rows` is a new array at each change. */
export interface JobsState {
  rows: JobRow[];
  loading: boolean;
  /** The first page came at least once. */
  ready: boolean;
  error: string;
}

const EMPTY: JobsState = { rows: [], loading: true, ready: false, error: '' };
export const jobsState = new Store<JobsState>(EMPTY);

const FIRST_PAGE = 200;
const PAGE = 1000;
const EVERY_MS = 250;
const AGAIN_MS = 1000;
const MOST_AGAIN_MS = 30_000;

const rows = new Map<string, JobRow>();
/** Deleted since the pages began to be read: an older page may still have them. */
const gone = new Set<string>();
/** Told by the stream since then, as a whole or a step of it: what a page has of them may be older. */
const told = new Set<string>();
const toldSteps = new Map<string, LiveStep>();
let started = false;
let drawing = false;
let drawn = 0;
let run = 0;

/** Draws at most four times a second, however much comes: each time all rows are filtered and sorted. */
function publish(): void {
  if (drawing) return;
  drawing = true;
  const draw = () => {
    drawing = false;
    drawn = Date.now();
    jobsState.set({ ...jobsState.value, rows: [...rows.values()] });
  };
  setTimeout(draw, document.hidden ? 1000 : Math.max(drawn + EVERY_MS - Date.now(), 0));
}

export function takeJob(job: Job): void {
  // Of what came before the stream tells, it may not tell the next change.
  if (isTold()) told.add(job.id);
  rows.set(job.id, rowOf(job));
  publish();
}

/** It was deleted. */
export function dropJob(id: string): void {
  gone.add(id);
  told.delete(id);
  dropCurves(id);
  if (rows.delete(id)) publish();
}

function takeStep(step: LiveStep): void {
  const row = rows.get(step.job_id);
  if (!row || !isLater(step, row.job, true)) return;
  rows.set(step.job_id, rowOf(withStep(row.job, step)));
  toldSteps.set(step.job_id, step);
  noteStep(step);
  publish();
}

async function load(): Promise<void> {
  const mine = ++run;
  for (const since of [gone, told, toldSteps]) since.clear();
  for (let wait = AGAIN_MS; mine === run; wait = Math.min(wait * 2, MOST_AGAIN_MS)) {
    jobsState.set({ ...jobsState.value, loading: true });
    try {
      const untold = await readAll(mine);
      if (untold > 0) await readAgain(untold, mine);
      return;
    } catch (error) {
      if (mine !== run) return;
      const text = error instanceof ApiError ? error.message : String(error);
      jobsState.set({ ...jobsState.value, loading: false, error: text });
      // With another token all is read anew.
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return;
      await new Promise((passed) => setTimeout(passed, wait));
    }
  }
}

/** All pages; how many were asked for before the stream told what happens. */
async function readAll(mine: number): Promise<number> {
  const seen = new Set<string>();
  let token = '';
  let untold = 0;
  do {
    if (!isTold()) untold += 1;
    const page = await api.jobs(token, token ? PAGE : FIRST_PAGE);
    if (mine !== run) return 0;
    takePage(page.jobs, seen);
    token = page.next_page_token;
    serverWarning.set(page.warning);
    jobsState.set({ rows: [...rows.values()], loading: token !== '', ready: true, error: '' });
  } while (token);
  for (const id of rows.keys()) if (!seen.has(id) && !told.has(id)) rows.delete(id);
  publish();
  return untold;
}

function takePage(jobs: readonly Job[], seen: Set<string>): void {
  for (const job of jobs) {
    if (gone.has(job.id)) continue;
    seen.add(job.id);
    if (told.has(job.id)) continue;
    const step = toldSteps.get(job.id);
    rows.set(job.id, rowOf(step && isLater(step, job, true) ? withStep(job, step) : job));
  }
}

/** The first pages, which were asked for before the stream told what happens. The list is whole meanwhile: where that fails it
 * is no fault to show, and is tried again. */
async function readAgain(pages: number, mine: number): Promise<void> {
  await new Promise<void>((begun) => (isTold() ? begun() : onceTold(begun)));
  for (let wait = AGAIN_MS; mine === run; wait = Math.min(wait * 2, MOST_AGAIN_MS)) {
    try {
      await readFirst(pages, mine);
      return;
    } catch {
      await new Promise((passed) => setTimeout(passed, wait));
    }
  }
}

async function readFirst(pages: number, mine: number): Promise<void> {
  const before = [...rows.keys()];
  const seen = new Set<string>();
  let token = '';
  for (let left = pages; left > 0 && (token || left === pages); left -= 1) {
    const page = await api.jobs(token, token ? PAGE : FIRST_PAGE);
    if (mine !== run) return;
    takePage(page.jobs, seen);
    token = page.next_page_token;
  }
  // Those are the newest, without a gap.
  const oldest = token ? Math.min(...[...seen].map(Number)) : 0;
  for (const id of before) if (!seen.has(id) && !told.has(id) && Number(id) >= oldest) rows.delete(id);
  publish();
}

/** Loads the jobs once, and follows them from then on. */
export function followJobs(): void {
  if (started) return;
  started = true;
  onLive('job', (data) => takeJob(toldNow(data as Job)));
  onLive('step', (data) => takeStep(data as LiveStep));
  onLive('job_gone', (data) => dropJob((data as JobGone).id));
  followCurves(publish);
  epoch.listen(() => void load());
  onSession(() => void load());
  void load();
}
