import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StepWatch } from './steps.ts';

test('steps that were left out are noticed', () => {
  const rows: [string, number[], boolean[]][] = [
    ['one after the other', [1, 2, 3, 4], [false, false, false, false]],
    ['several a second', [10, 14, 17, 22, 26], [false, false, false, false, false]],
    ['a break', [10, 14, 18, 60, 64], [false, false, false, true, false]],
    ['from the checkpoint again', [50, 51, 40, 41], [false, false, true, false]],
    ['told twice', [5, 5, 6], [false, false, false]],
    ['the first one, however late', [900, 901], [false, false]],
  ];
  for (const [what, steps, wanted] of rows) {
    const watch = new StepWatch();
    assert.deepEqual(
      steps.map((step) => watch.take(step)),
      wanted,
      what,
    );
  }
});
