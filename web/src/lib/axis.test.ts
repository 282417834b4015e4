import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isFlat, padded } from './axis.ts';

test('a curve that is constant but for rounding lies in the middle of an axis that can have ticks', () => {
  const rows: [number, number][] = [
    [5, 5],
    [4.999999999999999, 5],
    [0.29999999999999993, 0.3],
    [-5, -4.999999999999999],
    [0, 0],
  ];
  for (const [low, high] of rows) {
    const [from, to] = padded(low, high, null);
    const middle = (low + high) / 2;
    assert.ok(isFlat(low, high));
    assert.ok(to - from >= 0.1 * Math.abs(high), `${low} to ${high}: ${from} to ${to}`);
    if (high !== 0)
      assert.ok(Math.abs((from + to) / 2 - middle) < 1e-6, `${low} to ${high}: ${from} to ${to}`);
  }
});

test('what differs by more fills its axis, with a little room', () => {
  const rows: [number | null, number | null, number | null, [number, number]][] = [
    [1, 2, null, [0.94, 2.06]],
    [5, 5.000001, null, [4.99999994, 5.00000106]],
    [0.01, 1, null, [0, 1.0594]],
    [1, 100, 2, [0.94, 2.06]],
    [null, null, null, [0, 1]],
  ];
  for (const [low, most, top, [from, to]] of rows) {
    const found = padded(low, most, top);
    assert.ok(Math.abs(found[0] - from) < 1e-9 && Math.abs(found[1] - to) < 1e-9, String(found));
  }
});
