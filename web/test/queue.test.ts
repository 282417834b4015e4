// A long queue: what is said of when its jobs will start is true of each row.
import assert from 'node:assert/strict';
import type { DevServer } from '../dev/server.ts';
import { browserTest } from './harness.ts';

/** Makes the queue so long, by jobs that start at a known time: at place 60 there is number 1060. */
function makeLong(server: DevServer, length: number): void {
  const waiting = [...server.world.jobs.values()].filter(({ job }) => job.queue_position > 0);
  const one = waiting.find(({ job }) => job.queue_position === 1)!;
  for (let place = waiting.length + 1; place <= length; place++) {
    const job = { ...one.job, id: String(1000 + place), name: `late-${place}`, queue_position: place };
    server.world.jobs.set(job.id, { ...one, job });
  }
}

const START = 'td:nth-child(7)';

browserTest('each of sixty jobs that wait says when it will start, as it comes into view', async ({ page, server, base }) => {
  makeLong(server, 60);
  const asked = new Set<string>();
  const answers = Promise.withResolvers<void>();
  await page.route(/\/api\/v1\/jobs\/\d+$/, async (route) => {
    asked.add(route.request().url().split('/').at(-1)!);
    await answers.promise;
    await route.continue();
  });
  await page.goto(`${base}/queue`);
  const rows = page.locator('section[aria-label="In the queue"] tbody tr');
  await rows.nth(59).waitFor();
  // Before the answers are there nobody says that there is none.
  const starts = rows.locator(START);
  assert.deepEqual(new Set(await starts.allTextContents()), new Set(['not known yet']));
  answers.resolve();
  await rows.first().locator(`${START} time`).waitFor();
  await rows.filter({ hasText: 'may have 32 devices at once' }).first().getByText('nobody knows').waitFor();
  assert.equal(await rows.nth(59).locator(START).textContent(), 'not known yet');
  assert.equal(asked.has('1060'), false, 'imgd looks ahead for those in view only');
  await rows.nth(59).scrollIntoViewIfNeeded();
  await rows.nth(59).locator(`${START} time`).waitFor();
  assert.match((await rows.nth(59).locator(START).textContent())!, /^in 2\u00a0h/);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('the jobs after the first two hundred are told of too', async ({ page, server, base }) => {
  makeLong(server, 230);
  await page.goto(`${base}/queue`);
  await page.getByRole('button', { name: 'Show the other 30' }).click();
  const last = page.locator('section[aria-label="In the queue"] tbody tr').nth(229);
  await last.scrollIntoViewIfNeeded();
  await last.locator(`${START} time`).waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('of many jobs that are paused it is said how many, and all can be shown', async ({ page, server, base }) => {
  let paused = 0;
  for (const { job } of server.world.jobs.values()) {
    if (!['JOB_STATE_COMPLETED', 'JOB_STATE_PAUSED'].includes(job.state)) continue;
    job.state = 'JOB_STATE_PAUSED';
    paused += 1;
  }
  assert.ok(paused > 200);
  await page.goto(`${base}/queue`);
  const panel = page.locator('section[aria-label=Paused]');
  await panel.getByText(`${paused} jobs, hold nothing`).waitFor();
  assert.equal(await panel.locator('tbody tr').count(), 200);
  await panel.getByRole('button', { name: `Show the other ${paused - 200}` }).click();
  await panel.locator('tbody tr').nth(paused - 1).waitFor();
}, { everyMs: 0, jobs: 400 }); // biome-ignore format: one argument
