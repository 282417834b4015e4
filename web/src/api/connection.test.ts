import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Connection, type Status } from './connection.ts';

const settle = () => new Promise((done) => setImmediate(done));

test('tries of a proxy that answers with a head alone are ever further apart, until the stream says something', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let body = () => new Response('').body;
  t.mock.method(globalThis, 'fetch', async () => new Response(body()));
  const lost: Extract<Status, { state: 'lost' }>[] = [];
  const live: Status[] = [];
  const connection = new Connection('/stream', {
    event: () => {},
    status: (status) => {
      if (status.state === 'lost') lost.push({ ...status, retryAt: status.retryAt - Date.now() });
      if (status.state === 'live') live.push(status);
    },
  });
  connection.start(0);
  for (let n = 1; n <= 4; n++) {
    for (let i = 0; lost.length < n && i < 1000; i++) await settle();
    if (n < 4) t.mock.timers.tick(8000);
  }
  assert.equal(live.length, 0);
  assert.ok(lost[3]!.retryAt > 2900, `${lost[3]!.retryAt} ms`);
  assert.equal(lost[3]!.since, lost[0]!.since, 'it is lost since the first');

  body = () => new Response(': here\n\n').body;
  t.mock.timers.tick(8000);
  for (let i = 0; lost.length < 5 && i < 1000; i++) await settle();
  assert.equal(live.length, 1);
  assert.ok(lost[4]!.retryAt < 700, `${lost[4]!.retryAt} ms`);
});

test('no try is later than 8 s after the one before', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.mock.method(Math, 'random', () => 0.999);
  t.mock.method(globalThis, 'fetch', async () => new Response(''));
  const waits: number[] = [];
  const connection = new Connection('/stream', {
    event: () => {},
    status: (status) => {
      if (status.state === 'lost') waits.push(status.retryAt - Date.now());
    },
  });
  connection.start(0);
  for (let n = 1; n <= 7; n++) {
    for (let i = 0; waits.length < n && i < 1000; i++) await settle();
    if (n < 7) t.mock.timers.tick(8000);
  }
  assert.equal(waits.length, 7);
  assert.ok(Math.max(...waits) <= 8000, `${waits} ms`);
});

test('after a token was taken a try that fails is followed by others', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let status = 401;
  t.mock.method(globalThis, 'fetch', async () => new Response('', { status }));
  const seen: string[] = [];
  const connection = new Connection('/stream', {
    event: () => {},
    status: ({ state }) => seen.push(state),
  });
  connection.start(0);
  for (let i = 0; seen.length < 1 && i < 1000; i++) await settle();
  assert.deepEqual(seen, ['denied']);
  t.mock.timers.tick(8000);
  await settle();
  assert.equal(seen.length, 1, 'it waits for a token');

  status = 503;
  connection.start(1);
  for (let n = 2; n <= 3; n++) {
    for (let i = 0; seen.length < n && i < 1000; i++) await settle();
    t.mock.timers.tick(8000);
  }
  assert.deepEqual(seen, ['denied', 'lost', 'lost']);
});
