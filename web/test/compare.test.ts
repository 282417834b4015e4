// As many runs as can be compared, and one more.
import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import { endJob } from '../dev/jobs.ts';
import { figure, unit } from '../src/lib/format.ts';
import { axe, browserTest, tabTo } from './harness.ts';

const jobs = (count: number) => Array.from({ length: count }, (_, i) => i + 1).join(',');

/** Keeps what is written on charts in `window.written`. */
const keepWritten = (page: Page) =>
  page.addInitScript(() => {
    const written: string[] = [];
    Object.assign(window, { written });
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      written.push(text);
      write.call(this, text, ...rest);
    };
  });

browserTest('twenty runs are compared, and no two curves look the same, with colour or without', async ({ page, base }) => {
  await keepWritten(page);
  await page.goto(`${base}/compare?jobs=${jobs(20)}&metric=loss`);
  await page.locator('figure .legend svg').nth(19).waitFor();
  const looks = await page.locator('figure .legend svg path').evaluateAll((paths) =>
    paths.map((path) => `${path.getAttribute('stroke')} ${path.getAttribute('stroke-dasharray')}`),
  );
  assert.equal(new Set(looks).size, 20);
  // Of which four have the same dashes each: each curve has its number at its end.
  const numbers = jobs(20).split(',');
  await page.waitForFunction(
    (wanted) => wanted.every((id) => (window as unknown as { written: string[] }).written.includes(id)),
    numbers,
  );
  assert.equal(await page.locator('section[aria-label=Figures] tbody tr').count(), 20);
  assert.equal(await page.locator('section[aria-label="Settings that differ"] thead th').count(), 21);
  assert.equal(await page.getByText('can be compared').count(), 0);
  // As many as fit are in the table behind the chart too.
  await page.getByRole('button', { name: 'Training loss as a table' }).click();
  const heads = await page.locator('section[aria-label="Training loss, table"] thead th').allTextContents();
  for (const id of numbers)
    assert.equal(heads.filter((head) => head.startsWith(`${id} `) && head.endsWith(', smoothed')).length, 1, id);
  assert.equal(heads.filter((head) => /^\d+ [^,]+$/.test(head)).length, 20, 'the values themselves too');
}); // biome-ignore format: one argument

browserTest(
  'of twenty-one the page says which is not shown, until another is left out',
  async ({ page, base }) => {
    await page.goto(`${base}/compare?jobs=${jobs(21)}`);
    const said = page.getByText('At most 20 jobs can be compared: 21 is not shown');
    await said.waitFor();
    const rows = page.locator('section[aria-label=Figures] tbody tr');
    await rows.nth(19).waitFor();
    assert.equal(await rows.count(), 20);
    assert.equal(await axe(page), '');
    await page.getByRole('button', { name: 'Leave out job 3', exact: true }).click();
    await page.getByRole('button', { name: 'Leave out job 21', exact: true }).waitFor();
    await said.waitFor({ state: 'detached' });
    assert.equal(await rows.count(), 20);
    // One that is added is told of too, not dropped.
    await page.getByLabel('Numbers of jobs').fill('30, 31');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByText('At most 20 jobs can be compared: 30, 31 are not shown').waitFor();
  },
);

