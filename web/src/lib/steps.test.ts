import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Job, LiveStep } from '../api/types.ts';
import { isLater, StepWatch } from './steps.ts';

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

test('a step is later than another of its start, and than all of the starts before', () => {
  const rows: [string, [number, number], [number, number], boolean, boolean][] = [
    ['the next step', [1, 101], [1, 100], true, true],
    ['the same', [1, 100], [1, 100], true, false],
    ['one before', [1, 99], [1, 100], true, false],
    ['a start that nobody told of yet', [2, 901], [1, 1000], false, true],
    ['of the start before', [1, 1001], [2, 1000], true, false],
    ['what is known may be of the start before', [2, 901], [2, 1000], true, true],
    ['what is known was told after it', [2, 901], [2, 1000], false, false],
  ];
  for (const [what, [generation, step], [known, last], since, wanted] of rows) {
    const told = { generation: String(generation), step: String(step) } as LiveStep;
    const job = { generation: String(known), last_step: { step: String(last) } } as Job;
    assert.equal(isLater(told, job, since), wanted, what);
  }
  assert.ok(
    isLater({ generation: '1', step: '1' } as LiveStep, { generation: '1' } as Job, false),
    'the first',
  );
});
