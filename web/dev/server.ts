import { randomUUID } from 'node:crypto';
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';
import { Refusal, ROUTES } from './api.ts';
import { Hub } from './hub.ts';
import { Live } from './live.ts';
import { samplePicture } from './results.ts';
import { makeWorld, type World } from './world.ts';

export interface Options {
  /** 0 for any. */
  port: number;
  /** Folder of the built page. */
  pages: string;
  jobs: number;
  /** Who has no such token is refused; empty: nobody is. */
  token: string;
  /** Milliseconds between the world's seconds; 0: only tick() moves it. */
  everyMs: number;
}

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
};
// As imgd sends it.
const POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Plays imgd for the dashboard: a world of canned data in which one second follows the other. */
export class DevServer {
  readonly world: World;
  readonly hub = new Hub();
  readonly live: Live;
  /** With which number each stream was asked for: its header Last-Event-ID, null where it had none. */
  readonly streams: (string | null)[] = [];
  /** No stream is joined before this is done. */
  streamsFrom: Promise<void> = Promise.resolve();
  readonly #options: Options;
  readonly #server: Server;
  readonly #timer: ReturnType<typeof setInterval> | undefined;
  #away = false;
  /** The cookie's value, from which the token can't be had. */
  #session = randomUUID();

  constructor(options: Options) {
    this.#options = options;
    this.world = makeWorld(Date.now() / 1000, options.jobs);
    this.live = new Live(this.world, this.hub);
    this.#server = createServer((request, response) => void this.#answer(request, response));
    if (options.everyMs > 0) this.#timer = setInterval(() => this.live.tick(), options.everyMs);
  }

  listen(): Promise<string> {
    return new Promise((resolve) => {
      this.#server.listen(this.#options.port, '127.0.0.1', () => {
        resolve(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
      });
    });
  }

  close(): void {
    clearInterval(this.#timer);
    this.hub.close();
    this.#server.close();
    this.#server.closeAllConnections();
  }

  /** While `away`, streams break and calls get no answer, as when imgd is down. */
  setAway(away: boolean): void {
    this.#away = away;
    if (away) this.hub.drop();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://dev');
    if (!url.pathname.startsWith('/api/v1/')) return this.#page(url.pathname, response);
    if (this.#away) return void request.socket.destroy();
    const token = this.#options.token;
    const cookie = `__Host-imgd=${this.#session}`;
    const bearer = request.headers.authorization === `Bearer ${token}`;
    if (token && !bearer && !(request.headers.cookie ?? '').split('; ').includes(cookie)) {
      return send(response, 401, {
        error: { code: 'UNAUTHENTICATED', message: 'a token that imgd knows is needed' },
      });
    }
    if (url.pathname === '/api/v1/session') {
      if (request.method === 'DELETE') {
        this.#session = randomUUID();
        this.hub.drop();
        response.setHeader('clear-site-data', '"cache"');
        return send(response, 200, {});
      }
      response.setHeader('set-cookie', `${cookie}; Path=/; Secure; HttpOnly; SameSite=Strict`);
      return send(response, 200, {});
    }
    if (url.pathname === '/api/v1/stream') {
      const last = (request.headers['last-event-id'] as string | undefined) ?? null;
      this.streams.push(last);
      await this.streamsFrom;
      return this.hub.join(response, last === null ? null : Number(last));
    }
    const parts = url.pathname.slice('/api/v1/'.length).split('/').map(decodeURIComponent);
    const file = fileOf(parts);
    if (file) {
      response.writeHead(200, { 'content-type': file.type, ...file.headers });
      return void response.end(file.body);
    }
    const body = await read(request);
    try {
      send(response, 200, this.#call(request.method ?? 'GET', parts, url.searchParams, body));
    } catch (error) {
      if (error instanceof Refusal) send(response, error.status, error.body);
      else send(response, 500, { error: { code: 'INTERNAL', message: String(error) } });
    }
  }

  #call(method: string, parts: string[], query: URLSearchParams, body: Record<string, unknown>): unknown {
    for (const [wanted, pattern, handler] of ROUTES) {
      const names = pattern.split('/');
      if (wanted !== method || names.length !== parts.length) continue;
      if (!names.every((name, i) => name === '*' || name === parts[i])) continue;
      return handler({ world: this.world, live: this.live, parts, query, body });
    }
    throw new Refusal(404, 'NOT_FOUND', `${method} ${parts.join('/')} is not served`);
  }

  #page(path: string, response: ServerResponse): void {
    const file = join(this.#options.pages, normalize(path));
    const found =
      existsSync(file) && statSync(file).isFile() ? file : join(this.#options.pages, 'index.html');
    response.writeHead(200, {
      'content-type': TYPES[extname(found)] ?? 'application/octet-stream',
      'content-security-policy': POLICY,
    });
    createReadStream(found).pipe(response);
  }
}

/** What is no JSON: an image's picture, a checkpoint's file. */
function fileOf([noun, , what, name, last, file]: string[]) {
  if ((noun !== 'jobs' && noun !== 'datasets') || last === undefined) return undefined;
  if (what === 'samples') return { type: 'image/svg+xml', headers: {}, body: samplePicture(Number(last)) };
  if (what !== 'checkpoints' || last !== 'files') return undefined;
  const headers = { 'content-disposition': `attachment; filename="job-${name}-${file}"` };
  return { type: 'application/octet-stream', headers, body: `the bytes of ${file}` };
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

async function read(request: IncomingMessage): Promise<Record<string, unknown>> {
  let text = '';
  for await (const part of request) text += part;
  try {
    return text ? JSON.parse(text) : {};
  } catch {
    return {};
  }
}
