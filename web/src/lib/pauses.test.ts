import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Job, JobEvent } from '../api/types.ts';
import { aloneIn, beganAt, breaksIn, resumedAt } from './pauses.ts';

const history = (...changes: [number, string][]): JobEvent[] =>
  changes.map(([at, to], i) => ({
    number: String(i + 1),
    time_us: String(at * 1e6),
    generation: '1',
    state_change: {
      from: `JOB_STATE_${changes[i - 1]?.[1] ?? 'UNSPECIFIED'}`,
      to: `JOB_STATE_${to}`,
      reason: '',
      text: '',
      actor: '',
    },
  })) as JobEvent[];

test('a job goes on when it has devices again, however it lost them, and not when it begins', () => {
  const begun: [number, string][] = [
    [10, 'QUEUED'],
    [20, 'STARTING'],
    [30, 'RUNNING'],
  ];
  const rows: [string, [number, string][], number[]][] = [
    ['never stopped', [], []],
    ['another priority', [[40, 'RUNNING']], []],
    ['paused, and nothing since', [[40, 'PREEMPTING'], [50, 'PAUSED']], []],
    ['paused and resumed', [[40, 'PREEMPTING'], [50, 'PAUSED'], [60, 'QUEUED'], [70, 'STARTING'], [80, 'RUNNING']], [70]],
    ['failed twice', [[40, 'QUEUED'], [45, 'STARTING'], [50, 'QUEUED'], [70, 'STARTING']], [45, 70]],
    ['found again after a restart of imgd', [[40, 'QUEUED'], [45, 'RUNNING']], [45]],
    ['at once', [[40, 'QUEUED'], [40, 'STARTING']], []],
  ]; // biome-ignore format: a table
  for (const [what, changes, wanted] of rows)
    assert.deepEqual(resumedAt(history(...begun, ...changes)), wanted, what);
});

test('a job began when it trained first, however often it started', () => {
  const job = { submitted_us: '10000000' } as Job;
  const begun: [number, string][] = [
    [20, 'STARTING'],
    [25, 'QUEUED'],
    [40, 'STARTING'],
  ];
  const trained: [number, string][] = [
    [50, 'RUNNING'],
    [60, 'QUEUED'],
    [70, 'RUNNING'],
  ];
  assert.equal(beganAt({ job, history: history(...begun) }), 10);
  assert.equal(beganAt({ job, history: history(...begun, ...trained) }), 50);
});

const XS = [1, 2, 3, 4, 5, 6];

test('a curve is broken between the last value before and the first one after', () => {
  const rows: [string, (number | null)[], number[], [number, number][]][] = [
    ['where nothing stopped', [1, 1, 1, 1, 1, 1], [], []],
    ['between neighbours', [1, 1, 1, 1, 1, 1], [3.5], [[2, 3]]],
    ['over places of other curves', [1, null, null, null, null, 1], [3.5], [[0, 5]]],
    ['once for two starts without a value between', [1, 1, null, null, 1, 1], [2.5, 3.5], [[1, 4]]],
    ['at the value itself', [1, 1, 1, 1, 1, 1], [4], [[2, 3]]],
    ['not before the first value', [null, null, null, 1, 1, 1], [2], []],
    ['not after the last', [1, 1, null, null, null, null], [5], []],
  ]; // biome-ignore format: a table
  for (const [what, column, resumed, wanted] of rows)
    assert.deepEqual(breaksIn(XS, column, resumed), wanted, what);
});

test('one value alone is told, of a whole curve and of a part between two breaks', () => {
  assert.deepEqual(aloneIn(XS, [null, 3, null], []), [1]);
  assert.deepEqual(aloneIn(XS, [0], []), [0]);
  assert.deepEqual(aloneIn(XS, [], []), []);
  assert.deepEqual(aloneIn(XS, [1, null, 2], []), []);
  assert.deepEqual(aloneIn(XS, [1, 1, 1, 1, 1, 1], [2.5, 3.5]), [2]);
  assert.deepEqual(aloneIn(XS, [1, 1, null, 1, 1, 1], [1.5, 5.5]), [0, 5]);
});
