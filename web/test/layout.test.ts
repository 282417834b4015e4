// On a laptop's screen, 1,280 pixels wide.
import assert from 'node:assert/strict';
import { browserTest } from './harness.ts';

const WIDTH = 1280;

browserTest('the table of jobs has room for why, and a matrix for all of its columns', async ({ page, base }) => {
  await page.setViewportSize({ width: WIDTH, height: 900 });
  await page.goto(base);
  await page.waitForSelector('.rows [role=row]');
  await page.getByRole('columnheader', { name: 'Spend, USD' }).waitFor();
  await page.goto(base);
  await page.waitForSelector('.rows .c-why');
  const beyond = (selector: string) =>
    page.locator(selector).evaluate((element) => element.scrollWidth - element.clientWidth);
  assert.ok((await beyond('.grid-wrap')) <= 0, 'the table is not wider than its place');

  await page.goto(`${base}/jobs/91/results`);
  const matrix = 'section[aria-label="What was taken for what"]';
  await page.waitForSelector(matrix);
  assert.ok((await beyond(matrix)) <= 0, 'the matrix is not wider than its place');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('charts take all of a row, also of the last', async ({ page, base }) => {
  await page.setViewportSize({ width: WIDTH, height: 900 });
  await page.goto(`${base}/jobs/91`);
  await page.waitForSelector('.rank-map');
  const boxes = await page.locator('.charts > figure').evaluateAll((all) =>
    all.map((one) => {
      const { top, right } = one.getBoundingClientRect();
      return { top: Math.round(top), right: Math.round(right) };
    }),
  );
  const rows = new Map<number, number>();
  for (const { top, right } of boxes) rows.set(top, Math.max(rows.get(top) ?? 0, right));
  assert.ok(rows.size > 1);
  assert.equal(new Set(rows.values()).size, 1, [...rows.values()].join(', '));
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what happened on which day can be read below the bars', async ({ page, base }) => {
  await page.setViewportSize({ width: WIDTH, height: 900 });
  await page.goto(`${base}/usage`);
  await page.waitForSelector('.bars small', { state: 'attached' });
  const days = (await page.locator('.bars small').allTextContents()).filter(Boolean);
  const all = await page.locator('.bars small').count();
  assert.ok(days.length >= Math.min(all, 7), days.join());
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('states and GPUs that need a look fit their cells', async ({ page, base }) => {
  await page.setViewportSize({ width: WIDTH, height: 900 });
  await page.goto(`${base}/?state=completed`);
  await page.waitForSelector('.rows .c-state');
  const cut = await page
    .locator('.rows .c-state')
    .evaluateAll((all) => all.filter((one) => one.scrollWidth > one.clientWidth).length);
  assert.equal(cut, 0);
  await page.goto(`${base}/nodes`);
  await page.waitForSelector('.gpu.trouble');
  const texts = await page.locator('.gpu.trouble > span:first-child').allTextContents();
  assert.ok(texts.every((text) => text.length <= 7), texts.join());
}, { everyMs: 0 }); // biome-ignore format: one argument
