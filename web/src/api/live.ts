import { Store } from '../lib/store.ts';
import { currentSession, onSession } from './client.ts';
import { Connection, type Status } from './connection.ts';
import type { StreamEvent } from './sse.ts';

export const status = new Store<Status>({ state: 'connecting' });
/** Grows whenever what was read before may be old: after a break, or when the stream says so. */
export const epoch = new Store(0);

let tells = false;
let begin = () => {};
const begun = new Promise<void>((done) => {
  begin = done;
});

/** Whether the stream tells this tab what happens: what was asked for before may lack a change that nobody tells of. */
export const isTold = (): boolean => tells;

/** Does `again` once the stream tells this tab what happens, where it does not yet; returns what ends that. Pages ask before
 * that, to have something to show, and once more then. */
export function onceTold(again: () => void): () => void {
  let wanted = !tells;
  void begun.then(() => wanted && again());
  return () => {
    wanted = false;
  };
}

type Handler = (data: unknown) => void;
const handlers = new Map<string, Set<Handler>>();
let retry = () => {};

/** Calls `handler` with the parsed data of each event of a type; returns what ends that. */
export function onLive(type: string, handler: Handler): () => void {
  const set = handlers.get(type) ?? new Set();
  handlers.set(type, set);
  set.add(handler);
  return () => set.delete(handler);
}

export function retryNow(): void {
  retry();
}

let broken = false;

function takeStatus(next: Status): void {
  if (next.state === 'lost' || next.state === 'denied') broken = true;
  status.set(next);
  if (next.state !== 'live') return;
  tells = true;
  begin();
  if (broken) {
    broken = false;
    epoch.set(epoch.value + 1);
  }
}

function takeEvent(event: StreamEvent): void {
  if (event.type === 'reset') epoch.set(epoch.value + 1);
  const set = handlers.get(event.type);
  if (!set || set.size === 0) return;
  let data: unknown;
  try {
    data = JSON.parse(event.data);
  } catch {
    return;
  }
  for (const handler of set) handler(data);
}

function ownStream(): void {
  const connection = new Connection('/api/v1/stream', { event: takeEvent, status: takeStatus });
  retry = () => connection.retryNow();
  onSession((session) => connection.start(session));
  connection.start(currentSession());
}

// A tab may join a worker that ends at that moment, with the last tab before it: nobody tells.
const ANSWER_MS = 5000;

/** Joins the browser's one stream; a tab without shared workers, or whose worker is silent, has its own. */
export function startLive(): void {
  if (typeof SharedWorker === 'undefined') {
    ownStream();
    return;
  }
  const worker = new SharedWorker(new URL('./worker.ts', import.meta.url), { type: 'module', name: 'imgd' });
  const silence = setTimeout(() => {
    worker.port.postMessage({ bye: true });
    worker.port.close();
    ownStream();
  }, ANSWER_MS);
  worker.port.onmessage = (message: MessageEvent<{ event?: StreamEvent; status?: Status }>) => {
    clearTimeout(silence);
    if (message.data.event) takeEvent(message.data.event);
    if (message.data.status) takeStatus(message.data.status);
  };
  worker.port.start();
  retry = () => worker.port.postMessage({ retry: true });
  onSession((session) => worker.port.postMessage({ session }));
  worker.port.postMessage({ session: currentSession() });
  addEventListener('pagehide', () => worker.port.postMessage({ bye: true }));
  addEventListener('pageshow', (event: PageTransitionEvent) => {
    if (!event.persisted) return;
    // Back from the browser's cache: what was told meanwhile is missing.
    worker.port.postMessage({ session: currentSession() });
    epoch.set(epoch.value + 1);
  });
}
