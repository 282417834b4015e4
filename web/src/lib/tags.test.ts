import assert from 'node:assert/strict';
import { test } from 'node:test';
import { placeTags } from './tags.ts';

const SIZE = { width: 30, height: 10 };
const place = (...ends: [number, number][]) =>
  placeTags(
    ends.map(([x, y]) => ({ x, y })),
    SIZE,
    0,
    100,
  );

test('a tag is written where its curve ends, within the chart', () => {
  assert.deepEqual(place([50, 20], [50, 40]), [20, 40]);
  assert.deepEqual(place([50, -30], [50, 400]), [0, 100]);
});

test('tags that would lie on one another move apart, as little as is needed', () => {
  assert.deepEqual(place([50, 40], [50, 41]), [40, 51]);
  assert.deepEqual(place([50, 40], [50, 39]), [40, 29]);
  assert.deepEqual(place([50, 40], [85, 41]), [40, 41], 'beside one another there is room');
  assert.deepEqual(place([50, 100], [50, 100], [50, 100]), [100, 90, 80]);
});

test('as many curves as can be compared, all ending at one place, have a tag of their own each', () => {
  const found = placeTags(Array(20).fill({ x: 300, y: 170 }), { width: 30, height: 12 }, 10, 310);
  const sorted = [...found].sort((a, b) => a - b);
  assert.ok(
    sorted.every((y, i) => y >= 10 && y <= 310 && (i === 0 || y - sorted[i - 1]! >= 12)),
    `${sorted}`,
  );
});
