import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OwnerUsage } from '../api/types.ts';
import { byDay, dayEdges } from './spend.ts';

const NOW = new Date(2026, 10, 20, 12).getTime();
const use = (owner: string, ...device_hours: number[]): OwnerUsage => ({ owner, device_hours, cost: [] });
const hours = (one: OwnerUsage) => one.device_hours;

test('days begin at midnight, and today ends at the next', () => {
  assert.deepEqual(
    dayEdges(NOW, 2).map((at) => new Date(at).toString().slice(4, 24)),
    ['Nov 19 2026 00:00:00', 'Nov 20 2026 00:00:00', 'Nov 21 2026 00:00:00'],
  );
});

test('who took most comes first, and who took nothing not at all', () => {
  const found = byDay(
    [use('ada', 1, 2, 0), use('lena', 0, 0, 9), use('max', 0, 0, 0)],
    hours,
    dayEdges(NOW, 3),
  );
  assert.deepEqual(
    found.owners.map((one) => [one.name, one.total]),
    [['lena', 9], ['ada', 3]],
  ); // biome-ignore format: a table
  assert.equal(found.most, 9);
  assert.equal(found.days.length, 3);
});

test('it begins with the first day that has anything, but shows a week', () => {
  const rows: [number[], number][] = [
    [[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2], 9],
    [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], 7],
    [[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2], 12],
    [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 12],
  ];
  for (const [amounts, days] of rows) {
    const found = byDay([use('ada', ...amounts)], hours, dayEdges(NOW, 12));
    assert.equal(found.days.length, days, amounts.join());
    for (const one of found.owners) assert.equal(one.amounts.length, days);
  }
});
