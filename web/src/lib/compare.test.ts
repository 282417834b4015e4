import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jobsIn, look, MOST_COMPARED } from './compare.ts';

test('no two of the runs that can be compared look the same, and a few differ without colour', () => {
  const looks = Array.from({ length: MOST_COMPARED }, (_, i) => look(i));
  assert.equal(new Set(looks.map((one) => JSON.stringify(one))).size, 20);
  assert.equal(new Set(looks.slice(0, 5).map(({ dash }) => dash.join())).size, 5);
});

test('numbers of jobs are taken as people write them, each once', () => {
  assert.deepEqual(jobsIn('3,5'), ['3', '5']);
  assert.deepEqual(jobsIn(' 5 3, 5,,x 7a 12 '), ['5', '3', 'x', '7a', '12']);
  assert.deepEqual(jobsIn(''), []);
});
