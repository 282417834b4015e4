import assert from 'node:assert/strict';
import { test } from 'node:test';
import { busyCurve, howToJoin } from './nodes.ts';

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
