// node canned.ts: what the canned imgd of web/dev answers to every GET that it knows, and tells by its stream, a line of
// JSON each: ["jobs/*" or "event: job", body]. For tests/e2e/test_canned.py.
import { ROUTES } from '../dev/api.ts';
import { DevServer } from '../dev/server.ts';
import { SseParser } from '../src/api/sse.ts';

const EVENTS = ['event', 'job', 'job_gone', 'step', 'nodes', 'datasets', 'live'];
// Figures of every kind, ranks among them.
const QUERIES: Record<string, string> = {
  'jobs/*/metrics': '?names=loss,val_top1,slowest_rank&points=50&smooth=0.5&ranks=true',
  'usage/over-time': '?edges_us=0,1700000000000000,4000000000000000',
};

const server = new DevServer({ port: 0, pages: '', jobs: 120, token: '', everyMs: 0 });
const base = `${await server.listen()}/api/v1`;
const tell = (what: string, body: unknown) => console.log(JSON.stringify([what, body]));

/** The stream's events of a few seconds in which something of every kind happens. */
async function stream(): Promise<void> {
  const response = await fetch(`${base}/stream`);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new SseParser();
  for (let i = 0; i < 3; i++) server.live.tick();
  const post = { method: 'POST', body: '{"actor": "ada"}' };
  await fetch(`${base}/jobs/92/cancel`, post);
  await fetch(`${base}/jobs/11`, { method: 'DELETE' });
  const missing = new Set(EVENTS);
  while (missing.size > 0) {
    const { value, done } = await reader.read();
    if (done) throw new Error('the stream has ended');
    for (const { type, data } of parser.push(value)) {
      tell(`event: ${type}`, JSON.parse(data));
      missing.delete(type);
    }
  }
  await reader.cancel();
}

try {
  const names: Record<string, string[]> = {
    jobs: [...server.world.jobs.keys()],
    nodes: [...server.world.nodes.keys()],
    datasets: [...server.world.datasets.keys()],
  };
  for (const [method, route] of ROUTES) {
    if (method !== 'GET') continue;
    for (const name of route.includes('*') ? names[route.split('/')[0]!]! : ['']) {
      const response = await fetch(`${base}/${route.replace('*', name)}${QUERIES[route] ?? ''}`);
      if (!response.ok) throw new Error(`${route} ${name}: status ${response.status}`);
      tell(route, await response.json());
    }
  }
  await stream();
} finally {
  server.close();
}
