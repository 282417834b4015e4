import { toldNow } from '../lib/jobs.ts';
import { type Answer, ask, takeAhead } from './ahead.ts';
import { jobPath, type MetricRange, metricsPath, query, seg } from './paths.ts';
import type {
  ClassFigures,
  Dataset,
  Decision,
  GetDatasetResponse,
  GetJobResponse,
  ListJobsResponse,
  ListUsageResponse,
  LogPage,
  MetricAxis,
  MetricsResponse,
  Node,
  NodeRun,
  OwnerUsage,
  RankStretch,
  ReportedCheckpoint,
  SampleImages,
  SubmitJobResponse,
} from './types.ts';

/** One fault of a request; line and column count from 1 and are 0 where the fault has no place in a file. */
export interface Fault {
  message: string;
  line: number;
  column: number;
  hint: string;
}

/** What imgd refused, or why it could not be asked (status 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly faults: Fault[];
  constructor(status: number, code: string, faults: Fault[]) {
    super(faults.map((fault) => fault.message).join('\n'));
    this.status = status;
    this.code = code;
    this.faults = faults;
  }
}

// The browser keeps the token as a cookie that no script can read; pages only know that a session began anew.
let session = 0;
const sessionListeners = new Set<(session: number) => void>();

/** Number of the session that began last; 0: none did since the page was loaded. */
export function currentSession(): number {
  return session;
}

const LOGGED_IN = 'imgd.logged-in';

/** Of the session that a token was entered for in this browser, unless that was taken back since; it may have run out. */
function loggedIn(): string | null {
  try {
    return localStorage.getItem(LOGGED_IN);
  } catch {
    return session > 0 ? String(session) : null;
  }
}

export function isLoggedIn(): boolean {
  return loggedIn() !== null;
}

function keepLoggedIn(which: string | null): void {
  try {
    if (which !== null) localStorage.setItem(LOGGED_IN, which);
    else localStorage.removeItem(LOGGED_IN);
  } catch {
    // Without storage it is known as long as the page lasts.
  }
}

/** Begins a session with a token; throws where imgd does not take it. */
export async function logIn(token: string): Promise<void> {
  await call('POST', '/session', {}, undefined, { authorization: `Bearer ${token.trim()}` });
  session = Date.now();
  keepLoggedIn(String(session));
  for (const listener of sessionListeners) listener(session);
}

let loggedOut = false;

/** Ends the session, in all tabs; what this page has read goes with the page. Throws where imgd can't be reached. */
export async function logOut(): Promise<void> {
  const before = loggedIn();
  let ended = true;
  try {
    await call('DELETE', '/session');
  } catch (error) {
    if (!(error instanceof ApiError) || error.status === 0) throw error;
    ended = false;
  }
  loggedOut = true;
  keepLoggedIn(null);
  // Where imgd failed it takes the cookie back or not: who is still let in has the button once more.
  if (!ended) keepLoggedIn(before);
  location.assign('/');
}

/** Leaves the page when another tab has logged out, and where the browser brings one back that it kept and whose session was
 * ended meanwhile. */
export function followLogOut(): void {
  window.addEventListener('storage', (event) => {
    if (event.key !== LOGGED_IN || event.newValue !== null) return;
    loggedOut = true;
    location.assign('/');
  });
  let left: string | null = null;
  window.addEventListener('pagehide', () => {
    left = loggedIn();
  });
  window.addEventListener('pageshow', (event) => {
    if (!event.persisted || (!loggedOut && (left === null || loggedIn() === left))) return;
    document.body.replaceChildren();
    location.replace('/');
  });
}

/** Returns what ends that. */
export function onSession(listener: (session: number) => void): () => void {
  sessionListeners.add(listener);
  return () => sessionListeners.delete(listener);
}