browserTest('a comparison is looked at closely by the mouse, by time too, and by keys alone', async ({ page, base }) => {
  await page.goto(`${base}/compare?jobs=91,92,93,94&metric=loss&x=time`);
  const plot = page.locator('figure .plot');
  await plot.locator('canvas').waitFor();
  await page.locator('figure .legend svg').nth(3).waitFor();
  const asked: URL[] = [];
  page.on('request', (request) => {
    if (/metrics.*from=/.test(request.url())) asked.push(new URL(request.url()));
  });
  const box = (await plot.boundingBox())!;
  await page.mouse.move(box.x + box.width / 2, box.y + 100);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2 + 60, box.y + 100, { steps: 4 });
  await page.mouse.up();
  const showAll = page.getByRole('button', { name: 'Show all' });
  await showAll.waitFor();
  const four = async () => {
    for (let i = 0; asked.length < 4 && i < 400; i++) await page.waitForTimeout(50);
  };
  await four();
  // Each run's own time: the same stretch since each began.
  const froms = asked.slice(0, 4).map((url) => Number(url.searchParams.get('from')));
  assert.equal(new Set(froms).size, 4);
  assert.ok(froms.every((from) => from > 1e9), `${froms}`);
  const lengths = asked.slice(0, 4).map((url, i) => Math.round(Number(url.searchParams.get('to')) - froms[i]!));
  assert.equal(new Set(lengths).size, 1);

  await tabTo(page, showAll);
  await page.keyboard.press('Enter');
  await page.getByText('Drag over a chart to look closer').waitFor();
  await page.locator('figure .legend svg').nth(3).waitFor();
  asked.length = 0;
  await plot.focus();
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('+');
  await showAll.waitFor();
  await four();
  assert.ok(asked.length >= 4, `${asked.length} curves were asked for`);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('by time a run begins when it trained first, and ticks are at whole parts of hours', async ({ page, server, base }) => {
  await keepWritten(page);
  const { run, history } = server.world.jobs.get('92')!;
  const began = history.find(({ state_change }) => state_change?.to === 'JOB_STATE_RUNNING')!;
  // It takes an hour until its first epoch begins.
  run.begun += 3600;
  await page.goto(`${base}/compare?jobs=92&x=time`);
  await page.locator('figure .plot canvas').waitFor();
  await page.getByRole('button', { name: 'Validation top-1 as a table' }).click();
  const first = run.begun + run.stepsPerEpoch * run.secondsPerStep - Number(began.time_us) / 1e6;
  const rows = page.locator('section[aria-label="Validation top-1, table"] tbody tr');
  await rows.last().waitFor();
  assert.equal(await rows.last().locator('td').first().textContent(), unit(figure(first / 3600), 'h'));
  const written = await page.evaluate(() => (window as unknown as { written: string[] }).written);
  const ticks = written.filter((text) => text.endsWith('\u00a0h'));
  assert.ok(ticks.length > 2, written.join(' | '));
  for (const text of ticks) assert.match(text, /^\d(\.\d\d?)?\u00a0h$/);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('by time a run that imgd heard of late begins with its first report', async ({ page, server, base }) => {
  const { run, history } = server.world.jobs.get('92')!;
  const heard = history.find(({ state_change }) => state_change?.to === 'JOB_STATE_RUNNING')!;
  run.begun = Number(heard.time_us) / 1e6 - 3 * 3600;
  await page.goto(`${base}/compare?jobs=92&x=time`);
  await page.locator('figure .plot canvas').waitFor();
  await page.getByRole('button', { name: 'Validation top-1 as a table' }).click();
  const rows = page.locator('section[aria-label="Validation top-1, table"] tbody tr');
  await rows.last().waitFor();
  assert.match((await rows.last().locator('td').first().textContent())!, /^0\u00a0/);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a part of a comparison that can not be had is said, and can be asked for again', async ({ page, server, base }) => {
  endJob(server.world.jobs.get('91')!, 'COMPLETED', 1);
  await page.goto(`${base}/compare?jobs=91&metric=loss`);
  const plot = page.locator('figure .plot');
  await plot.locator('canvas').waitFor();
  await page.route(/\/metrics\?.*from=/, (route) =>
    route.fulfill({ status: 503, contentType: 'application/json', body: '{"error": {"message": "is being restarted"}}' }),
  );
  await plot.focus();
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('+');
  const again = page.getByRole('alert').getByRole('button', { name: 'Try again' });
  await again.waitFor();
  await page.unrouteAll({ behavior: 'wait' });
  await again.click();
  await plot.locator('canvas').waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('the chart of a comparison stays while another smoothing or a part of it is awaited', async ({ page, base }) => {
  await page.goto(`${base}/compare?jobs=91,92&metric=loss`);
  const plot = page.locator('figure .plot');
  await plot.locator('canvas').waitFor();
  await page.route(/\/metrics\?/, async (route) => {
    await new Promise((go) => setTimeout(go, 500));
    await route.continue();
  });
  const stays = async (asked: RegExp, how: () => Promise<void>) => {
    const request = page.waitForRequest(asked);
    await how();
    await request;
    assert.equal(await plot.locator('canvas').count(), 1, `${asked}`);
    assert.equal(await page.getByText('No figures yet').count(), 0, `${asked}`);
  };
  await stays(/smooth=0\.9/, () => page.getByLabel('Smoothing').fill('0.9'));
  await stays(/metrics\?.*from=/, async () => {
    await plot.focus();
    await page.keyboard.press('Shift+ArrowLeft');
    await page.keyboard.press('+');
  });
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what a run reported before its end is asked for once it has ended', async ({ page, server, base }) => {
  let told = false;
  // It is told between two times that all is asked for again.
  await page.route('**/api/v1/jobs/91', async (route) => {
    const response = await route.fetch();
    const over = (await response.text()).includes('JOB_STATE_COMPLETED');
    if (over && !told) await page.waitForTimeout(7500);
    told ||= over;
    await route.fulfill({ response });
  });
  const asked = new Set<string>();
  page.on('request', (request) => {
    const names = new URL(request.url()).searchParams.get('names');
    if (told && names) asked.add(names);
  });
  await page.goto(`${base}/compare?jobs=91&metric=loss`);
  await page.locator('figure .plot canvas').waitFor();
  endJob(server.world.jobs.get('91')!, 'COMPLETED', 1);
  for (let i = 0; asked.size < 2 && i < 400; i++) await page.waitForTimeout(50);
  assert.deepEqual([...asked].sort(), ['images_per_second', 'loss']);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('how much curves are smoothed is in the address of a comparison', async ({ page, base }) => {
  await page.goto(`${base}/compare?jobs=91,92&metric=loss`);
  await page.getByLabel('Smoothing').fill('0.9');
  await page.waitForURL(/smooth=0\.9/);
  await page.reload();
  await page.locator('label output', { hasText: '0.90' }).waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument
