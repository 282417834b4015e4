// The log of a job: by keys, and while it is followed for long.
import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import { browserTest, tabTo } from './harness.ts';

browserTest('by keys alone: a line of the log is linked to', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91/logs?rank=0`);
  await page.locator('.log .line').first().waitFor();
  await tabTo(page, page.getByRole('log'));
  await page.keyboard.press('Tab');
  const number = await page.evaluate(() => {
    const link = document.activeElement!;
    return link.matches('.log .line a') ? link.textContent : '';
  });
  assert.match(number!, /^\d+$/, 'the lines follow on the log');
  await page.keyboard.press('Enter');
  await page.waitForURL(/line=2\.0\.\d+/);
  assert.equal(await page.locator('.line.chosen .no').textContent(), number);
  await page.goto(page.url());
  assert.equal(await page.locator('.line.chosen .no').textContent(), number);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a log that is followed for long keeps a bounded newest part, and what was before it can be read', async ({ page, server, base }) => {
  const one = server.world.jobs.get('91')!;
  one.run.epochs = 1e6;
  await page.goto(`${base}/jobs/91/logs?rank=0`);
  const told = page.locator('header [aria-live]', { hasText: 'lines' });
  const stretch = async () => (await told.textContent())!.replaceAll('\u202f', '').match(/\d+/g)!.map(Number) as [number, number];
  await told.waitFor();
  const [, begun] = await stretch();
  const write = async (lines: number) => {
    one.step += lines * 50;
    const last = one.step / 50;
    await page.waitForFunction(
      (wanted) => {
        const text = document.querySelector('header span[aria-live]')!.textContent!.replaceAll('\u202f', '');
        return text.endsWith(`to ${wanted}`);
      },
      Math.floor(last),
    );
  };
  await write(15_000);
  assert.deepEqual(await stretch(), [1, begun + 15_000], 'as long as they are few, all are kept');
  await write(15_000);
  const [first, last] = await stretch();
  assert.equal(last, begun + 30_000);
  assert.ok(last - first < 26_000, `${last - first} lines are kept`);
  // It goes on, and back.
  await write(10);
  await page.locator('.log').evaluate((log) => log.scrollTo(0, 0));
  await page.getByRole('button', { name: 'Older lines' }).click();
  await page.waitForFunction(
    (wanted) => document.querySelector('header span[aria-live]')!.textContent!.replaceAll('\u202f', '').startsWith(`lines ${wanted} `),
    first - 5000,
  );
}, { everyMs: 0 }); // biome-ignore format: one argument

/** What is asked for anew of a log, apart from what comes. */
function questions(page: Page): Set<string> {
  const asked = new Set<string>();
  page.on('request', (request) => {
    const { pathname, search } = new URL(request.url());
    if (/^\/api\/.*\/logs$/.test(pathname) && !search.includes('after=')) asked.add(search);
  });
  return asked;
}

browserTest('a click on the number of a line leaves the log as it is: of one rank, and of a start before', async ({ page, server, base }) => {
  const { job } = server.world.jobs.get('91')!;
  Object.assign(job, { nodes: 1, nodes_now: 1, max_nodes: 1, ranks_per_node: 1 });
  const asked = questions(page);
  await page.goto(`${base}/jobs/91/logs`);
  await page.waitForSelector('[data-state=live]');
  const log = page.locator('.log');
  const lastOf = (start: number) => log.locator(`a[href$="line=${start}.0.428"]`);
  const follow = page.getByRole('button', { name: 'Follow' });
  const choose = async () => {
    await log.evaluate((element) => element.scrollTo(0, 2000));
    await page.locator('button[aria-pressed=false]', { hasText: 'Follow' }).waitFor();
    await log.locator('a[href$="line=2.0.120"]').click();
    await page.waitForURL(/line=2\.0\.120$/);
  };
  await lastOf(2).waitFor();
  await choose();
  job.generation = '3';
  server.live.tell(server.world.jobs.get('91')!);
  await page.getByLabel('Start').locator('option', { hasText: 'Start 3' }).waitFor({ state: 'attached' });
  assert.equal(await page.textContent('.line.chosen .no'), '120');
  assert.equal(await log.evaluate((element) => element.scrollTop), 2000);
  // It goes on with the start that came, and a line of the one before is clicked.
  await follow.click();
  await lastOf(3).waitFor();
  await choose();
  assert.equal(await page.textContent('.line.chosen .no'), '120');
  await follow.click();
  await lastOf(3).waitFor();
  assert.deepEqual([...asked], ['?rank=0&tail=5000']);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a line that is clicked among those of long ago stays in view, also without the search that found it', async ({ page, server, base }) => {
  const one = server.world.jobs.get('91')!;
  one.run.epochs = 1e6;
  one.step = 20_000 * 50;
  const line = (number: number) => page.locator(`.line a[href$="line=2.0.${number}"]`);
  await page.goto(`${base}/jobs/91/logs?line=2.0.1200`);
  await line(1205).click();
  await page.locator('.line.chosen a[href$="line=2.0.1205"]').waitFor();
  await page.getByLabel('Search the lines').fill('step=350000 epoch');
  await page.locator('.log mark').waitFor();
  await line(7000).click();
  await page.waitForURL(/line=2\.0\.7000/);
  await page.getByLabel('Search the lines').fill('');
  await line(7001).waitFor();
  assert.equal(await page.textContent('.line.chosen .no'), '7000');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('one line that a search finds is one line', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/91/logs?rank=0&q=${encodeURIComponent('step=100 epoch')}`);
  await page.locator('.log .line').first().waitFor();
  assert.equal(await page.textContent('header span[aria-live]'), '1 line like that');
  assert.ok(server.world.jobs.get('91')!.step > 100);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('of a start that had more nodes each rank can be chosen', async ({ page, server, base }) => {
  const { job } = server.world.jobs.get('91')!;
  Object.assign(job, { nodes: 1, nodes_now: 1, max_nodes: 2 });
  await page.goto(`${base}/jobs/91/logs`);
  const ranks = page.getByLabel('Rank').locator('option');
  await page.locator('.log .line').first().waitFor();
  assert.equal(await ranks.count(), 9, 'those that run, and all of them');
  await page.getByLabel('Start').selectOption('1');
  await page.getByLabel('Rank').selectOption('15');
  await page.waitForURL(/start=1/);
  assert.match(page.url(), /rank=15/);
  await page.getByLabel('Start').selectOption('2');
  await page.getByLabel('Rank').selectOption('7');
  assert.equal(await ranks.count(), 9);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('of a rank that there is none of the page says just that, and what is no number is no rank', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91/logs?rank=99`);
  await page.getByRole('alert').getByText('job 91 has no rank 99').waitFor();
  assert.equal(await page.locator('.log .empty').count(), 0);
  await page.goto(`${base}/jobs/91/logs?rank=abc&start=x`);
  await page.locator('.log .line').first().waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
  assert.equal(await page.getByLabel('Rank').inputValue(), 'all');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('of an ended job without figures and lines nothing is awaited', async ({ page, base }) => {
  await page.route('**/api/v1/jobs/11/metrics?*', (route) =>
    route.fulfill({ json: { images_per_epoch: 0, series: [] } }),
  );
  await page.route('**/api/v1/jobs/11/logs?*', (route) =>
    route.fulfill({ json: { lines: [], truncated: false, generation: '1', next: '', previous: '' } }),
  );
  await page.goto(`${base}/jobs/11`);
  await page.getByText('No figures: it reported none, or they are not kept any more').first().waitFor();
  await page.goto(`${base}/jobs/11/logs`);
  await page.getByText('No lines: none was written, or they are not kept any more').waitFor();
}); // biome-ignore format: one argument

for (const follows of [true, false])
  browserTest(`what a job wrote last is shown once it has ended, to one who ${follows ? 'follows' : 'reads further up'}`, async ({ page, server, base }) => {
    const one = server.world.jobs.get('91')!;
    await page.goto(`${base}/jobs/91/logs?rank=3`);
    const told = page.locator('header [aria-live]', { hasText: 'lines' });
    await told.waitFor();
    await page.waitForSelector('[data-state=live]');
    if (!follows) {
      await page.locator('.log').evaluate((log) => log.scrollTo(0, 0));
      await page.locator('button[aria-pressed=false]', { hasText: 'Follow' }).waitFor();
    }
    one.step += 500;
    server.live.change(one, 'FAILED', 'rank 3 failed', 'agent:gpu-1', 'RANK_FAILED');
    // 10 lines, and three of its failure.
    const last = Math.floor(one.step / 50) + 3;
    await page.waitForFunction(
      (wanted) => document.querySelector('header span[aria-live]')!.textContent!.replaceAll('\u202f', '').endsWith(`to ${wanted}`),
      last,
    );
    if (follows) await page.getByText('[error] rank=3 failed: CUDA out of memory').waitFor();
  }, { everyMs: 0 }); // biome-ignore format: one argument
