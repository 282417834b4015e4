// What axe finds on each page: nothing.
import assert from 'node:assert/strict';
import type { DevServer } from '../dev/server.ts';
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

/** What stands beside a link is longer than it: then it is a link in a text, which needs more than a colour. */
function shortNames(server: DevServer): void {
  for (const { job } of server.world.jobs.values()) job.name = 'a';
}

for (const dark of [false, true]) {
  browserTest(
    `links in a text are told from it by more than their colour, ${dark ? 'dark' : 'light'}`,
    async ({ page, server, base }) => {
      shortNames(server);
      const rows: [string, string][] = [
        ['/nodes/gpu-6', 'section[aria-label="Runs on gpu-6"] tbody a'],
        ['/usage', 'section[aria-label="Jobs that took most"] tbody a'],
        ['/queue', 'section[aria-label="In the queue"] tbody a'],
        ['/compare?jobs=11,12', 'section[aria-label=Figures] tbody a'],
      ];
      const found: string[] = [];
      for (const [path, link] of rows) {
        await page.goto(base + path);
        await page.locator(link).first().waitFor();
        const said = await axe(page);
        if (said) found.push(`${path} ${said}`);
        // Of what lies below others in a table that scrolls axe can't tell the colours.
        const line = await page
          .locator(link)
          .first()
          .evaluate((one) => getComputedStyle(one).textDecorationLine);
        if (line !== 'underline') found.push(`${path} is not underlined`);
      }
      assert.deepEqual(found, []);
    },
    { dark, everyMs: 0 },
  );

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
    ['/', /imgcli --server 127\.0\.0\.1:17650 submit/],
    ['/nodes', /--cpu-slots N/],
    ['/nodes', /imgagent --server 127\.0\.0\.1:17650 /],
    ['/queue', /imgcli --server 127\.0\.0\.1:17650 explain/],
    ['/datasets', /imgcli --server 127\.0\.0\.1:17650 dataset register/],
    ['/usage', /imgcli --server 127\.0\.0\.1:17650 usage/],
  ];
  for (const [path, command] of rows) {
    await page.goto(base + path);
    await page.waitForSelector('.empty');
    await page.locator('main', { hasText: command }).waitFor();
    assert.equal(await axe(page), '', path);
  }
}, { jobs: 0 }); // biome-ignore format: one argument
