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

test('a first step of seconds is cut off from steps of a fifth of a second', () => {
  const steps = (n: number) =>
    Array.from({ length: n }, (_, i) => (i === 0 ? 9 : 0.2 + 0.01 * Math.sin(i * 1.7)));
  for (const n of [4, 12, 200]) {
    const cut = cutOf([steps(n), steps(n).map((value) => value / 10)], 0)!;
    assert.equal(cut.highest, 9, `of ${n}`);
    assert.ok(cut.top < 1, `of ${n}: ${cut.top}`);
  }
  assert.equal(cutOf([steps(12).slice(1)], 0), null);
});

test('how high a loss begins is no spike', () => {
  assert.equal(cutOf([falling]), null);
});

/** What a job of a few minutes has: its begin and what followed. */
const young = (begin: number[], n: number) =>
  Array.from({ length: n }, (_, i) => begin[i] ?? 2 + 0.2 * Math.sin(i * 1.7));

test('several spikes of a young job are cut off', () => {
  const rows: number[][] = [
    [15964, 820],
    [820, 15964, 90],
    [900, 900, 900, 2],
  ];
  for (const n of [12, 42, 120, 600]) {
    for (const begin of rows) {
      const cut = cutOf([young(begin, n)]);
      assert.equal(cut?.highest, Math.max(...begin), `${n}: ${begin}`);
      assert.ok(cut.top < 3, `${n}: ${begin}: up to ${cut.top}`);
    }
  }
  const validations = [15964, 820, ...new Array(4).fill(2.1)];
  assert.equal(cutOf([young([], 36), validations])?.highest, 15964);
});

test('validations are in view, however few they are beside the training, unless they are spikes', () => {
  const training = young([], 72);
  assert.equal(cutOf([training, training], undefined, [[2.32, 3.9, 3.94]]), null);
  const cut = cutOf([training, training], undefined, [[2.32, 3.9, 900]])!;
  assert.deepEqual(cut, { top: 3.9, highest: 900 });
  assert.equal(cutOf([[]], undefined, [[2.3, 3.9]]), null);
});

test('a loss that falls fast is whole, of few values and of many', () => {
  // How fast, and to what.
  for (const [steps, end] of [[2, 0.5], [3, 0.05], [10, 2], [40, 0.5]] as const) {
    for (const n of [12, 29, 30, 42, 100]) {
      const loss = Array.from({ length: n }, (_, i) => end + 6.9 * Math.exp(-i / steps) * (1 + 0.05 * Math.sin(i)));
      const cut = cutOf([loss]);
      assert.ok(cut === null, `${n} values, by ${steps} to ${end}: up to ${cut?.top} of ${cut?.highest}`);
    }
  }
}); // biome-ignore format: tables

test('few values are shown as they are, and so is a flat curve with one step', () => {
  assert.equal(cutOf([[1, 1.1, 900]]), null);
  assert.equal(cutOf([[...new Array(100).fill(1), 900]]), null);
});

test('what is no number counts for nothing', () => {
  assert.equal(cutOf([[...falling, null, Number.POSITIVE_INFINITY]]), null);
});
