import { SseParser, type StreamEvent } from './sse.ts';

/** How the stream is: `live` once imgd tells all that happens, no longer what was missed alone; `lost` has the time of the
 * next try, milliseconds since 1970. */
export type Status =
  | { state: 'connecting' }
  | { state: 'live' }
  | { state: 'lost'; since: number; retryAt: number }
  | { state: 'denied' };

export interface Listener {
  event(event: StreamEvent): void;
  status(status: Status): void;
}

// Three keep-alives that did not come.
const SILENCE_MS = 45_000;
// It answers at once.
const CONNECT_MS = 15_000;
const FIRST_WAIT_MS = 500;
const MOST_WAIT_MS = 8_000;

/** Holds one stream open and comes back with the last number after each break, with growing waits. */
export class Connection {
  status: Status = { state: 'connecting' };
  readonly #url: string;
  readonly #listener: Listener;
  #session = -1;
  #lastId = '';
  #wait = FIRST_WAIT_MS;
  #lostSince = 0;
  #abort: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(url: string, listener: Listener) {
    this.#url = url;
    this.#listener = listener;
  }

  /** Connects, or connects anew in another session, and where it was denied. */
  start(session: number): void {
    if (this.#abort && session <= this.#session && this.status.state !== 'denied') return;
    this.#session = session;
    this.retryNow();
  }

  retryNow(): void {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = new AbortController();
    void this.#run(this.#abort);
  }

  #set(status: Status): void {
    this.status = status;
    this.#listener.status(status);
  }

  async #run(abort: AbortController): Promise<void> {
    let denied = false;
    try {
      denied = await this.#read(abort);
    } catch {
      // Whatever it was, the stream is gone.
    }
    if (abort !== this.#abort || denied) return;
    this.#lostSince ||= Date.now();
    const wait = Math.min(this.#wait * (0.75 + Math.random() / 2), MOST_WAIT_MS);
    this.#wait = Math.min(this.#wait * 2, MOST_WAIT_MS);
    this.#set({ state: 'lost', since: this.#lostSince, retryAt: Date.now() + wait });
    this.#timer = setTimeout(() => this.retryNow(), wait);
  }

  /** Until the stream ends; whether it was denied. */
  async #read(abort: AbortController): Promise<boolean> {
    const headers: Record<string, string> = { accept: 'text/event-stream' };
    if (this.#lastId) headers['last-event-id'] = this.#lastId;
    let silence = setTimeout(() => abort.abort(), CONNECT_MS);
    const response = await fetch(this.#url, { headers, signal: abort.signal, cache: 'no-store' }).finally(
      () => clearTimeout(silence),
    );
    if (response.status === 401 || response.status === 403) {
      if (abort === this.#abort) this.#set({ state: 'denied' });
      return true;
    }
    if (!response.ok || !response.body || abort !== this.#abort) return false;
    const parser = new SseParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    silence = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENCE_MS);
        // With the first words, and not with the head: a proxy may send a head and no more.
        this.#wait = FIRST_WAIT_MS;
        const events = parser.push(part.value);
        if (parser.lastId) this.#lastId = parser.lastId;
        for (const event of events) {
          this.#listener.event(event);
          if (event.type !== 'live') continue;
          this.#lostSince = 0;
          this.#set({ state: 'live' });
        }
      }
      return false;
    } finally {
      clearTimeout(silence);
    }
  }
}