/** The faults that an answer's body tells of: {"error": {...}}, each of them in `details` where there may be several. */
export function faultsOf(status: number, body: unknown): { code: string; faults: Fault[] } {
  const outer = (body ?? {}) as Record<string, unknown>;
  const error = (outer.error ?? outer) as Record<string, unknown>;
  const code = typeof error.code === 'string' ? error.code : `HTTP_${status}`;
  const list = Array.isArray(error.details) && error.details.length > 0 ? error.details : [error];
  const faults = list.map((each: Record<string, unknown>) => ({
    message: typeof each.message === 'string' ? each.message : `imgd answered with status ${status}`,
    line: Number(each.line ?? 0),
    column: Number(each.column ?? 0),
    hint: typeof each.hint === 'string' ? each.hint : '',
  }));
  return { code, faults };
}

async function call<T>(
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
  more: Record<string, string> = {},
): Promise<T> {
  // What changes something has a header that pages of other origins can't send.
  const headers: Record<string, string> = { 'x-imgd-csrf': '1', ...more };
  if (body !== undefined) headers['content-type'] = 'application/json';
  const init = {
    method,
    headers,
    body: body === undefined ? null : JSON.stringify(body),
    signal: signal ?? null,
  };
  return read<T>(() => ask(path, init));
}

async function read<T>(asking: () => Promise<Answer>): Promise<T> {
  let answer: Answer;
  try {
    answer = await asking();
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'UNAVAILABLE', [
      { message: 'imgd can’t be reached', line: 0, column: 0, hint: '' },
    ]);
  }
  const { ok, status, text } = answer;
  let parsed: unknown = null;
  try {
    parsed = text ? JSON.parse(text) : {};
  } catch {
    // A proxy's page, say: told by the status.
  }
  if (!ok || parsed === null) {
    const { code, faults } = faultsOf(status, parsed);
    throw new ApiError(status, code, faults);
  }
  return parsed as T;
}

/** The answer that was asked for ahead, for who asks first; else a new one. */
function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = takeAhead(path);
  return answer ? read<T>(() => answer) : call<T>('GET', path, undefined, signal);
}

const NAME = 'imgd.name';

/** Who jobs and changes are said to come from: what was entered in this browser. */
export function actor(): string {
  try {
    return localStorage.getItem(NAME) || 'dashboard';
  } catch {
    return 'dashboard';
  }
}

export function setActor(name: string): void {
  try {
    localStorage.setItem(NAME, name.trim().slice(0, 80));
  } catch {
    // Without storage it stays "dashboard".
  }
}

