import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SmallCurve } from './small_curve.ts';

test('a curve that grew for long is of the whole run, evenly, and ends with the newest', () => {
  const grown = new SmallCurve(40);
  for (let step = 50; step <= 100_000; step += 50) {
    grown.add(step, step);
    assert.ok(grown.values.length <= 40);
    assert.equal(grown.values.at(-1), step);
  }
  const { values } = grown;
  assert.ok(values.length >= 20, `${values.length} values`);
  const apart = values.slice(1, -1).map((value, i) => value - values[i]!);
  assert.ok(Math.max(...apart) - Math.min(...apart) <= 100, apart.join(' '));
  assert.ok(values[0]! <= 2 * Math.max(...apart), 'it begins where the run does');
});

test('what was loaded stays while there is room, and goes on as finely', () => {
  const loaded = [100, 200, 300].map((step) => ({ step, value: step }));
  const curve = new SmallCurve(4, loaded);
  assert.deepEqual(curve.values, [100, 200, 300]);
  for (const step of [350, 400]) curve.add(step, step);
  assert.deepEqual(curve.values, [100, 200, 300, 400]);
  curve.add(450, 450);
  assert.deepEqual(curve.values, [200, 400, 450]);
});

test('steps that a later start does again count once', () => {
  const curve = new SmallCurve(10);
  for (const step of [1, 2, 3, 4]) curve.add(step, step);
  curve.add(3, 30);
  assert.deepEqual(curve.values, [1, 2, 30]);
});
