import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MetricPoint } from '../api/types.ts';
import { stragglers } from './stragglers.ts';

const points = (values: number[]): MetricPoint[] => values.map((value, i) => [i + 1, value, value, value]);

test('who is slow again and again has a full row, and it is said how much', () => {
  const found = stragglers(points([3, 3, 0, 3]), points([1, 1, 1, 1]), points([1.5, 1.5, 1.1, 1.5]), 2, 8);
  assert.deepEqual(
    found.ranks.map(({ rank, share }) => [rank, share]),
    [
      [0, 0.25],
      [3, 0.75],
    ],
  );
  assert.deepEqual(found.ends, [2, 4]);
  assert.deepEqual(found.ranks[1]!.cells, [0.5, 0.25]);
  assert.ok(Math.abs(found.ranks[0]!.late - 0.1) < 1e-9);
});

test('of many ranks the worst are left; reports that lack a figure do not count', () => {
  const slowest = points([0, 1, 2, 3]);
  const found = stragglers(slowest, points([1, 1, 1]), points([1.1, 1.4, 1.3, 2]), 10, 2);
  assert.deepEqual(
    found.ranks.map((row) => row.rank),
    [1, 2],
  );
  assert.equal(found.ends.length, 3);
  assert.deepEqual(stragglers([], [], [], 10, 2), { ends: [], ranks: [] });
});