export const api = {
  jobs: (page_token: string, page_size: number, signal?: AbortSignal) =>
    call<ListJobsResponse>('GET', `/jobs${query({ page_size, page_token })}`, undefined, signal).then(
      (page) => ({ ...page, jobs: page.jobs.map(toldNow) }),
    ),
  job: (id: string, signal?: AbortSignal) =>
    get<GetJobResponse>(jobPath(id), signal).then((one) => ({ ...one, job: toldNow(one.job) })),
  submit: (
    request: {
      job_yaml: string;
      file_name: string;
      dry_run: boolean;
      idempotency_key?: string;
      rerun_of?: string;
    },
    signal?: AbortSignal,
  ) => call<SubmitJobResponse>('POST', '/jobs', { owner: actor(), ...request }, signal),
  cancel: (id: string, checkpoint: boolean) =>
    call<unknown>('POST', `${jobPath(id)}/cancel`, { checkpoint, actor: actor() }),
  change: (id: string, change: Record<string, unknown>) =>
    call<unknown>('POST', `${jobPath(id)}/change`, { actor: actor(), ...change }),
  metrics: (
    id: string,
    names: readonly string[],
    x: MetricAxis,
    range: MetricRange,
    signal?: AbortSignal,
  ): Promise<MetricsResponse> => get<MetricsResponse>(metricsPath(id, names, x, range), signal),
  /** Where each rank's time went, over the whole run. */
  rankTimes: async (id: string, signal?: AbortSignal): Promise<RankStretch[]> => {
    const asked = query({ names: 'loss', points: 1, ranks: true });
    const got = await call<MetricsResponse>('GET', `${jobPath(id)}/metrics${asked}`, undefined, signal);
    return got.ranks ?? [];
  },
  logs: (
    id: string,
    options: {
      rank?: number | undefined;
      generation?: string | undefined;
      contains?: string | undefined;
      level?: string | undefined;
      tail: number;
      before_line?: string;
      after?: string;
      before?: string;
    },
    signal?: AbortSignal,
  ) => call<LogPage>('GET', `${jobPath(id)}/logs${query(options)}`, undefined, signal),
  checkpoints: (id: string, signal?: AbortSignal) =>
    call<{ checkpoints: ReportedCheckpoint[] }>('GET', `${jobPath(id)}/checkpoints`, undefined, signal),
  classes: (id: string, signal?: AbortSignal) =>
    call<{ figures?: ClassFigures }>('GET', `${jobPath(id)}/classes`, undefined, signal),
  samples: (id: string, signal?: AbortSignal) =>
    call<{ samples?: SampleImages; event: string }>('GET', `${jobPath(id)}/samples`, undefined, signal),
  /** Addresses that a browser asks for itself. */
  sampleAddress: (id: string, event: string, number: number) =>
    `/api/v1${jobPath(id)}/samples/${seg(event)}/${number}`,
  checkpointAddress: (id: string, name: string, file: string) =>
    `/api/v1${jobPath(id)}/checkpoints/${seg(name)}/files/${seg(file)}`,
  deleteJob: (id: string) => call<unknown>('DELETE', `${jobPath(id)}${query({ actor: actor() })}`),
  /** Events of one node, the newest last. */
  eventsOf: (node: string, page_size: number, signal?: AbortSignal) =>
    call<{ events?: Decision[] }>(
      'GET',
      `/events${query({ node, page_size, newest: true })}`,
      undefined,
      signal,
    ),
  nodes: (signal?: AbortSignal) =>
    call<{ nodes: Node[]; warning: string }>('GET', '/nodes', undefined, signal),
  node: (name: string, signal?: AbortSignal) =>
    call<{ node: Node; runs: NodeRun[] }>('GET', `/nodes/${seg(name)}`, undefined, signal),
  setAside: (name: string, drain: boolean, reason: string) =>
    call<{ node: Node }>('POST', `/nodes/${seg(name)}/set-aside`, { drain, reason, actor: actor() }),
  returnNode: (name: string, drained: boolean) =>
    call<{ node: Node }>('POST', `/nodes/${seg(name)}/return`, { drained, actor: actor() }),
  forgetNode: (name: string) => call<unknown>('DELETE', `/nodes/${seg(name)}${query({ actor: actor() })}`),
  /** Where agents and imgcli reach the same imgd. */
  grpcPort: async (signal?: AbortSignal) =>
    (await call<{ grpc_port: number }>('GET', '/server', undefined, signal)).grpc_port,
  usage: (signal?: AbortSignal) => call<ListUsageResponse>('GET', '/usage', undefined, signal),
  usageOverTime: (edges: readonly number[], signal?: AbortSignal) =>
    call<{ owners: OwnerUsage[] }>(
      'GET',
      `/usage/over-time${query({ edges_us: edges.map((at) => at * 1000).join(',') })}`,
      undefined,
      signal,
    ),
  datasets: (signal?: AbortSignal) => call<{ datasets: Dataset[] }>('GET', '/datasets', undefined, signal),
  dataset: (name: string, signal?: AbortSignal) =>
    call<GetDatasetResponse>('GET', `/datasets/${seg(name)}`, undefined, signal),
  /** Where a browser finds the picture of a sample. */
  datasetSampleAddress: (name: string, described_us: string, number: number) =>
    `/api/v1/datasets/${seg(name)}/samples/${seg(described_us)}/${number}`,
  registerDataset: (name: string, address: string) =>
    call<{ dataset: Dataset; existed: boolean }>('POST', '/datasets', {
      dataset: { name, address, owner: actor() },
      replace: false,
    }),
  removeDataset: (name: string) => call<unknown>('DELETE', `/datasets/${seg(name)}`),
};
