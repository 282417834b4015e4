import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

/** Where each row of the table is in the sources. */
const POLLS: Record<string, [file: string, constant: string]> = {
  'a log that is followed': ['api/log_data.ts', 'EVERY_MS'],
  'a comparison: figures and curves': ['pages/compare_curves.tsx', 'EVERY_MS'],
  'use and quotas': ['pages/usage.tsx', 'EVERY_MS'],
  'forecasts of starts': ['api/forecasts.ts', 'EVERY_MS'],
  'curves of a job': ['api/job_data.ts', 'ANEW_MS'],
  "ranks' step times": ['pages/rank_map.tsx', 'ANEW_MS'],
  'the last hour of nodes': ['api/nodes_data.ts', 'MINUTE_MS'],
  'usage by day': ['pages/usage_page.tsx', 'EVERY_MS'],
};
// A clock, and the hook itself.
const OTHERS = ['ui/bits.tsx', 'ui/use_data.ts'];

test('docs/dashboard.md names what pages ask for again and again, and how often', () => {
  const rows = [...read('docs/dashboard.md').matchAll(/^\| (.*?) \| every ([\d.]+) s/gm)];
  const told = Object.fromEntries(rows.map(([, what, seconds]) => [what, Number(seconds)]));
  const found = Object.entries(POLLS).map(([what, [file, constant]]) => {
    const value = new RegExp(`const ${constant} = ([\\d_]+);`).exec(read(`web/src/${file}`))![1]!;
    return [what, Number(value.replaceAll('_', '')) / 1000];
  });
  assert.deepEqual(told, Object.fromEntries(found));
  const sources = new URL('../src/', import.meta.url).pathname;
  const polling = readdirSync(sources, { recursive: true, encoding: 'utf8' }).filter(
    (file) =>
      /\.tsx?$/.test(file) && /\b(useEvery|setInterval)\(/.test(readFileSync(join(sources, file), 'utf8')),
  );
  assert.deepEqual(polling.sort(), [...Object.values(POLLS).map(([file]) => file), ...OTHERS].sort());
});
