import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { test } from 'node:test';
import { picturesOf, THEMES } from '../dev/pictures.ts';

const docs = new URL('../../docs/', import.meta.url);

test('each page has its picture in both themes, and docs/dashboard.md shows it', () => {
  const text = readFileSync(new URL('dashboard.md', docs), 'utf8');
  const names = picturesOf(['1']).flatMap(([name]) => THEMES.map((theme) => `images/${name}-${theme}.png`));
  assert.equal(new Set(names).size, names.length);
  for (const name of names) {
    assert.ok(existsSync(new URL(name, docs)), `there is no docs/${name}: ./run screenshots`);
    assert.ok(statSync(new URL(name, docs)).size < 1e6, `docs/${name} is large`);
    assert.ok(text.includes(`(${name})`), `docs/dashboard.md does not show ${name}`);
  }
});
