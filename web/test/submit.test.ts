// Submitting over a connection that breaks, and with a token that has no right to it.
import assert from 'node:assert/strict';
import { browserTest, comeBack } from './harness.ts';

const FILE = 'name: fine\ntrain:\n  epochs: 5\n';

browserTest('what could not be checked is checked once imgd is back', async ({ page, server, base }) => {
  await page.goto(`${base}/submit`);
  await page.getByText('The file is good').waitFor();
  await page.waitForSelector('[data-state=live]');
  server.setAway(true);
  await page.getByLabel('Job file').fill(FILE);
  await page.locator('.faults').waitFor();
  const submit = page.getByRole('button', { name: 'Submit', exact: true });
  assert.ok(await submit.isDisabled());
  server.setAway(false);
  await comeBack(page);
  await page.getByText('The file is good').waitFor();
  assert.ok(await submit.isEnabled());
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('who tries again after a break submits the same job, and no second one', async ({ page, base }) => {
  const keys: string[] = [];
  let breaks = true;
  await page.route('**/api/v1/jobs', async (route) => {
    const body = route.request().postDataJSON() as { dry_run: boolean; idempotency_key: string } | null;
    if (!body || body.dry_run) return route.continue();
    keys.push(body.idempotency_key);
    if (!breaks) return route.continue();
    breaks = false;
    return route.abort();
  });
  await page.goto(`${base}/submit`);
  await page.getByLabel('Job file').fill(FILE);
  await page.getByText('The file is good').waitFor();
  const submit = page.getByRole('button', { name: 'Submit', exact: true });
  await submit.click();
  await page.locator('.faults').waitFor();
  await submit.click();
  await page.waitForURL(/\/jobs\/\d+$/);
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);

  await page.goBack();
  await page.getByLabel('Job file').fill(FILE);
  await page.getByText('The file is good').waitFor();
  await submit.click();
  await page.waitForURL(/\/jobs\/\d+$/);
  assert.notEqual(keys[2], keys[0], 'what was taken is done with');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('who may only look is told so, and can enter another token', async ({ page, base }) => {
  await page.route('**/api/v1/jobs', (route) =>
    route.request().method() === 'POST'
      ? route.fulfill({ status: 403, json: { error: { code: 'PERMISSION_DENIED', message: 'this token may only look' } } })
      : route.continue(),
  );
  await page.goto(`${base}/submit`);
  await page.getByText('this token may only look').waitFor();
  await page.getByRole('button', { name: 'Enter another token' }).waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument
