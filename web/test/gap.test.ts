// What changes between the first answer and the beginning of the stream: nobody tells of it.
import assert from 'node:assert/strict';
import type { GetJobResponse } from '../src/api/types.ts';
import { browserTest, type Place } from './harness.ts';

/** Holds the first answer back, as it is, until `change` was made, and the stream too. */
const before = ({ page, server }: Place, address: string, change: () => void) => {
  let begin = () => {};
  server.streamsFrom = new Promise((begun) => {
    begin = begun;
  });
  return page.route(
    address,
    async (route) => {
      const response = await route.fetch();
      change();
      begin();
      await route.fulfill({ response });
    },
    { times: 1 },
  );
};

browserTest('a change of a job that came before the stream is shown, in the table and on its page', async (place) => {
  const { page, server, base } = place;
  const { job } = server.world.jobs.get('11')!;
  await before(place, '**/api/v1/jobs?*', () => {
    job.name = 'renamed';
    server.world.jobs.delete('12');
  });
  await page.goto(`${base}/?state=completed,failed,cancelled&sort=id`);
  await page.locator('#row-11', { hasText: 'renamed' }).waitFor();
  await page.locator('#row-12').waitFor({ state: 'detached' });

  await before(place, '**/api/v1/jobs/11', () => {
    job.name = 'renamed again';
  });
  // The stream is this tab's from its beginning on, which comes after the question.
  await page.goto(`${base}/jobs/11`);
  await page.locator('h1', { hasText: 'renamed again' }).waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('so are those of nodes and of data sets', async (place) => {
  const { page, server, base } = place;
  const node = server.world.nodes.get('gpu-5')!;
  await before(place, '**/api/v1/nodes', () => {
    node.labels = { zone: 'moved' };
  });
  await page.goto(`${base}/nodes`);
  await page.locator('.node-row', { hasText: 'gpu-5' }).getByText('moved').waitFor();

  const [name] = [...server.world.datasets.keys()] as [string];
  await before(place, '**/api/v1/datasets', () => {
    server.world.datasets.delete(name);
  });
  await page.goto(`${base}/datasets`);
  const rows = page.locator('main tbody tr');
  await rows.first().waitFor();
  await rows.filter({ has: page.getByText(name, { exact: true }) }).waitFor({ state: 'detached' });
  assert.equal(await rows.count(), server.world.datasets.size);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a job says all of why it waits, whatever the stream tells of it in short', async ({ page, server, base }) => {
  const one = [...server.world.jobs.values()].find(({ job }) => job.state === 'JOB_STATE_PAUSED')!;
  const { job } = one;
  await page.route(`**/api/v1/jobs/${job.id}`, async (route) => {
    const response = await route.fetch();
    const answer = (await response.json()) as GetJobResponse;
    answer.job.reason_text += '; it fails once it is resumed';
    await route.fulfill({ response, json: answer });
  });
  await page.goto(`${base}/jobs/${job.id}`);
  await page.waitForSelector('[data-state=live]');
  const whole = page.getByText(/it fails once it is resumed/);
  await whole.first().waitFor();
  job.name = 'told';
  server.live.tell(one);
  await page.locator('h1', { hasText: 'told' }).waitFor();
  assert.ok((await whole.count()) > 0);

  job.reason_text = 'paused for the night';
  server.live.tell(one);
  await page.getByText(/paused for the night; it fails once it is resumed/i).first().waitFor();
  await page.unrouteAll({ behavior: 'wait' });
}, { everyMs: 0 }); // biome-ignore format: one argument
