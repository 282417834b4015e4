// The table of jobs: what its cells say, and which columns it has.
import assert from 'node:assert/strict';
import { figure, shortDuration } from '../src/lib/format.ts';
import { browserTest, tabTo } from './harness.ts';

browserTest('cells say how far a job is, how fast, on how many nodes, how old and whose', async ({ page, server, base }) => {
  await page.goto(`${base}/?state=running&cols=name,owner,progress,speed,nodes,priority,age`);
  const row = page.locator('#row-91');
  await row.waitFor();
  const { job } = server.world.jobs.get('91')!;
  const cell = (key: string) => row.locator(`.c-${key}`).textContent();
  const { step, total_steps, images_per_second } = job.last_step!;
  const share = Math.floor((100 * Number(step)) / Number(total_steps));
  assert.ok(share > 30 && share < 50);
  assert.equal(await cell('progress'), `${share}\u00a0%`);
  const bar = await row.locator('.c-progress .meter i').getAttribute('style');
  assert.equal(Math.floor(Number(/width: ([\d.]+)%/.exec(bar!)![1])), share);
  assert.equal(await cell('speed'), figure(images_per_second));
  assert.match((await cell('speed'))!, /^\d\d\u202f\d{3}$/);
  assert.equal(await cell('nodes'), '2');
  assert.equal(await cell('owner'), job.owner);
  assert.equal(await cell('priority'), String(job.priority));
  const age = () => shortDuration((Date.now() - Number(job.submitted_us) / 1000) / 1000);
  const before = age();
  const shown = await cell('age');
  assert.ok([before, age()].includes(shown!), `${shown}, and not ${before}`);
  assert.match(shown!, /^\d+[dhm]/);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('whatever state a job is in, its loss has a curve where it has one, and of rows in view alone', async ({ page, base }) => {
  const asked = new Set<string>();
  page.on('request', (request) => {
    const [, id] = /jobs\/(\d+)\/metrics/.exec(request.url()) ?? [];
    if (id) asked.add(id);
  });
  for (const state of ['running', 'completed', 'failed', 'cancelled']) {
    await page.goto(`${base}/?state=${state}`);
    const row = page.locator('.rows [role=row]').first();
    await row.locator('.c-loss .spark').waitFor();
    await row.locator('.c-top1 .spark').waitFor();
  }
  asked.clear();
  await page.goto(`${base}/?state=completed`);
  await page.locator('.rows .spark').first().waitFor();
  const grid = page.getByRole('grid');
  await grid.evaluate((one) => one.scrollTo(0, one.scrollHeight));
  const last = page.locator('.rows [role=row]').last();
  await last.locator('.c-loss .spark').waitFor();
  const completed = await page.locator('.rows').evaluate((one) => one.clientHeight / 34);
  assert.ok(asked.size < completed / 4, `of ${completed} jobs ${asked.size} were asked for`);
}, { everyMs: 0, jobs: 2000 }); // biome-ignore format: one argument

browserTest('columns are chosen from a menu, by keys alone too, and stay in the address', async ({ page, base }) => {
  await page.goto(base);
  await page.waitForSelector('.rows [role=row]');
  const heads = async () =>
    (await page.locator('[role=columnheader]').allTextContents()).map((text) => text.trim()).slice(1);
  await page.getByRole('columnheader', { name: 'Spend, USD' }).waitFor();
  const usual = await heads();
  assert.ok(usual.includes('Owner') && !usual.includes('Priority'), usual.join());
  const button = page.getByRole('button', { name: 'Columns' });
  await button.click();
  await page.locator('.sheet').getByLabel('Owner').uncheck();
  await page.waitForURL(/cols=/);
  assert.deepEqual(
    await heads(),
    usual.filter((name) => name !== 'Owner'),
  );
  assert.equal(await page.locator('.rows .c-owner').count(), 0);

  // Elsewhere: it closes. And again, by keys.
  await page.locator('h1').click();
  await page.locator('.sheet').waitFor({ state: 'detached' });
  await tabTo(page, button);
  await page.keyboard.press('Enter');
  const priority = page.locator('.sheet').getByLabel('Priority');
  await tabTo(page, priority);
  await page.keyboard.press('Space');
  await page.locator('[role=columnheader]', { hasText: 'Priority' }).waitFor();
  await tabTo(page, page.locator('.sheet').getByLabel('Owner'), 'Shift+Tab');
  await page.keyboard.press('Space');
  await page.locator('[role=columnheader]', { hasText: 'Owner' }).waitFor();
  assert.deepEqual(
    (await heads()).filter((name) => name !== 'Priority'),
    usual,
  );
  await page.keyboard.press('Escape');
  await page.locator('.sheet').waitFor({ state: 'detached' });
  assert.ok(await button.evaluate((one) => one === document.activeElement), 'the focus is where it was');
  // As it is in the address, it is still so after a reload.
  await page.reload();
  await page.locator('[role=columnheader]', { hasText: 'Priority' }).waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('the row that keys are about is a job, also when others come before it', async ({ page, base }) => {
  await page.goto(`${base}/?sort=-id`);
  await page.locator('#row-120').waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  const at = page.locator('[role=row].at');
  const id = await at.getAttribute('id');
  const answer = await page.request.post(`${base}/api/v1/jobs`, { data: { job_yaml: 'name: newer', dry_run: false } });
  assert.ok(answer.ok());
  await page.locator('[role=row]', { hasText: 'newer' }).waitFor();
  assert.equal(await at.getAttribute('id'), id);
  await page.keyboard.press('Enter');
  await page.waitForURL(`${base}/jobs/${id!.slice(4)}`);
}, { everyMs: 0 }); // biome-ignore format: one argument
