import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MetricPoint } from '../api/types.ts';
import { goOnSmoothing, throughPeaks } from './downsample.ts';

const values = (points: readonly MetricPoint[]) =>
  throughPeaks(points).map(([x, ...rest]) => [x, ...new Set(rest)]);

test('through its peaks a curve goes over each least and most, where it was, in as many points', () => {
  const falling: MetricPoint[] = [
    [1, 7, 9, 8],
    [2, 5, 7.5, 6],
    [3, 4, 6, 5],
    [4, 2, 40, 3],
  ];
  assert.deepEqual(values(falling), [
    [1, 9],
    [2, 5],
    [3, 40],
    [4, 2],
  ]);
  const rising: MetricPoint[] = [
    [1, 0, 2, 1],
    [2, 2, 5, 4],
  ];
  assert.deepEqual(values(rising), [
    [1, 0],
    [2, 5],
  ]);
});

test('of an odd number of stretches the last is not lost', () => {
  const three: MetricPoint[] = [
    [1, 4, 5, 5],
    [2, 4, 5, 4],
    [3, 3, 90, 3],
  ];
  assert.deepEqual(values(three), [
    [1, 90],
    [2, 3],
    [3, 3],
  ]);
  assert.deepEqual(values([[1, 2, 4, 3]]), [[1, 3]]);
});

test('where each point is one value, the curve through the peaks is the curve', () => {
  for (const ys of [[5, 3, 4, 4, 9], [1, 2, 5], [3, 1, 2, 8], [7], []]) {
    const points = ys.map((y, x): MetricPoint => [x, y, y, y]);
    assert.deepEqual(throughPeaks(points), points);
  }
});

test('what is no number stays, and stands in nobody’s way', () => {
  const none = [2, null, null, null] as unknown as MetricPoint;
  assert.deepEqual(throughPeaks([[1, 2, 3, 3], none, [3, 1, 1, 1]]), [[1, 3, 3, 3], none, [3, 1, 1, 1]]);
});

test('what came live goes on from the last smoothed number, with a gap where there is no number', () => {
  const points: MetricPoint[] = [
    [1, 5, 5, 5, 5],
    [2, NaN, NaN, NaN, NaN],
    [3, 7, 7, 7],
    [4, NaN, NaN, NaN],
    [5, 6, 6, 6],
  ];
  assert.deepEqual(
    goOnSmoothing(points, 0.5).map((p) => p[4]),
    [5, NaN, 6, NaN, 6],
  );
  assert.deepEqual(goOnSmoothing(points, 0), points);
});
