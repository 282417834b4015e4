// Jobs that are deleted, by somebody in another tab, in a terminal or by what is kept for how long, leave every page.
import assert from 'node:assert/strict';
import { axe, browserTest } from './harness.ts';

browserTest('a job that is deleted in one tab leaves the table of the other', async ({ page, context, server, base }) => {
  await page.goto(`${base}/?q=${server.world.jobs.get('11')!.job.name}`);
  const row = page.locator('#row-11');
  await row.waitFor();
  await page.waitForSelector('[data-state=live]');
  const other = await context.newPage();
  await other.goto(`${base}/jobs/11`);
  await other.getByRole('button', { name: 'Delete' }).click();
  await other.getByRole('button', { name: 'Delete the job' }).click();
  await other.getByText('Job 11 is deleted').waitFor();
  await row.waitFor({ state: 'detached' });
}); // biome-ignore format: one argument

browserTest("the page of a job that is deleted says that there is none, and its row does not come back", async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/11`);
  await page.waitForSelector('[data-state=live]');
  await page.locator('.title h1').waitFor();
  server.live.forget('11');
  await page.getByRole('alert').getByRole('heading', { name: 'Job 11 was deleted', level: 1 }).waitFor();
  await page.goto(`${base}/?q=11`);
  await page.waitForSelector('.rows [role=row]');
  assert.equal(await page.locator('#row-11').count(), 0);
}); // biome-ignore format: one argument

browserTest('a page of the table that is older than a deletion does not bring the job back', async ({ page, server, base }) => {
  // The second page of the list is read, then job 11 goes, then the page comes.
  await page.route('**/api/v1/jobs?*page_token=*', async (route) => {
    const response = await route.fetch();
    await page.waitForSelector('[data-state=live]');
    server.live.forget('11');
    await new Promise((resolve) => setTimeout(resolve, 500));
    await route.fulfill({ response });
  }, { times: 1 });
  await page.goto(`${base}/?state=completed,failed,cancelled&sort=id`);
  await page.waitForFunction(() => /\d$/.test(document.querySelector('.title .sub')?.textContent ?? ''));
  await page.locator('#row-12').waitFor();
  assert.equal(await page.locator('#row-11').count(), 0);
}, { jobs: 300 }); // biome-ignore format: one argument

browserTest('a comparison goes on without the job that is deleted, says which, and so does the link that was kept', async ({ page, server, base }) => {
  const address = `${base}/compare?jobs=11,12,13,999&metric=loss`;
  await page.goto(address);
  await page.waitForSelector('[data-state=live]');
  await page.getByText('Job 999 is not there').waitFor();
  const rows = page.locator('section[aria-label=Figures] tbody tr');
  await rows.nth(2).waitFor();
  const legend = page.locator('figure .legend span', { has: page.locator('svg') });
  await legend.nth(2).waitFor();
  const look = () => legend.filter({ hasText: /^13 / }).locator('path').getAttribute('stroke');
  const before = await look();
  server.live.forget('12');
  await page.getByText('Jobs 12, 999 are not there').waitFor();
  await rows.nth(2).waitFor({ state: 'detached' });
  await legend.nth(2).waitFor({ state: 'detached' });
  await legend.filter({ hasText: /^13 / }).waitFor();
  assert.equal(await look(), before, 'the others look as they did');
  assert.equal(await page.getByRole('alert').count(), 0);
  assert.equal(await axe(page), '');

  await page.goto(address);
  await rows.nth(1).waitFor();
  assert.equal(await rows.count(), 2);
  await page.getByRole('button', { name: 'Leave them out' }).click();
  await page.waitForURL(/jobs=11,13&/);
  await page.getByText('are not there').waitFor({ state: 'detached' });
}); // biome-ignore format: one argument
