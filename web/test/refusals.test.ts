// What imgd refuses, or cannot be asked, and pages of what is not there: said where it belongs, with a way on.
import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import { axe, browserTest, comeBack } from './harness.ts';

/** The next change of a job is refused, or not answered at all where there is no status. */
async function refuse(page: Page, status: number, message = ''): Promise<void> {
  const body = JSON.stringify({ error: { code: 'REFUSED', message } });
  await page.route('**/api/v1/jobs/*/change', (route) =>
    status === 0 ? route.abort() : route.fulfill({ status, contentType: 'application/json', body }),
  );
}

browserTest('the dialog of a priority stays open with what was written until it is taken', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/92`);
  await page.getByRole('button', { name: /^Priority/ }).click();
  const dialog = page.getByRole('dialog', { name: 'Priority' });
  const field = dialog.getByRole('textbox', { name: 'Priority' });
  let asked = 0;
  page.on('request', (request) => {
    if (request.url().endsWith('/change')) asked += 1;
  });
  for (const bad of ['999999999999', '1001', 'high', '']) {
    await field.fill(bad);
    await dialog.getByRole('button', { name: 'Change it' }).click();
    await dialog.getByRole('alert').getByText('A whole number from -1000 to 1000 is allowed.').waitFor();
    assert.equal(await field.inputValue(), bad);
  }
  assert.equal(asked, 0);
  assert.equal(await axe(page), '');
  await refuse(page, 412, 'the policy keeps it below 50');
  await field.fill('70');
  await dialog.getByRole('button', { name: 'Change it' }).click();
  await dialog.getByRole('alert').getByText('the policy keeps it below 50').waitFor();
  assert.equal(await field.inputValue(), '70');
  await page.unroute('**/api/v1/jobs/*/change');
  await field.fill('-7');
  await dialog.getByRole('button', { name: 'Change it' }).click();
  await dialog.waitFor({ state: 'detached' });
  await page.getByText('Priority of job 92 is -7').waitFor();
  assert.equal(server.world.jobs.get('92')!.job.priority, -7);
}); // biome-ignore format: one argument

browserTest('the dialog of a data set says why it is refused, and stays with what was written', async ({ page, base }) => {
  await page.goto(`${base}/datasets`);
  await page.getByRole('button', { name: 'Register …' }).click();
  const dialog = page.getByRole('dialog', { name: 'Register a data set' });
  const address = dialog.getByRole('textbox', { name: 'Where it is' });
  await dialog.getByRole('textbox', { name: 'Name' }).fill('shapes');
  await address.fill('/nowhere/shapes');
  await dialog.getByRole('button', { name: 'Register' }).click();
  await dialog.getByRole('alert').getByText("'shapes' stands for /shared/shapes").waitFor();
  assert.equal(await address.inputValue(), '/nowhere/shapes');
  assert.equal(await page.locator('.toast').count(), 0);
  assert.equal(await axe(page), '');
  await address.fill('/shared/shapes');
  await dialog.getByRole('button', { name: 'Register' }).click();
  await dialog.waitFor({ state: 'detached' });
  await page.getByText('dataset:shapes is registered').waitFor();
}); // biome-ignore format: one argument

browserTest('what could not be asked is said once, and no more once imgd is back', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/92`);
  await page.waitForSelector('[data-state=live]');
  const pause = page.getByRole('button', { name: 'Pause' });
  await pause.waitFor();
  server.setAway(true);
  const toasts = page.locator('.toast');
  for (const _ of [1, 2, 3]) await pause.click();
  await toasts.getByText('imgd can’t be reached').waitFor();
  await page.getByText('The connection to imgd is lost').waitFor();
  // As people write times here: without AM and PM.
  assert.match((await page.textContent('.notice'))!, /lost since \d\d:\d\d:\d\d\. /);
  await pause.click();
  assert.equal(await toasts.count(), 1);
  assert.equal(await axe(page), '');
  server.setAway(false);
  await comeBack(page);
  await toasts.waitFor({ state: 'detached' });
}); // biome-ignore format: one argument

browserTest('a refusal goes after a while, but not from under who reads it, and can be sent away', async ({ page, base }) => {
  await page.clock.install();
  await page.goto(`${base}/jobs/92`);
  await refuse(page, 412, 'not now');
  const toast = page.locator('.toast', { hasText: 'not now' });
  await page.getByRole('button', { name: 'Pause' }).click();
  await toast.hover();
  await page.clock.runFor(30_000);
  assert.equal(await toast.count(), 1);
  await page.mouse.move(0, 0);
  await page.clock.runFor(2000);
  await toast.waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Pause' }).click();
  await toast.getByRole('button', { name: 'Dismiss' }).click();
  await toast.waitFor({ state: 'detached' });
}); // biome-ignore format: one argument

for (const dark of [false, true]) {
  browserTest(`who has no right to something can enter another token, ${dark ? 'dark' : 'light'}`, async ({ page, base }) => {
    await page.goto(`${base}/jobs/92`);
    await refuse(page, 403, 'the token may only view');
    await page.getByRole('button', { name: 'Pause' }).click();
    const toast = page.locator('.toast', { hasText: 'the token may only view' });
    await toast.waitFor();
    assert.equal(await axe(page), '');
    await toast.getByRole('button', { name: 'Enter another token' }).click();
    await page.getByRole('dialog', { name: 'Token' }).getByLabel('Token').fill('imgd_other');
    await page.getByRole('button', { name: 'Use it' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  }, { dark }); // biome-ignore format: one argument

  browserTest(`pages of what is not there have a heading and a way on, ${dark ? 'dark' : 'light'}`, async ({ page, server, base }) => {
    const rows: [string, string, string][] = [
      ['/jobs/999', 'There is no job 999', 'All jobs'],
      ['/jobs/99999999999999999999/logs', 'There is no job 99999999999999999999', 'All jobs'],
      ['/datasets/none', 'There is no data set none', 'Data sets'],
      ['/nowhere', 'There is no such page', 'Jobs'],
    ];
    for (const [path, title, link] of rows) {
      await page.goto(base + path);
      await page.getByRole('heading', { name: title, level: 1 }).waitFor();
      await page.locator('main').getByRole('link', { name: link, exact: true }).waitFor();
      assert.equal(await axe(page), '', path);
    }
    await page.goto(`${base}/jobs/11/results`);
    await page.waitForSelector('[data-state=live]');
    await page.locator('.title h1').waitFor();
    server.live.forget('11');
    await page.getByRole('heading', { name: 'Job 11 was deleted', level: 1 }).waitFor();
    assert.equal(await axe(page), '');
    await page.locator('main').getByRole('link', { name: 'All jobs' }).click();
    await page.waitForURL(/\/jobs$/);
  }, { dark });
} // biome-ignore format: one argument

browserTest('a number that no job can have is left out of a comparison, and said', async ({ page, base }) => {
  await page.goto(`${base}/compare?jobs=11,12,99999999999999999999,-4,abc`);
  await page
    .getByText('No job can have the number 99999999999999999999, -4, abc: they are left out.')
    .waitFor();
  await page.locator('section[aria-label=Figures] tbody tr').nth(1).waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
  assert.equal(await axe(page), '');
}); // biome-ignore format: one argument
