import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MetricPoint } from '../api/types.ts';
import { rowsOf } from './chart_rows.ts';
import type { Line } from './plot_table.ts';

const value = (x: number) => (x === 437 ? 90 : 1 + (x % 7));
const training = (length: number): Line => ({
  label: 'training',
  colour: 's1',
  points: Array.from(
    { length },
    (_, i): MetricPoint => [i + 1, value(i + 1), value(i + 1), value(i + 1), 0.5],
  ),
});
const validation = (...xs: number[]): Line => ({
  label: 'validation',
  colour: 's2',
  sparse: true,
  points: xs.map((x): MetricPoint => [x, x / 10, x / 10, x / 10]),
});

test('of few points each has a row, the newest first', () => {
  const { rows, each } = rowsOf([training(3), validation(2.5)]);
  assert.equal(each, 1);
  assert.deepEqual(
    rows.map(({ x, cells }) => [x, cells[0]?.value, cells[1]?.value]),
    [
      [3, 4, undefined],
      [2.5, undefined, 0.25],
      [2, 3, undefined],
      [1, 2, undefined],
    ],
  );
  assert.deepEqual(rowsOf([]), { rows: [], each: 1 });
});

test('of many points each validation has a row, and no peak is lost', () => {
  const xs = Array.from({ length: 20 }, (_, i) => (i + 1) * 50 - 0.5);
  const { rows, each } = rowsOf([training(1000), validation(...xs)]);
  assert.equal(each, 6);
  assert.ok(rows.length >= 170 && rows.length <= 230, `${rows.length} rows`);
  const validated = rows.filter(({ cells }) => cells[1]);
  assert.deepEqual(
    validated.map(({ x, cells }) => [x, cells[1]!.value]),
    xs.map((x) => [x, x / 10]).reverse(),
  );
  const peak = rows.filter(({ cells }) => cells[0]?.most === 90);
  assert.equal(peak.length, 1);
  assert.ok(peak[0]!.x >= 437 && peak[0]!.x < 437 + each);
  assert.equal(peak[0]!.cells[0]!.least, 1);
  // As it is at the row's own place, and the newest is there.
  for (const { x, cells } of rows.filter((row) => Number.isInteger(row.x)))
    assert.equal(cells[0]!.value, value(x), String(x));
  assert.equal(rows[0]!.x, 1000);
});

test('what the server made of several reports keeps its least and most; what is no number is none', () => {
  const nan = Number.NaN;
  const points: MetricPoint[] = [
    [1, 2, 70, 3, 4],
    [2, nan, nan, nan, nan],
  ];
  const { rows } = rowsOf([{ label: 'a', colour: 's1', points }]);
  assert.deepEqual(rows[1]!.cells, [{ value: 3, smoothed: 4, least: 2, most: 70 }]);
  assert.deepEqual(rows[0]!.cells, [{ value: nan, smoothed: nan, least: nan, most: nan }]);
});
