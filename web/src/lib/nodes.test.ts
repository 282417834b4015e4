import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node } from '../api/types.ts';
import {
  type BusySample,
  busyCurve,
  busyOf,
  deviceText,
  howToJoin,
  keptFrom,
  labelsOf,
  limitOf,
  minutesOf,
  needsLook,
  sumNodes,
  troubleOf,
  wasRead,
  withSample,
} from './nodes.ts';

test('a machine joins with a token wherever imgd speaks TLS', () => {
  const rows: [string, string, boolean][] = [
    ['http:', 'localhost', false],
    ['http:', '127.0.0.1', false],
    ['http:', '[::1]', false],
    ['https:', '127.0.0.1', true],
    ['https:', 'gpu.example.org', true],
    ['http:', 'gpu.example.org', true],
    ['http:', '127.example.org', true],
  ];
  for (const [protocol, hostname, token] of rows) {
    const { command } = howToJoin({ protocol, hostname }, 17650);
    assert.ok(command.includes(`imgagent --server ${hostname}:17650 `), command);
    assert.equal(
      command.startsWith(`imgcli --server ${hostname}:17650 node join-token > token\n`),
      token,
      hostname,
    );
    assert.equal(command.includes('--token-file token'), token, hostname);
  }
  assert.match(
    howToJoin({ protocol: 'http:', hostname: 'localhost' }, null).command,
    /--server localhost:PORT /,
  );
});

test('how busy devices were: their mean every 3 s, however often they were told', () => {
  const at = (seconds: number, ...busy: number[]): BusySample => ({ at: 30_000 + seconds * 1000, busy });
  const recent = new Map([
    ['a', [at(0, 0, 1), at(3.1, 0.5, 1), at(9.2, 1, 1)]],
    ['b', [at(4, Number.NaN), at(8, 0)]],
  ]); // biome-ignore format: a table
  const rows: [string, [string, number][], number[]][] = [
    ['one device', [['a', 0]], [0, 0.5, 0.5, 1, 1]],
    ['two of a node', [['a', 0], ['a', 1]], [0.5, 0.75, 0.75, 1, 1]],
    ['one that was not read does not count', [['a', 0], ['b', 0]], [0, 0.5, 0.25, 0.5, 0.5]],
    ['a node that was never read', [['c', 0]], []],
    ['none', [], []],
  ]; // biome-ignore format: a table
  for (const [what, devices, wanted] of rows) {
    const found = busyCurve(
      recent,
      devices.map(([node, at]) => ({ node, at })),
      43_000,
    );
    assert.deepEqual(found, wanted, what);
  }
});

test('however much is told of a node, its last samples reach back as far as curves do', () => {
  let samples: BusySample[] = [];
  for (let ms = 0; ms < 600_000; ms += 500) samples = withSample(samples, { at: ms, busy: [ms] });
  assert.equal(samples.length, 60);
  assert.deepEqual([samples[0]!.at, samples.at(-1)!.at], [422_500, 599_500]);
});

test('how busy a node was has a place for each minute of the last hour', () => {
  const minutes = minutesOf([0.25, 'NaN', 0.5]);
  assert.equal(minutes.length, 60);
  assert.deepEqual(minutes.slice(56), [Number.NaN, 0.25, Number.NaN, 0.5]);
  assert.deepEqual(minutesOf(Array<number>(61).fill(1)), Array<number>(60).fill(1));
});

/** A node that is ready, with one device. */
function nodeWith(throttled_by: string, labels: Record<string, string> = {}): Node {
  const reading = {
    busy_ratio: 0.9,
    memory_used_bytes: '0',
    power_watts: 0,
    temperature_celsius: 0,
    error: '',
  };
  return {
    name: 'gpu-1',
    state: 'NODE_STATE_READY',
    reason_text: '',
    problems: [],
    labels,
    devices: [
      {
        index: 0,
        memory_bytes: '0',
        job_id: '0',
        held_text: '',
        reading: { ...reading, throttled_by, xid: 0 },
      },
    ],
  } as unknown as Node;
}

test('a GPU at its power limit is in order; one that is held back by something else needs a look', () => {
  const rows: [string, string, string][] = [
    ['', '', ''],
    ['power cap', '', 'at its power limit'],
    ['heat', 'held back by heat', ''],
    ['power cap, heat', 'held back by heat', 'at its power limit'],
    ['power supply', 'held back by power supply', ''],
  ];
  for (const [throttled, trouble, limit] of rows) {
    const node = nodeWith(throttled);
    const [device] = node.devices as [Node['devices'][0]];
    assert.equal(troubleOf(node, device), trouble, throttled);
    assert.equal(limitOf(node, device), limit, throttled);
    assert.equal(needsLook(node), trouble !== '', throttled);
    const said = ['free', trouble, limit, '90\u00a0% busy'].filter(Boolean).join(', ');
    assert.equal(
      deviceText(node, device, () => ''),
      said,
    );
  }
  assert.ok(needsLook({ ...nodeWith(''), state: 'NODE_STATE_LOST' }));
});

