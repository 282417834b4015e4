// What changes between the first answer and the beginning of the stream: nobody tells of it.
import assert from 'node:assert/strict';
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
