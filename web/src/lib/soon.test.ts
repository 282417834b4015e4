import assert from 'node:assert/strict';
import { test } from 'node:test';
import { soonOf } from './soon.ts';

test('what is asked for all the time is done soon, then again and again, and not any more after the end', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  const done: number[] = [];
  const soon = soonOf(() => done.push(Date.now()));
  for (let at = 0; at < 5000; at += 100) {
    soon.ask();
    t.mock.timers.tick(100);
  }
  assert.deepEqual(done, [400, 2400, 4400]);
  soon.end();
  t.mock.timers.tick(10_000);
  assert.equal(done.length, 3);
});
