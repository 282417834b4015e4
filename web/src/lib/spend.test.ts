import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JobRow } from './jobs.ts';
import { byDay } from './spend.ts';

const NOW = new Date(2026, 10, 20, 12).getTime();
const HOUR = 3_600_000;
const job = (owner: string, cost: number, fromHours: number, toHours: number | null) =>
  ({
    owner,
    cost,
    job: {
      started_us: String((NOW - fromHours * HOUR) * 1000),
      ended_us: toHours === null ? '0' : String((NOW - toHours * HOUR) * 1000),
    },
  }) as JobRow;

test('what jobs took, by day and owner', () => {
  const rows: [string, JobRow[], [string, number[]][]][] = [
    ['nothing', [], []],
    ['today, still running', [job('ada', 6, 6, null)], [['ada', [0, 0, 6]]]],
    ['over midnight: evenly', [job('ada', 8, 20, 4)], [['ada', [0, 4, 4]]]],
    ['what was before the first day is left out', [job('ada', 10, 70, 50)], [['ada', [5, 0, 0]]]],
    ['long ago', [job('ada', 10, 170, 150)], []],
    ['no cost, not started', [job('ada', 0, 5, 4), { ...job('lena', 5, 0, 0), job: { started_us: '0', ended_us: '0' } } as JobRow], []],
    ['who took most comes first', [job('ada', 1, 3, 2), job('lena', 5, 3, 2)], [['lena', [0, 0, 5]], ['ada', [0, 0, 1]]]],
  ]; // biome-ignore format: a table
  for (const [what, jobs, wanted] of rows) {
    const found = byDay(jobs, (row) => row.cost, NOW, 3);
    assert.deepEqual(
      found.owners.map((one) => [one.name, one.amounts.map((value) => Math.round(value * 1000) / 1000)]),
      wanted,
      what,
    );
  }
});
