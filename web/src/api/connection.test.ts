import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Connection, type Status } from './connection.ts';

const settle = () => new Promise((done) => setImmediate(done));
const LIVE = 'event: live\ndata: {}\n\n';

/** A stream that goes on after what it says at first. */
const stream = (first: string) => {
  let say = (_: string) => {};
  const body = new ReadableStream({
    start(controller) {
      say = (text) => controller.enqueue(new TextEncoder().encode(text));
      say(first);
    },
  });
  return { response: new Response(body), say };
};

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

  body = () => new Response(LIVE).body;
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

test('a page that is opened after a refusal has the stream asked for again', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let answer = () => new Response('', { status: 403 });
  const asked = t.mock.method(globalThis, 'fetch', async () => answer());
  const seen: string[] = [];
  const connection = new Connection('/stream', {
    event: () => {},
    status: ({ state }) => seen.push(state),
  });
  connection.start(7);
  for (let i = 0; seen.length < 1 && i < 1000; i++) await settle();
  answer = () => stream(LIVE).response;
  connection.start(0);
  for (let i = 0; seen.length < 2 && i < 1000; i++) await settle();
  assert.deepEqual(seen, ['denied', 'live']);
  connection.start(0);
  await settle();
  assert.equal(asked.mock.callCount(), 2, 'one that is opened while it is live joins it');
});

test('it is live once what was missed is there', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { response, say } = stream('id: 3\nevent: event\ndata: {}\n\n');
  t.mock.method(globalThis, 'fetch', async () => response);
  const seen: string[] = [];
  const connection = new Connection('/stream', {
    event: ({ type }) => seen.push(type),
    status: ({ state }) => seen.push(`is ${state}`),
  });
  connection.start(0);
  for (let i = 0; seen.length < 1 && i < 1000; i++) await settle();
  say(LIVE);
  for (let i = 0; seen.length < 3 && i < 1000; i++) await settle();
  assert.deepEqual(seen, ['event', 'live', 'is live']);
});
