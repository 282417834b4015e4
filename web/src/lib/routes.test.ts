import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const read = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8');

test('imgd serves each address of the pages, and no others', () => {
  const ours = [...read('../app.tsx').matchAll(/^ {2}\['(\/[^']*)', '/gm)].map((found) =>
    found[1]!.replaceAll(/:(\w+)/g, '{$1}'),
  );
  const list = /kPages[^{]*\{([^;]*)\};/.exec(read('../../../server/web/static_files.cc'))![1]!;
  const served = [...list.matchAll(/"([^"]+)"/g)].map((found) => found[1]!);
  assert.ok(ours.length > 8);
  assert.deepEqual(served.sort(), ours.sort());
});
