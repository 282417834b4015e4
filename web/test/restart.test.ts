// A job that starts again from an older checkpoint.
import assert from 'node:assert/strict';
import { browserTest } from './harness.ts';

browserTest('the steps that a job does again are shown as they come', async ({ page, server, base }) => {
  const one = server.world.jobs.get('91')!;
  const step = page
    .locator('.facts > div', { has: page.locator('dt', { hasText: 'Step' }) })
    .locator('dd');
  const shown = async () => Number((await step.textContent())!.replace(/of.*/, '').replace(/\D/g, ''));
  await page.goto(`${base}/jobs/91`);
  await page.waitForSelector('[data-state=live]');
  await step.waitFor();
  server.live.tick();
  const before = one.step;
  for (let i = 0; (await shown()) !== before; i++) {
    assert.ok(i < 100, `the page shows ${await shown()}, not ${before}`);
    await page.waitForTimeout(100);
  }
  // It is described with the last step of the start before.
  one.job.generation = String(Number(one.job.generation) + 1);
  server.live.tell(one);
  // Within its epoch: at another one the stream describes the job anew.
  one.step -= 100;
  server.live.tick();
  assert.ok(one.step < before);
  for (let i = 0; (await shown()) !== one.step; i++) {
    assert.ok(i < 100, `the page shows ${await shown()}, not ${one.step}`);
    await page.waitForTimeout(100);
  }
}, { everyMs: 0 }); // biome-ignore format: one argument
