import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StepTimes } from '../api/types.ts';
import { stagesOf } from './stages.ts';

const times = {
  steps: 10,
  input_seconds: 0.5,
  forward_seconds: 2,
  backward_seconds: 4,
  communication_seconds: 1,
  optimizer_seconds: 0.5,
} as StepTimes;
const shares = (step: Parameters<typeof stagesOf>[0]) =>
  stagesOf(step)!.parts.map(({ name, share }) => [name, Math.round(share * 1000) / 10]);

test('the stages of a step and what is left of it, other, are the whole step', () => {
  const step = { times, loader: { interval_seconds: 10 } };
  assert.equal(stagesOf(step)!.seconds, 1);
  assert.deepEqual(shares(step), [
    ['Waiting for input', 5],
    ['Forward', 20],
    ['Backward', 40],
    ['Waiting for ranks', 10],
    ['Optimizer', 5],
    ['Other', 20],
  ]);
});

test('stages that take all of it, or by their clock more, leave no other', () => {
  assert.deepEqual(shares({ times, loader: { interval_seconds: 8 } }).at(-1), ['Other', 0]);
  assert.deepEqual(shares({ times, loader: { interval_seconds: 7.9 } }).at(-1), ['Other', 0]);
});

test('where the length of the interval is not told a step is its stages', () => {
  assert.equal(stagesOf({ times })!.seconds, 0.8);
  assert.equal(stagesOf({ times, loader: { interval_seconds: 0 } })!.parts.length, 5);
  assert.equal(stagesOf({}), null);
  assert.equal(stagesOf({ times: { ...times, steps: 0 } }), null);
});
