// What axe finds on each page: nothing.
import assert from 'node:assert/strict';
import { axe, browserTest } from './harness.ts';

const PLACES = [
  '/',
  '/queue',
  '/nodes',
  '/nodes?view=table&q=l4',
  '/nodes/gpu-5',
  '/datasets',
  '/datasets/imagenet-176',
  '/datasets/shapes',
  '/datasets/places',
  '/usage',
  '/compare',
  '/compare?jobs=11,12,13',
  '/submit',
  // Of these one is over, one runs, one waits.
  '/jobs/5',
  '/jobs/5/logs',
  '/jobs/5/results',
  '/jobs/40',
  '/jobs/11',
  '/jobs/11/logs',
  '/jobs/11/results',
  '/jobs/11/timeline',
  '/jobs/11/config',
];

for (const dark of [false, true]) {
  browserTest(
    `axe finds nothing on any page, ${dark ? 'dark' : 'light'}`,
    async ({ page, base }) => {
      for (const path of PLACES) {
        await page.goto(base + path);
        await page.waitForSelector('main .panel');
        await page.waitForFunction(() => !document.querySelector('main')!.textContent!.includes('Loading …'));
        assert.equal(await axe(page), '', path);
      }
    },
    { dark, jobs: 40 },
  );
}

browserTest('axe finds nothing where there is nothing yet, and the page says what to do', async ({ page, base }) => {
  const rows: [string, RegExp][] = [
    ['/', /imgcli submit/],
    ['/nodes', /imgagent --server 127\.0\.0\.1:17650 /],
    ['/queue', /imgcli explain/],
    ['/datasets', /imgcli dataset register/],
    ['/usage', /imgcli usage/],
  ];
  for (const [path, command] of rows) {
    await page.goto(base + path);
    await page.waitForSelector('.empty');
    await page.locator('main', { hasText: command }).waitFor();
    assert.equal(await axe(page), '', path);
  }
}, { jobs: 0 }); // biome-ignore format: one argument
