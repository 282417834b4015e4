// As many runs as can be compared, and one more.
import assert from 'node:assert/strict';
import { axe, browserTest } from './harness.ts';

const jobs = (count: number) => Array.from({ length: count }, (_, i) => i + 1).join(',');

browserTest('twenty runs are compared, and no two curves look the same', async ({ page, base }) => {
  await page.goto(`${base}/compare?jobs=${jobs(20)}&metric=loss`);
  await page.locator('figure .legend svg').nth(19).waitFor();
  const looks = await page.locator('figure .legend svg path').evaluateAll((paths) =>
    paths.map((path) => `${path.getAttribute('stroke')} ${path.getAttribute('stroke-dasharray')}`),
  );
  assert.equal(new Set(looks).size, 20);
  assert.equal(await page.locator('section[aria-label=Figures] tbody tr').count(), 20);
  assert.equal(await page.locator('section[aria-label="Settings that differ"] thead th').count(), 21);
  assert.equal(await page.getByText('can be compared').count(), 0);
  // As many as fit are in the table behind the chart too.
  await page.getByRole('button', { name: 'Training loss as a table' }).click();
  assert.equal(await page.locator('section[aria-label="Training loss, table"] thead th').count(), 21);
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
