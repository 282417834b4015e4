import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MetricPoint } from '../api/types.ts';
import { align, append, downsample, interpolate } from './downsample.ts';
import { placesByTime } from './places.ts';

const flat = (n: number, value = 1): MetricPoint[] =>
  Array.from({ length: n }, (_, i) => [i, value, value, value]);

test('what is merged keeps its peaks', () => {
  const points = flat(100_000);
  points[71_234] = [71_234, 9, 9, 9];
  points[5] = [5, -3, -3, -3];
  const few = downsample(points, 500);
  assert.equal(few.length, 500);
  assert.equal(Math.max(...few.map((p) => p[2])), 9);
  assert.equal(Math.min(...few.map((p) => p[1])), -3);
  assert.deepEqual(few[499]!.slice(0, 1), [99_999], 'the last point stays the last');
});

test('few points stay as they are', () => {
  assert.deepEqual(downsample(flat(3), 10), flat(3));
});

test('live points go behind those of the server, without the ones that it had', () => {
  assert.deepEqual(append(flat(3), [[1, 5, 5, 5], [2, 5, 5, 5], [3, 7, 7, 7]]).map((p) => p[0]), [0, 1, 2, 3]); // biome-ignore format: a table
  assert.deepEqual(append([], [[4, 1, 1, 1]]).length, 1);
  assert.equal(append(flat(3), [[Number.NaN, 1, 1, 1]]).length, 3, 'a place that nobody knows');
});

test('series with places of their own become one table', () => {
  const a: MetricPoint[] = [[1, 1, 1, 10], [3, 1, 1, 30]]; // biome-ignore format: a table
  const b: MetricPoint[] = [[2, 1, 1, 20], [3, 1, 1, Number.NaN]]; // biome-ignore format: a table
  assert.deepEqual(align([a, b]), [
    [1, 2, 3],
    [10, null, 30],
    [null, 20, null],
  ]);
});

test('a value between two points', () => {
  const points: MetricPoint[] = [[0, 0, 0, 0], [10, 0, 0, 100]]; // biome-ignore format: a table
  assert.equal(interpolate(points, 5), 50);
  assert.equal(interpolate(points, 10), 100);
  assert.ok(Number.isNaN(interpolate(points, 11)));
  assert.ok(Number.isNaN(interpolate(points, -1)));
});

test('where a run was when, by figures that both axes have', () => {
  const point = (x: number, value: number): MetricPoint => [x, value, value, value];
  const byTime = [point(100, 0.9), point(110, 0.8), point(120, 0.7), point(150, 0.8), point(160, 0.65)];
  const byStep = [point(10, 0.9), point(20, 0.8), point(40, 0.65), point(50, 0.6)];
  const places = placesByTime([byTime], [byStep]);
  assert.deepEqual(places.map((p) => [p[0], p[3]]), [[100, 10], [150, 20], [160, 40]]); // biome-ignore format: a table
  assert.equal(interpolate(places, 125), 15);
  assert.deepEqual(placesByTime([[]], [byStep]), []);
});
