import assert from 'node:assert/strict';
import test from 'node:test';
import { cutOf } from './outliers.ts';

const falling = Array.from({ length: 500 }, (_, i) => 2 + 5 * Math.exp(-i / 60) + 0.1 * Math.sin(i * 1.7));

test('a spike is cut off, and told', () => {
  const spiked: (number | null)[] = [...falling, null];
  spiked[300] = 900;
  const cut = cutOf([spiked])!;
  assert.equal(cut.highest, 900);
  assert.ok(cut.top < 8 && cut.top >= Math.max(...falling.slice(1)));
});

test('how high a loss begins is no spike', () => {
  assert.equal(cutOf([falling]), null);
});

test('few values are shown as they are, and so is a flat curve with one step', () => {
  assert.equal(cutOf([[1, 1.1, 900]]), null);
  assert.equal(cutOf([[...new Array(100).fill(1), 900]]), null);
});

test('what is no number counts for nothing', () => {
  assert.equal(cutOf([[...falling, null, Number.POSITIVE_INFINITY]]), null);
});
