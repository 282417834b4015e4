import type { ServerResponse } from 'node:http';

const KEPT = 1000;
const KEEP_ALIVE_MS = 15_000;

/** The streams that are open, and the numbered events that they may have missed. */
export class Hub {
  readonly #streams = new Set<ServerResponse>();
  readonly #kept: { id: number; text: string }[] = [];
  readonly #timer = setInterval(() => this.#write(': here\n\n'), KEEP_ALIVE_MS);
  #oldest = 0;

  get size(): number {
    return this.#streams.size;
  }

  /** Gives `response` what comes from now on, and what came after event `lastId`. */
  join(response: ServerResponse, lastId: number | null): void {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    if (lastId !== null) {
      if (lastId < this.#oldest) response.write('event: reset\ndata: {}\n\n');
      for (const one of this.#kept) if (one.id > lastId) response.write(one.text);
    }
    response.write('event: live\ndata: {}\n\n');
    this.#streams.add(response);
    response.on('close', () => this.#streams.delete(response));
  }

  /** An event that has a number is kept for those who come back. */
  send(type: string, data: unknown, id?: number): void {
    const text = `${id === undefined ? '' : `id: ${id}\n`}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
    if (id !== undefined) {
      this.#kept.push({ id, text });
      if (this.#kept.length > KEPT) this.#oldest = this.#kept.shift()!.id;
    }
    this.#write(text);
  }

  drop(): void {
    for (const stream of this.#streams) stream.destroy();
    this.#streams.clear();
  }

  close(): void {
    clearInterval(this.#timer);
    this.drop();
  }

  #write(text: string): void {
    for (const stream of this.#streams) stream.write(text);
  }
}
