import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { matchPath } from './route.ts';

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

test('a name in an address is decoded, once', () => {
  assert.deepEqual(matchPath('/nodes/:name', '/nodes/rack%232%3F%2541'), { name: 'rack#2?%41' });
  assert.deepEqual(matchPath('/nodes/:name', '/nodes/a%2Fb'), { name: 'a/b' });
  assert.equal(matchPath('/nodes/:name', '/nodes/a/b'), null);
  assert.equal(matchPath('/nodes/:name', '/nodes/%zz'), null);
  assert.deepEqual(matchPath('/', '/'), {});
});