test('labels are in the order of their names, in whichever they came', () => {
  const wanted = [
    ['host', 'gpu-1'],
    ['zone', 'hall-2'],
  ];
  assert.deepEqual(labelsOf(nodeWith('', { zone: 'hall-2', host: 'gpu-1' })), wanted);
  assert.deepEqual(labelsOf(nodeWith('', { host: 'gpu-1', zone: 'hall-2' })), wanted);
});

const aside = { drain: false, reason: '', actor: 'ada', since_us: '1', empty: true, by_imgd: false };

test('only a device of a node that takes jobs is free, and of others it is said why not', () => {
  const rows: [string, Partial<Node>][] = [
    ['', {}],
    ['lost', { state: 'NODE_STATE_LOST' }],
    ['out of reach', { state: 'NODE_STATE_UNREACHABLE' }],
    ['drained', { set_aside: { ...aside, drain: true } }],
    ['draining', { set_aside: { ...aside, drain: true, empty: false } }],
    ['cordoned', { set_aside: aside }],
    ['set aside', { set_aside: { ...aside, by_imgd: true } }],
    ['sick', { problems: [{ kind: 'PROBLEM_KIND_DISK', text: 'is full' }] }],
    ['taken back', { notice: { at_us: '1', action: 'stop' } }],
  ]; // biome-ignore format: a table
  for (const [word, changes] of rows) {
    const node = { ...nodeWith(''), ...changes };
    assert.equal(keptFrom(node, node.devices[0]!), word);
    assert.equal(sumNodes([node]).free, word === '' ? 1 : 0, word);
    assert.match(
      deviceText(node, node.devices[0]!, () => ''),
      new RegExp(`^${word || 'free'}(, |$)`),
    );
  }
  const held = nodeWith('');
  held.devices[0]!.held_text = 'held by something else';
  assert.equal(keptFrom(held, held.devices[0]!), 'held');
  const used = nodeWith('');
  used.devices[0]!.job_id = '7';
  const sums = sumNodes([held, used, nodeWith('')]);
  assert.deepEqual([sums.devices, sums.used, sums.free], [3, 1, 1]);
});

test('nothing is free on a node whose agent is away for a moment', () => {
  const node = { ...nodeWith(''), disconnected: true };
  assert.equal(keptFrom(node, node.devices[0]!), 'disconnected');
  const { ready, free } = sumNodes([node, nodeWith('')]);
  assert.deepEqual([ready, free], [1, 1]);
});

test('what was read of a node that is out of reach is not of now', () => {
  const states: Partial<Node>[] = [
    { state: 'NODE_STATE_LOST' },
    { state: 'NODE_STATE_UNREACHABLE' },
    { disconnected: true },
  ];
  for (const changes of states) {
    const state = JSON.stringify(changes);
    const node = { ...nodeWith('power cap, heat'), ...changes };
    const [device] = node.devices as [Node['devices'][0]];
    device.job_id = '7';
    assert.ok(Number.isNaN(busyOf(node, device)), state);
    assert.equal(
      deviceText(node, device, () => 'job 7'),
      'job 7',
      state,
    );
    assert.deepEqual([troubleOf(node, device), limitOf(node, device)], ['', ''], state);
    assert.ok(Number.isNaN(sumNodes([node]).busy), state);
  }
});

test('what a lost node drew and costs is in no sum', () => {
  const node = { ...nodeWith(''), price_per_hour: 2 };
  node.devices[0]!.reading!.power_watts = 300;
  const { watts, price, free } = sumNodes([node, { ...node, state: 'NODE_STATE_LOST' }]);
  assert.deepEqual([watts, price, free], [300, 2, 1]);
});

test('a figure that could not be read is none, and the others are', () => {
  const rows: [string, boolean, boolean][] = [
    ['', true, true],
    ["utilisation can't be read: Not Supported", false, true],
    ["memory can't be read: Not Supported", true, false],
    ["utilisation can't be read: Not Supported; memory can't be read: Not Supported", false, false],
    ['the driver does not answer', false, false],
  ];
  for (const [error, utilisation, memory] of rows) {
    const node = nodeWith('');
    const [device] = node.devices as [Node['devices'][0]];
    device.reading!.error = error;
    assert.equal(wasRead(device, 'utilisation'), utilisation, error);
    assert.equal(wasRead(device, 'memory'), memory, error);
    assert.equal(Number.isFinite(busyOf(node, device)), utilisation, error);
    assert.equal(/% busy/.test(deviceText(node, device, () => '')), utilisation, error);
  }
});
