// Curves great and small: what is drawn, with nothing but what the server sends.
import assert from 'node:assert/strict';
import { money, shortDuration } from '../src/lib/format.ts';
import { browserTest } from './harness.ts';

browserTest('the table of jobs has small curves of loss and top-1, time left and spend', async ({ page, server, base }) => {
  await page.goto(`${base}/?state=running`);
  const row = page.locator('#row-91');
  for (const name of ['Loss of job 91', 'Training top-1 of job 91']) {
    const curve = row.getByRole('img', { name });
    await curve.waitFor();
    // Of what the history has: nothing comes live here.
    const points = (await curve.locator('path').getAttribute('d'))!.split(/[ML]/).length - 1;
    assert.equal(points, 40, name);
  }
  const { job } = server.world.jobs.get('91')!;
  assert.equal(await row.locator('.c-eta').textContent(), shortDuration(job.last_step!.eta_seconds));
  assert.match((await row.locator('.c-eta').textContent())!, /^\d+[hm]/);
  assert.equal(await row.locator('.c-cost').textContent(), money(job.cost, ''));
  assert.match((await row.locator('.c-cost').textContent())!, /^\d/);
  assert.match((await row.locator('.c-loss').textContent())!, /^\d\.\d{3}$/);
  assert.match((await row.locator('.c-top1').textContent())!, /^\d\d\.\d\u00a0%$/);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('where the time of a step goes is a curve for each stage', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91`);
  const chart = page.getByRole('figure', { name: 'Time of a step by stage' });
  await chart.locator('canvas').waitFor();
  const stages = ['input', 'forward', 'backward', 'other ranks', 'optimizer'];
  assert.match((await chart.getByRole('img').first().getAttribute('aria-label'))!, /forward \d+\.?\d*\u00a0ms/);
  await chart.getByRole('button', { name: 'Time of a step by stage as a table' }).click();
  const heads = await chart.locator('thead th').allTextContents();
  assert.deepEqual(heads, ['Step', ...stages]);
  // A look of its own each: colour says nothing alone.
  const dashes = await chart.locator('.legend svg path').evaluateAll((paths) =>
    paths.map((path) => path.getAttribute('stroke-dasharray')),
  );
  assert.equal(new Set(dashes).size, stages.length);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('how busy each node was is drawn beside it, and goes on', async ({ page, base }) => {
  await page.goto(`${base}/nodes`);
  const curve = page.getByRole('img', { name: 'How busy gpu-1 was' }).locator('path');
  await curve.waitFor({ state: 'attached' });
  const before = await curve.getAttribute('d');
  assert.match(before!, /^M[\d.]+ [\d.]+L/);
  await page.waitForFunction(
    (old) => {
      const now = document.querySelector('svg[aria-label="How busy gpu-1 was"] path')!.getAttribute('d')!;
      return now.split('L').length > old!.split('L').length;
    },
    before,
  );
  // Each node whose devices were read has one.
  assert.ok((await page.getByRole('img', { name: /^How busy .* was$/ }).count()) >= 12);
}); // biome-ignore format: one argument
