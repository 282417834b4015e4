import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const EMBED = new URL('../embed.ts', import.meta.url).pathname;

/** Embeds a page and a runbook of so many bytes that nothing makes smaller; whether it was written, and what was said. */
function embed(page: number, runbook: number): { written: boolean; said: string } {
  const folder = mkdtempSync(join(tmpdir(), 'embed-'));
  try {
    for (const [name, bytes] of [['dist/a.js', page], ['runbooks/b.md', runbook]] as const) {
      mkdirSync(join(folder, name, '..'), { recursive: true });
      writeFileSync(join(folder, name), randomBytes(bytes));
    } // biome-ignore format: a list of two
    const out = join(folder, 'pages.cc');
    const done = spawnSync(process.execPath, [EMBED, join(folder, 'dist'), join(folder, 'runbooks'), out]);
    return { written: existsSync(out), said: `${done.stdout}${done.stderr}` };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test('a page that has more than 100,000 bytes with its runbooks is refused', () => {
  assert.match(embed(60_000, 39_000).said, /^the dashboard: 2 files, 99\d{3} bytes compressed/);
  const { written, said } = embed(60_000, 41_000);
  assert.match(said, /101\d{3} bytes compressed, and 100000 are allowed/);
  assert.equal(written, false);
});
