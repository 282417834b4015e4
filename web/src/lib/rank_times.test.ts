import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RankStretch } from '../api/types.ts';
import { rankTimes } from './rank_times.ts';

const stretch = (first: number, own: RankStretch['own_seconds']): RankStretch => ({
  generation: '1',
  first_step: String(first),
  steps: '8',
  own_seconds: own,
  wait_seconds: own.map(() => 0.1),
});

test('a straggler stands out in each column, by how much longer it takes than the fastest', () => {
  const { ends, ranks } = rankTimes([stretch(1, [0.2, 0.3, 0.2]), stretch(9, [0.2, 0.3, 0.22])], 8);
  assert.deepEqual(ends, [8, 16]);
  assert.deepEqual(
    ranks.map((row) => row.cells.map((late) => Math.round(late * 100))),
    [
      [0, 0],
      [50, 50],
      [0, 10],
    ],
  );
  assert.equal(ranks[1]!.share, 1);
  assert.equal(ranks[1]!.wait, 0.1);
  assert.ok(Math.abs(ranks[1]!.own - 0.3) < 1e-9);
});

test('of many ranks the latest are left; what is not known is no lateness', () => {
  const { ranks } = rankTimes([stretch(1, [1, 1.5, 'NaN', 2]), stretch(9, [1, 1.5, 1.1])], 2);
  assert.deepEqual(
    ranks.map((row) => row.rank),
    [1, 3],
  );
  assert.ok(Number.isNaN(ranks[1]!.cells[1]!));
  assert.deepEqual(rankTimes([], 2), { ends: [], ranks: [] });
});

test('a column in which nothing is known of a rank, or of any, makes none fast', () => {
  const { ranks } = rankTimes([stretch(1, [1, 1.5]), stretch(9, [0, 0]), stretch(17, [1, 0])], 2);
  assert.deepEqual(
    ranks.map((row) => row.cells),
    [
      [0, Number.NaN, 0],
      [0.5, Number.NaN, Number.NaN],
    ],
  );
  assert.deepEqual(rankTimes([stretch(1, ['NaN', 'NaN'])], 2).ranks, []);
});
