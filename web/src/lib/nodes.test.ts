import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node } from '../api/types.ts';
import { busyCurve, deviceText, howToJoin, labelsOf, limitOf, needsLook, troubleOf } from './nodes.ts';

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
    const { command } = howToJoin({ protocol, hostname });
    assert.ok(command.includes(`imgagent --server ${hostname}:7650 `), command);
    assert.equal(/^imgcli node join-token > token$/m.test(command), token, hostname);
    assert.equal(command.includes('--token-file token'), token, hostname);
  }
});

test('how busy devices were: the mean at each of the last readings', () => {
  const recent = new Map([
    ['a', [[0, 1], [0.5, 1], [1, 1]]],
    ['b', [[Number.NaN], [0]]],
  ]); // biome-ignore format: a table
  const rows: [string, [string, number][], number[]][] = [
    ['one device', [['a', 0]], [0, 0.5, 1]],
    ['two of a node', [['a', 0], ['a', 1]], [0.5, 0.75, 1]],
    ['the last readings belong together; one that failed does not count', [['a', 0], ['b', 0]], [0, 0.5, 0.5]],
    ['a node that was never read', [['c', 0]], []],
    ['none', [], []],
  ]; // biome-ignore format: a table
  for (const [what, devices, wanted] of rows) {
    const found = busyCurve(
      recent,
      devices.map(([node, at]) => ({ node, at })),
    );
    assert.deepEqual(found, wanted, what);
  }
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
    assert.equal(troubleOf(device), trouble, throttled);
    assert.equal(limitOf(device), limit, throttled);
    assert.equal(needsLook(node), trouble !== '', throttled);
    const said = ['free', trouble, limit, '90\u00a0% busy'].filter(Boolean).join(', ');
    assert.equal(
      deviceText(device, () => ''),
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
