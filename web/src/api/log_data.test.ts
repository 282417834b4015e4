import assert from 'node:assert/strict';
import { test } from 'node:test';
import { begin, hasGrown, joined } from './log_data.ts';
import type { LogPage } from './types.ts';

/** The lines from one number to another, of one rank. */
function page(from: number, to: number): LogPage {
  const lines = Array.from({ length: to - from + 1 }, (_, i) => ({
    rank: 0,
    line_number: String(from + i),
    time_us: `${from + i}0`,
    generation: '1',
    is_stderr: false,
    text: 'x',
  }));
  return {
    lines,
    truncated: false,
    generation: '1',
    next: `1-0.${to}`,
    previous: from > 1 ? `1-0.${from}` : '',
  };
}

const numbers = (lines: readonly { line_number: string }[]) => lines.map((line) => Number(line.line_number));

test('a log that is followed for hours keeps a bounded newest part, and where to go back from it', () => {
  let held = begin(page(1, 100), undefined);
  const { first } = held;
  let most = 0;
  for (let last = 100; last < 500_000; last += 1000) {
    held = joined(held, page(last + 1, last + 1000), 'after');
    if (hasGrown(held)) held = joined(held, page(last + 1000 - 4999, last + 1000), 'anew');
    most = Math.max(most, held.lines.length);
  }
  assert.ok(most <= 26_000, `${most} lines`);
  const [oldest] = numbers(held.lines);
  assert.equal(held.previous, `1-0.${oldest}`);
  assert.equal(held.next, '1-0.500100');
  assert.deepEqual(
    numbers(held.lines),
    held.lines.map((_, i) => oldest! + i),
    'there is no gap',
  );
  assert.equal(held.first, first, 'it is still the log that was asked for');
  held = joined(held, page(oldest! - 50, oldest! - 1), 'before');
  assert.equal(held.previous, `1-0.${oldest! - 50}`);
});

test('a first page may be long: what counts is what came since', () => {
  const held = begin(page(1, 60_000), undefined);
  assert.equal(hasGrown(held), false);
  assert.equal(hasGrown(joined(held, page(60_001, 79_000), 'after')), false);
  assert.equal(hasGrown(joined(held, page(60_001, 80_001), 'after')), true);
});

test('of several ranks, older lines go in between', () => {
  const held = begin(page(5, 6), undefined);
  const other = page(1, 1).lines.map((line) => ({ ...line, rank: 1, time_us: '55' }));
  const older = page(3, 4).lines;
  const found = joined(held, { ...page(3, 4), lines: [...other, ...older] }, 'before');
  assert.deepEqual(
    found.lines.map(({ rank, line_number }) => `${rank}.${line_number}`),
    ['0.3', '0.4', '0.5', '1.1', '0.6'],
  );
});
