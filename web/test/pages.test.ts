// Each page in a real browser, over canned data.
import assert from 'node:assert/strict';
import { axe, browserTest } from './harness.ts';

browserTest('figures come live, without a reload', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/91`);
  const step = page.locator('.facts div', { hasText: 'Step' }).locator('dd');
  await step.waitFor();
  const before = await step.textContent();
  await page.waitForFunction(
    (old) => [...document.querySelectorAll('.facts dd')].every((dd) => dd.textContent !== old),
    before,
  );
  assert.equal(server.hub.size, 1);
});

browserTest('two tabs share one stream', async ({ page, context, server, base }) => {
  const other = await context.newPage();
  for (const tab of [page, other]) {
    await tab.goto(`${base}/nodes`);
    await tab.waitForSelector('[data-state=live]');
  }
  assert.equal(server.hub.size, 1);
  await page.close();
  await other.waitForSelector('[data-state=live]');
  assert.equal(server.hub.size, 1, 'the tab that stays keeps it');
});

browserTest(
  'a tab whose shared worker is silent has a stream of its own',
  async ({ page, context, server, base }) => {
    await context.addInitScript(() => {
    const port = { postMessage() {}, close() {}, start() {} };
    Object.assign(window, { SharedWorker: class { port = port; } });
  }); // biome-ignore format: a class of one line
    await page.goto(`${base}/nodes`);
    await page.waitForSelector('[data-state=live]');
    assert.equal(server.hub.size, 1);
  },
);

browserTest('ten thousand jobs: the first are there before the rest, and a filter is quick', async ({ page, base }) => {
  await page.goto(base);
  await page.waitForSelector('[role=row] a');
  await page.waitForFunction(() => document.querySelector('.title .sub')?.textContent?.startsWith('10\u2009000'));
  const drawn = await page.locator('.rows [role=row]').count();
  assert.ok(drawn < 60, `${drawn} rows are in the document`);
  await page.fill('input[type=search]', 'rn50 mixup');
  await page.waitForFunction(() => document.querySelector('.title .sub')?.textContent?.includes(' of '));
  for (const name of await page.locator('.c-name').allTextContents()) assert.match(name, /rn50-mixup/);
}, { jobs: 10_000 }); // biome-ignore format: one argument

browserTest('filters, sort and columns are in the address', async ({ page, base }) => {
  await page.goto(`${base}/?state=running,failed&sort=-loss&owner=ada&q=-&cols=state,id,name,loss`);
  await page.waitForSelector('.rows [role=row]');
  const heads = await page.locator('[role=columnheader]').allTextContents();
  assert.deepEqual(
    heads.map((text) => text.trim()),
    ['Choose', 'State', 'Job', 'Name', 'Loss'],
  );
  assert.equal(await page.getAttribute('[role=columnheader]:last-child', 'aria-sort'), 'descending');
  assert.equal(await page.inputValue('input[type=search]'), '-');
  assert.equal(await page.inputValue('select[aria-label=Owner]'), 'ada');

  await page.click('button:has-text("running")');
  assert.equal(new URL(page.url()).searchParams.get('state'), 'failed');
  await page.click('[role=columnheader] button:has-text("Loss")');
  assert.equal(new URL(page.url()).searchParams.get('sort'), 'loss');
  await page.fill('input[type=search]', '');
  await page.waitForURL((url) => !url.searchParams.has('q'));
  await page.goBack();
  await page.waitForURL((url) => url.searchParams.get('state') === 'running,failed');
});

browserTest('the table of jobs by keys alone', async ({ page, base }) => {
  await page.goto(base);
  await page.waitForSelector('.rows [role=row]');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await page.keyboard.press('k');
  await page.keyboard.press('x');
  assert.equal(await page.locator('[role=row][aria-selected=true]').count(), 2);
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/jobs\/\d+$/);
  await page.keyboard.press('g');
  await page.keyboard.press('n');
  await page.waitForURL(/\/nodes$/);
  await page.waitForSelector('input[type=search]');
  await page.keyboard.press('/');
  await page.keyboard.type('gpu-5');
  await page.waitForFunction(() => document.querySelectorAll('.node-row').length === 1);
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  await page.waitForSelector('dialog[open]');
  assert.equal(await axe(page), '');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
});

browserTest('each chart has a table behind it', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91`);
  await page.click('button[aria-label="Loss as a table"]');
  const rows = page.locator('section[aria-label="Loss, table"] tbody tr');
  await rows.first().waitFor();
  assert.ok((await rows.count()) > 20);
  assert.match(
    (await page.locator('figure[aria-label=Accuracy] [role=img]').getAttribute('aria-label'))!,
    /training top-1 \d+\.\d %/,
  );
});

browserTest(
  'which rank was slow, and how busy GPUs are, is told beside the curves',
  async ({ page, base }) => {
    await page.goto(`${base}/jobs/91`);
    await page.getByRole('button', { name: 'Slowest rank as a table' }).click();
    const row = page.locator('section[aria-label="Slowest rank, table"] tbody tr').first();
    assert.match((await row.textContent())!, /\d %/);
    await page.getByText('How busy the job’s GPUs are').waitFor({ state: 'attached' });
    await page.getByRole('img', { name: 'Busy GPUs of late' }).waitFor();
    await page.getByLabel('Loss on a log scale').check();
    await page.waitForURL(/log=1/);
  },
);

browserTest('usage by day, by account and by job', async ({ page, base }) => {
  await page.goto(`${base}/usage`);
  await page.getByRole('button', { name: 'By day as a table' }).click();
  const days = page.locator('section[aria-label="By day, table"] tbody tr');
  assert.equal(await days.count(), 30);
  await page.getByRole('button', { name: 'Device-hours' }).click();
  await page.waitForFunction(() => /\d h/.test(document.querySelector('.chart-table')!.textContent!));
  await page.locator('section[aria-label="Use and quotas"] tbody tr').first().waitFor();
  await page.locator('section[aria-label="Jobs that took most"] a').first().click();
  await page.waitForURL(/\/jobs\/\d+$/);
});

browserTest('logs: search, level, a link to a line, and those that come', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91/logs?rank=0`);
  const lines = page.locator('.log .line');
  await lines.first().waitFor();
  const last = await lines.last().textContent();
  await page.waitForFunction(
    (old) => [...document.querySelectorAll('.log .line')].at(-1)?.textContent !== old,
    last,
  );
  await page.selectOption('select[aria-label=Level]', 'warning');
  await page.waitForFunction(() => document.querySelectorAll('.log .line').length < 20);
  for (const text of await lines.allTextContents()) assert.match(text, /warning/);
  await page.selectOption('select[aria-label=Level]', 'debug');
  await page.fill('input[type=search]', 'validation done');
  await page.waitForSelector('.log mark');
  await lines.first().locator('a').click();
  const link = page.url();
  assert.match(link, /line=2\.0\.\d+/);
  await page.goto(link);
  await page.waitForSelector('.line.chosen');
});
