// Curves great and small: what is drawn, with nothing but what the server sends.
import assert from 'node:assert/strict';
import type { Locator, Page } from 'playwright-core';
import { money, shortDuration } from '../src/lib/format.ts';
import { costOf } from '../src/lib/jobs.ts';
import { axe, browserTest, tabTo } from './harness.ts';

browserTest('the table of jobs has small curves of loss and top-1, time left and spend', async ({ page, server, base }) => {
  const begun = Date.now();
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
  // Of the moment in which it was drawn, whose text grows with it.
  const cost = (await row.locator('.c-cost').textContent())!;
  const least = money(costOf(job, begun), '');
  const most = money(costOf({ ...job, told_ms: begun }, Date.now()), '');
  const number = (text: string) => Number(text.replace(/[^\d.]/g, ''));
  assert.ok(number(cost) >= number(least) && number(cost) <= number(most), `${cost}, of ${least} to ${most}`);
  assert.match(cost, /^\d/);
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
  assert.deepEqual(heads.filter((head) => !head.includes(', ')), ['Step', ...stages]);
  // A look of its own each: colour says nothing alone.
  const dashes = await chart.locator('.legend svg path').evaluateAll((paths) =>
    paths.map((path) => path.getAttribute('stroke-dasharray')),
  );
  assert.equal(new Set(dashes).size, stages.length);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('how busy each node was is drawn beside it', async ({ page, base }) => {
  await page.goto(`${base}/nodes`);
  const curve = page.getByRole('img', { name: 'How busy gpu-1 was in the last hour' }).locator('path');
  await curve.waitFor({ state: 'attached' });
  assert.match((await curve.getAttribute('d'))!, /^M[\d.]+ [\d.]+L/);
  // Each node whose devices were read has one.
  assert.ok((await page.getByRole('img', { name: /^How busy .* was in the last hour$/ }).count()) >= 12);
}); // biome-ignore format: one argument

/** The next time that a job's curves themselves are asked for, and not what marks are placed by. */
const asking = (page: Page, wanted: (query: URLSearchParams) => boolean) =>
  page.waitForRequest((request) => {
    const url = new URL(request.url());
    const names = url.searchParams.get('names') ?? '';
    return (
      url.pathname.endsWith('/metrics') && names.includes('images_per_second') && wanted(url.searchParams)
    );
  });

browserTest('curves are laid out by epoch, images, time and step', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91`);
  const axis = page.getByRole('group', { name: 'Horizontal axis' });
  await page.getByRole('button', { name: 'Loss as a table' }).click();
  const table = page.locator('section[aria-label="Loss, table"]');
  await table.locator('tbody tr').first().waitFor();
  const rows: [string, RegExp][] = [
    ['Epoch', /^\d\d(\.\d+)?$/],
    ['Images', /^\d\d\s\d{3}\s\d{3}$/],
    ['Time', /^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d$/],
    ['Step', /^\d\d\s\d{3}$/],
  ];
  for (const [name, text] of rows) {
    const key = name.toLowerCase();
    const asked = asking(page, (query) => query.get('x') === key);
    await axis.getByRole('button', { name }).click();
    await asked;
    await table.locator('thead th:first-child', { hasText: name }).waitFor();
    await table.locator('tbody tr:first-child td:first-child', { hasText: text }).waitFor();
    assert.equal(await axis.getByRole('button', { name }).getAttribute('aria-pressed'), 'true');
    assert.equal(new URL(page.url()).searchParams.get('x'), key === 'step' ? null : key);
  }
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('how much curves are smoothed is asked of the server, and is in the address', async ({ page, base }) => {
  const first = asking(page, (query) => query.get('smooth') === '0.6');
  await page.goto(`${base}/jobs/91`);
  await first;
  const slider = page.getByLabel('Smoothing');
  const moved = asking(page, (query) => query.get('smooth') === '0.9');
  await slider.fill('0.9');
  await moved;
  await page.locator('label output', { hasText: '0.90' }).waitFor();
  assert.equal(new URL(page.url()).searchParams.get('smooth'), '0.9');
  const keyed = asking(page, (query) => query.get('smooth') === '0.89');
  await slider.press('ArrowLeft');
  await keyed;
  const none = asking(page, (query) => !query.has('smooth'));
  await slider.fill('0');
  await none;
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('validations are dots on their curve, in the legend too', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91`);
  for (const title of ['Loss', 'Accuracy']) {
    const legend = page.locator(`figure[aria-label=${title}] .legend span`, { has: page.locator('svg') });
    await legend.filter({ hasText: 'validation' }).first().waitFor();
    for (const one of await legend.all()) {
      const validation = (await one.textContent())!.startsWith('validation');
      assert.equal(await one.locator('circle').count(), validation ? 1 : 0, (await one.textContent())!);
    }
  }
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('parts of bars have a pattern of their own each, which their legend has too', async ({ page, base }) => {
  const fills = (parts: Locator) =>
    parts.evaluateAll((found) => found.map((one) => getComputedStyle(one).backgroundImage));
  await page.goto(`${base}/usage`);
  const byDay = page.locator('figure[aria-label="By day"]');
  await byDay.locator('.bars').waitFor();
  const owners = await fills(byDay.locator('.legend .swatch'));
  assert.ok(owners.length >= 5);
  assert.equal(new Set(owners).size, owners.length, owners.join('\n'));
  assert.deepEqual(await fills(byDay.locator('.bars div').first().locator('i')), owners);

  await page.goto(`${base}/jobs/91`);
  await page.locator('.stages i').first().waitFor();
  const stages = await fills(page.locator('.stages i'));
  assert.equal(new Set(stages).size, 6);
  assert.deepEqual(await fills(page.locator('table .swatch')), stages);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a chart is zoomed and shown whole again by keys alone', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91`);
  const plot = page.locator('figure[aria-label=Loss] .plot');
  await plot.locator('canvas').waitFor();
  await tabTo(page, plot);
  // What is looked at takes a while to come: the keys work meanwhile.
  await page.route(/\/metrics\?/, async (route) => {
    await new Promise((go) => setTimeout(go, 500));
    await route.continue();
  });
  const showAll = page.getByRole('button', { name: 'Show all' });
  for (const back of ['0', 'Enter']) {
    const closer = asking(page, (query) => query.has('from'));
    await page.keyboard.press('Shift+ArrowLeft');
    await page.keyboard.press('+');
    await closer;
    await showAll.waitFor();
    if (back === 'Enter') await tabTo(page, showAll, 'Shift+Tab');
    const all = asking(page, (query) => !query.has('from'));
    await page.keyboard.press(back);
    await all;
    await page.getByText('Drag over a chart to look closer').waitFor();
  }
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a part without reports is asked for once', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/91`);
  const plot = page.locator('figure[aria-label=Loss] .plot');
  await plot.locator('canvas').waitFor();
  const asked: string[] = [];
  await page.route(/\/metrics\?.*from=/, async (route) => {
    asked.push(route.request().url());
    const answer = await (await route.fetch()).json();
    for (const one of answer.series) one.points = [];
    await route.fulfill({ json: answer });
  });
  await page.waitForSelector('[data-state=live]');
  await plot.focus();
  await page.keyboard.press('Shift+ArrowLeft');
  // Steps that the history lacks as yet.
  for (let i = 0; i < 3; i++) server.live.tick();
  await page.waitForTimeout(200);
  await page.keyboard.press('+');
  await page.getByText('No figures').first().waitFor();
  await page.waitForTimeout(2500);
  assert.equal(asked.length, new Set(asked).size, asked.join('\n'));
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('the first curves of a job are asked for while it is not known yet what job it is, and once', async ({ page, base }) => {
  const asked: string[] = [];
  page.on('request', (request) => {
    const { pathname, searchParams } = new URL(request.url());
    if (!pathname.endsWith('/metrics') || searchParams.get('x') !== 'step' || !searchParams.has('smooth')) return;
    asked.push(searchParams.get('names')!);
  });
  const curves = page.waitForRequest((request) => /metrics\?names=loss%2Cval_loss&x=step/.test(request.url()));
  await page.route('**/api/v1/jobs/91', async (route) => {
    await curves;
    await route.continue();
  });
  await page.goto(`${base}/jobs/91`);
  await page.getByRole('figure', { name: 'Loss', exact: true }).locator('canvas').waitFor();
  await page.getByRole('figure', { name: 'Images per second', exact: true }).locator('canvas').waitFor();
  assert.deepEqual(asked.map((names) => names.split(',')[0]), ['loss', 'top1'], 'those of the first chart by themselves');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what a job reports first is drawn as soon as it has come', async ({ page, server, base }) => {
  const one = server.world.jobs.get('91')!;
  one.step = 0;
  delete one.job.last_step;
  delete one.job.last_epoch;
  // Where steps come at all the curves are loaded anew each 20 s: not here.
  await page.addInitScript(() => {
    const every = window.setInterval;
    window.setInterval = ((what: () => void, ms: number) => (ms === 20_000 ? 0 : every(what, ms))) as typeof every;
  });
  let answered = 0;
  page.on('requestfinished', (request) => {
    if (/names=(loss%2C|top1)/.test(request.url())) answered++;
  });
  await page.goto(`${base}/jobs/91`);
  await page.waitForSelector('[data-state=live]');
  for (let i = 0; answered < 2 && i < 400; i++) await page.waitForTimeout(50);
  await page.getByText('No figures yet').nth(3).waitFor();
  server.live.tick();
  server.live.tick();
  for (const title of ['Loss', 'Images per second']) await page.locator(`figure[aria-label="${title}"] canvas`).waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('where the other curves can not be had, that is said in their place, and the loss is drawn', async ({ page, base }) => {
  await page.route(
    (url) => (url.searchParams.get('names') ?? '').includes('images_per_second'),
    (route) => route.fulfill({ status: 503, json: { error: { code: 'UNAVAILABLE', message: 'it reads slowly' } } }),
  );
  await page.goto(`${base}/jobs/91`);
  await page.locator('figure[aria-label=Loss] canvas').waitFor();
  const trouble = page.locator('.charts').getByRole('alert');
  await trouble.getByText('it reads slowly').waitFor();
  assert.equal(await page.locator('figure[aria-label=Accuracy]').count(), 0);
  assert.equal(await axe(page), '');
  await page.unrouteAll();
  await trouble.getByRole('button', { name: 'Try again' }).click();
  await page.locator('figure[aria-label=Accuracy] canvas').waitFor();
  assert.equal(await trouble.count(), 0);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what marks are placed by is asked for once, whatever part of the curves is shown', async ({ page, base }) => {
  const asked: string[] = [];
  page.on('request', (request) => {
    const { pathname, searchParams } = new URL(request.url());
    const ofMarks =
      pathname.endsWith('/metrics') && searchParams.get('names') === 'loss,val_loss' && !searchParams.has('smooth');
    if (ofMarks || pathname.endsWith('/checkpoints')) asked.push(`${pathname} ${searchParams.get('x') ?? ''}`);
  });
  await page.goto(`${base}/jobs/91`);
  await page.waitForSelector('[data-state=live]');
  await page.locator('.charts .marks').waitFor();
  for (let i = 0; asked.length < 3 && i < 400; i++) await page.waitForTimeout(50);
  await page.waitForTimeout(300);
  const before = [...asked].sort();
  assert.ok(before.length >= 3, before.join());
  for (const name of ['Images', 'Step']) {
    const came = asking(page, (query) => query.get('x') === name.toLowerCase());
    await page.getByRole('group', { name: 'Horizontal axis' }).getByRole('button', { name }).click();
    await came;
    await page.locator('figure[aria-label=Loss] canvas').waitFor();
    await page.waitForTimeout(300);
  }
  assert.deepEqual(asked.sort(), before);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what a job’s page draws first is asked for before its code has come, and once', async ({ page, base }) => {
  const asked: string[] = [];
  const first = /\/metrics\?names=loss%2Cval_loss&x=epoch&points=1000&smooth=0.3$/;
  page.on('request', (request) => asked.push(request.url()));
  let go = () => {};
  const begun = new Promise<void>((done) => {
    go = done;
  });
  await page.route('**/assets/main-*.js', (route) => begun.then(() => route.continue()));
  const both = [/\/api\/v1\/jobs\/91$/, first].map((url) => page.waitForRequest(url));
  await page.goto(`${base}/jobs/91?x=epoch&smooth=0.3`, { waitUntil: 'commit' });
  await Promise.all(both);
  go();
  await page.getByRole('figure', { name: 'Accuracy' }).locator('canvas').waitFor();
  assert.ok(await page.getByRole('figure', { name: 'Loss' }).locator('canvas').isVisible());
  assert.equal(asked.filter((url) => first.test(url)).length, 1, asked.join('\n'));
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what was refused before the page’s code came is asked for anew', async ({ page, base }) => {
  let refuse = true;
  await page.route(/metrics\?names=loss%2Cval_loss&x=step/, (route) =>
    refuse ? route.fulfill({ status: 503, body: '{}' }) : route.continue(),
  );
  let go = () => {};
  const refused = new Promise<void>((done) => {
    go = done;
  });
  await page.route('**/assets/main-*.js', (route) => refused.then(() => route.continue()));
  const answer = page.waitForResponse(/metrics\?names=loss/);
  await page.goto(`${base}/jobs/90`, { waitUntil: 'commit' });
  assert.equal((await answer).status(), 503);
  refuse = false;
  go();
  await page.getByRole('figure', { name: 'Loss' }).locator('canvas').waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument
