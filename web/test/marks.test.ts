// What happened to a job, on its charts: drawn, in the legend, and said to who can't see it.
import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import { addChange, startJob } from '../dev/jobs.ts';
import type { DevServer } from '../dev/server.ts';
import { MARK_TONES } from '../src/lib/marks.ts';
import { axe, browserTest, tabTo } from './harness.ts';

const PREEMPTED = 'job 9420 (rn50-urgent) of a higher priority needs gpu-3 and gpu-4';
const FAILED = 'rank 3 on node gpu-2 failed with exit code 1';
const RESIZED = 'grows from 2 nodes to 3';

/** Job 91, which was preempted at step 8,800 and saves each epoch, also failed, was resized, and has a second phase. */
function liveThroughAll(server: DevServer): void {
  const one = server.world.jobs.get('91')!;
  const at = (step: number) => one.run.begun + step * one.run.secondsPerStep;
  addChange(one, at(14_000), 'QUEUED', FAILED, 'agent:gpu-2', 'RANK_FAILED');
  startJob(one, at(15_000), ['gpu-1', 'gpu-2']);
  addChange(one, at(17_000), 'PREEMPTING', RESIZED, 'scheduler', 'RESIZED');
  addChange(one, at(17_100), 'QUEUED', RESIZED, 'agent:gpu-1', 'RESIZED');
  startJob(one, at(18_000), ['gpu-1', 'gpu-2', 'gpu-3']);
  one.job.job_yaml += 'phases:\n  - {epochs: 18, image_size: 128}\n  - {epochs: 72, image_size: 224}\n';
}

/** Pixels of the colour on the chart of the loss; no curve of it has that of one of these marks. */
const pixels = (page: Page, tone: string) =>
  page.locator('figure[aria-label=Loss] canvas').evaluate((element, name) => {
    const own = document.createElement('canvas').getContext('2d')!;
    const shown = document.body.appendChild(document.createElement('i'));
    shown.style.color = `var(--${name})`;
    own.fillStyle = getComputedStyle(shown).color;
    shown.remove();
    own.fillRect(0, 0, 1, 1);
    const wanted = own.getImageData(0, 0, 1, 1).data;
    const canvas = element as HTMLCanvasElement;
    const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let i = 0; i < data.length; i += 4)
      if ([0, 1, 2, 3].every((part) => data[i + part] === wanted[part])) found++;
    return found;
  }, tone);

browserTest('what happened to a job is marked on its charts, and said where the keys are', async ({ page, server, base }) => {
  const legend = page.locator('.charts .marks span');
  await page.goto(`${base}/jobs/92`);
  await legend.filter({ hasText: 'checkpoint' }).waitFor();
  assert.equal(await legend.count(), 1, 'nothing else happened to it');
  for (const tone of ['bad', 'warn', 's5']) assert.equal(await pixels(page, tone), 0, tone);

  liveThroughAll(server);
  await page.goto(`${base}/jobs/91`);
  await legend.nth(4).waitFor();
  const kinds = Object.values(MARK_TONES);
  assert.deepEqual(await legend.allTextContents(), kinds.map(({ sign, text }) => `${sign} ${text}`));
  for (const tone of ['bad', 'warn', 's5']) assert.ok((await pixels(page, tone)) > 0, `${tone} is not drawn`);

  const plot = page.locator('figure[aria-label=Loss] .plot');
  await tabTo(page, plot);
  const said = new Set<string>();
  for (let i = 0; i < 100; i++) {
    await page.keyboard.press('ArrowLeft');
    const mark = /\. ([^.]*)\. The button/.exec((await plot.getAttribute('aria-label'))!)?.[1];
    if (mark) said.add(mark);
  }
  const list = [...said].join('\n');
  for (const mark of [
    `preempted, paused: ${PREEMPTED}`,
    'started again, resized: all 16 ranks train',
    `failed: ${FAILED}`,
    `started again, resized: ${RESIZED}`,
    'started again, resized: all 24 ranks train',
    'next phase: phase 2, from epoch 18',
    'checkpoint: checkpoint at step 626',
  ])
    assert.ok(said.has(mark), `'${mark}' is not among\n${list}`);
  assert.equal(await axe(page), '');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('marks keep their places where a part of the curves is shown', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91`);
  const legend = page.locator('.charts .marks span');
  await legend.nth(2).waitFor();
  const kinds = await legend.allTextContents();
  await tabTo(page, page.locator('figure[aria-label=Loss] .plot'));
  // What it was preempted and started again at lies before this part.
  const part = page.waitForResponse((response) => /metrics\?names=loss%2C.*from=/.test(response.url()));
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('+');
  await part;
  await page.waitForTimeout(500);
  assert.deepEqual(await legend.allTextContents(), kinds);
  await page.route(/\/metrics\?/, async (route) => {
    await new Promise((go) => setTimeout(go, 500));
    await route.continue();
  });
  const all = page.waitForRequest(/\/metrics\?/);
  await page.keyboard.press('0');
  await all;
  assert.deepEqual(await legend.allTextContents(), kinds, 'while the whole is awaited, too');
}, { everyMs: 0 }); // biome-ignore format: one argument
