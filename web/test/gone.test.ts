// Jobs that are deleted, by somebody in another tab, in a terminal or by what is kept for how long, leave every page.
import assert from 'node:assert/strict';
import { browserTest } from './harness.ts';

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
  await page.getByRole('alert').getByText('There is no job 11').waitFor();
  await page.goto(`${base}/?q=11`);
  await page.waitForSelector('.rows [role=row]');
  assert.equal(await page.locator('#row-11').count(), 0);
}); // biome-ignore format: one argument

browserTest('a page of the table that is older than a deletion does not bring the job back', async ({ page, server, base }) => {
  // The second page of the list is read, then job 11 goes, then the page comes.
  await page.route('**/api/v1/jobs?*page_token=*', async (route) => {
    const response = await route.fetch();
    server.live.forget('11');
    await new Promise((resolve) => setTimeout(resolve, 500));
    await route.fulfill({ response });
  });
  await page.goto(`${base}/?state=completed,failed,cancelled&sort=id`);
  await page.waitForFunction(() => /\d$/.test(document.querySelector('.title .sub')?.textContent ?? ''));
  await page.locator('#row-12').waitFor();
  assert.equal(await page.locator('#row-11').count(), 0);
}, { jobs: 300 }); // biome-ignore format: one argument
