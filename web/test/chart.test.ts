// What a chart shows is what there is: in its table, in its legend, on its axes.
import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import { addChange, startJob } from '../dev/jobs.ts';
import type { MetricPoint, MetricsResponse } from '../src/api/types.ts';
import { axe, browserTest } from './harness.ts';

/** Changes the points of a job's curves on their way to the page. */
const changed = (page: Page, change: (points: MetricPoint[], name: string, axis: string) => unknown[]) =>
  page.route(/\/metrics\?/, async (route) => {
    const response = await route.fetch();
    const answer = (await response.json()) as MetricsResponse;
    const axis = new URL(route.request().url()).searchParams.get('x') ?? 'step';
    const series = answer.series.map((one) => ({ ...one, points: change(one.points, one.name, axis) }));
    await route.fulfill({ response, json: { ...answer, series } });
  });

/** Seconds. */
const GAP = 1000;

browserTest('the table behind a chart has every validation, every peak, and values besides smoothed ones', async ({ page, server, base }) => {
  const { run, step } = server.world.jobs.get('91')!;
  run.spike = { step: 5100, loss: 77 };
  await page.goto(`${base}/jobs/91`);
  await page.getByRole('button', { name: 'Loss as a table' }).click();
  const table = page.locator('section[aria-label="Loss, table"]');
  const heads = table.locator('thead th');
  await heads.filter({ hasText: 'validation' }).waitFor();
  assert.deepEqual(await heads.allTextContents(), [
    'Step', 'training', 'training, least to most', 'training, smoothed', 'validation',
  ]);
  const validations = await table.locator('tbody td:nth-child(5)').allTextContents();
  assert.equal(validations.filter((text) => text !== '–').length, Math.floor(step / run.stepsPerEpoch));
  const spreads = await table.locator('tbody td:nth-child(3)').allTextContents();
  assert.equal(spreads.filter((text) => text.endsWith(' to 77.0')).length, 1);
  assert.equal(await axe(page), '');

  await page.getByLabel('Smoothing').fill('0');
  await heads.filter({ hasText: 'smoothed' }).waitFor({ state: 'detached' });
  assert.equal(await heads.count(), 4);
}, { everyMs: 0 }); // biome-ignore format: one argument

/** Coloured pixels of a chart in the middle third of a stretch of its axis, given by shares of the plot's width. */
const colouredIn = (page: Page, title: string, from: number, to: number) =>
  page.locator(`figure[aria-label="${title}"] canvas`).evaluate(
    (element, [left, right]) => {
      const canvas = element as HTMLCanvasElement;
      const plot = canvas.parentElement!.querySelector('.u-over')!.getBoundingClientRect();
      const whole = canvas.getBoundingClientRect();
      const scale = canvas.width / whole.width;
      const x = (plot.left - whole.left + (plot.width * (2 * left! + right!)) / 3) * scale;
      const width = (plot.width * (right! - left!) * scale) / 3;
      // Below the signs of marks.
      const top = (plot.top - whole.top + 12) * scale;
      const { data } = canvas.getContext('2d')!.getImageData(x, top, width, (plot.height - 12) * scale);
      let found = 0;
      for (let i = 0; i < data.length; i += 4) {
        const colours = [data[i]!, data[i + 1]!, data[i + 2]!];
        if (data[i + 3]! > 0 && Math.max(...colours) - Math.min(...colours) > 15) found++;
      }
      return found;
    },
    [from, to],
  );

browserTest('by time no curve goes through a pause', async ({ page, server, base }) => {
  const one = server.world.jobs.get('92')!;
  const { run } = one;
  const paused = run.begun + (one.step * run.secondsPerStep) / 2;
  addChange(one, paused, 'PAUSED', 'paused by ada', 'user:ada');
  startJob(one, paused + GAP, ['gpu-3']);
  const length = one.step * run.secondsPerStep + GAP;
  // With the band of its peaks, too.
  await changed(page, (points, _, axis) =>
    axis === 'time'
      ? points.map(([x, low, high, ...rest]) => [x > paused ? x + GAP : x, low - 0.3, high + 0.3, ...rest])
      : points,
  );
  const at = (paused - run.begun) / length;
  // In a comparison the axis counts from when each run began.
  for (const [path, title] of [['/jobs/92?x=time', 'Loss'], ['/compare?jobs=92&metric=loss&x=time', 'Training loss']]) {
    await page.goto(base + path);
    await page.locator(`figure[aria-label="${title}"] .legend span`, { has: page.locator('svg') }).first().waitFor();
    if (title === 'Loss') await page.locator('.charts .marks span').filter({ hasText: 'paused' }).waitFor();
    assert.ok((await colouredIn(page, title!, 0, at)) > 0, title);
    assert.ok((await colouredIn(page, title!, at + GAP / length, 1)) > 0, title);
    assert.equal(await colouredIn(page, title!, at, at + GAP / length), 0, title);
  }
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a job of one rank has no chart of how its ranks differ', async ({ page, base }) => {
  await changed(page, (points, name) =>
    name.startsWith('own_') ? points.map(([x]) => [x, null, null, null, null]) : points,
  );
  await page.goto(`${base}/jobs/91`);
  await page.locator('figure[aria-label="Images per second"] canvas').waitFor();
  await page.locator('figure[aria-label="Time of a step by stage"]').waitFor();
  assert.equal(await page.locator('figure[aria-label="Own work of the ranks"]').count(), 0);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('of a loss that diverged the legend shows no value of before, and its large ones fit beside the axis', async ({ page, base }) => {
  await page.addInitScript(() => {
    const written: string[] = [];
    Object.assign(window, { written });
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      written.push(text);
      write.call(this, text, ...rest);
    };
  });
  await changed(page, (points, name) => {
    if (name !== 'loss') return points;
    return points.map(([x, ...rest], i) => [x, ...rest.map((value) => (i > points.length - 5 ? null : value! * 1e13))]);
  });
  await page.goto(`${base}/jobs/91`);
  const legend = page.locator('figure[aria-label=Loss] .legend span', { has: page.locator('svg') });
  // Before its curves have come the legend has a line too, of no value.
  await page.locator('figure[aria-label=Loss] canvas').waitFor();
  assert.equal(await legend.filter({ hasText: 'training' }).textContent(), 'training NaN');
  const written = await page.evaluate(() => (window as unknown as { written: string[] }).written);
  assert.ok(written.some((text) => /^\d(\.\d+)?e13$/.test(text)), written.join(' | '));
  const long = written.filter((text) => /^\d/.test(text) && text.replaceAll('\u202f', '').length > 9);
  assert.deepEqual(long, []);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('where a step’s time goes is all of it, with what no stage took', async ({ page, server, base }) => {
  const { times, loader } = server.world.jobs.get('91')!.job.last_step!;
  await page.goto(`${base}/jobs/91`);
  const panel = page.locator('section.panel', { has: page.getByRole('heading', { name: 'Where a step’s time goes' }) });
  const other = panel.locator('tbody tr', { hasText: 'Other' });
  await other.waitFor();
  assert.match((await other.textContent())!, /2\u00a0%$/);
  const step = (Number(loader!.interval_seconds) / times!.steps) * 1000;
  assert.equal(Number.parseFloat((await panel.locator('header .muted').textContent())!), Number(step.toPrecision(3)));
}, { everyMs: 0 }); // biome-ignore format: one argument
