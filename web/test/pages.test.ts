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

browserTest('whoever goes to another page, or back, goes on at its title', async ({ page, base }) => {
  const titleHasFocus = (text: string) =>
    page.waitForFunction((wanted) => {
      const one = document.activeElement;
      return one?.tagName === 'H1' && one.textContent!.startsWith(wanted);
    }, text);
  await page.goto(base);
  await page.locator('#row-91 a').click();
  await page.waitForURL(/jobs\/91$/);
  await page.locator('.tabs').waitFor();
  const name = (await page.textContent('h1'))!;
  await titleHasFocus(name);
  await page.getByRole('link', { name: 'Nodes', exact: true }).click();
  await titleHasFocus('Nodes');
  await page.goBack();
  await titleHasFocus(name);
  await page.goBack();
  await titleHasFocus('Jobs');
  await page.goForward();
  await titleHasFocus(name);
  // It stays where somebody takes it meanwhile.
  await page.getByRole('link', { name: 'Logs', exact: true }).focus();
  await page.waitForTimeout(600);
  assert.equal(await page.evaluate(() => document.activeElement!.textContent), 'Logs');
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
  await page.waitForFunction(() => document.querySelector('.title .sub')?.textContent?.startsWith('10\u202f000'));
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
  await page.locator('figure[aria-label=Accuracy] canvas').waitFor();
  assert.match(
    (await page.locator('figure[aria-label=Accuracy] [role=img]').getAttribute('aria-label'))!,
    /training top-1 \d+\.\d\u00a0%/,
  );
});

browserTest(
  'which rank was slow, and how busy GPUs are, is told beside the curves',
  async ({ page, base }) => {
    await page.goto(`${base}/jobs/91`);
    await page.getByRole('button', { name: 'Ranks’ step times as a table' }).click();
    const row = page.locator('section[aria-label="Ranks’ step times, table"] tbody tr').first();
    // Steps and how busy GPUs are come by answers of their own.
    await row.filter({ hasText: /\d\u00a0ms.*\d\u00a0%/ }).waitFor();
    await page.getByRole('figure', { name: 'GPU busy' }).waitFor();
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
  const shown = await days.count();
  assert.ok(shown >= 7 && shown <= 30, `${shown} days`);
  await page.getByRole('button', { name: 'Device-hours' }).click();
  await page.waitForFunction(() => /\d\u00a0h/.test(document.querySelector('.chart-table')!.textContent!));
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
  // Lines that come push it up meanwhile, so that no pointer is sure to meet it.
  await lines.first().locator('a').dispatchEvent('click');
  await page.waitForURL(/line=/);
  const link = page.url();
  assert.match(link, /line=2\.0\.\d+/);
  await page.goto(link);
  await page.waitForSelector('.line.chosen');
  // Without the search: among those around it, which were not among the last ones.
  await page.fill('input[type=search]', '');
  await page.waitForFunction(() => !document.querySelector('.log mark'));
  await page.waitForSelector('.line.chosen');
});

browserTest(
  'a line of long ago is shown with those around it, and it goes on both ways',
  async ({ page, base, server }) => {
    const one = [...server.world.jobs.values()].sort((a, b) => b.step - a.step)[0]!;
    const { id, generation } = one.job;
    await page.goto(`${base}/jobs/${id}/logs?rank=0&line=${generation}.0.1200`);
    await page.waitForSelector('.line.chosen');
    const firstIs = (number: string) =>
      page.waitForFunction((wanted) => {
        document.querySelector('.log')!.scrollTop = 0;
        return document.querySelector('.log .line .no')!.textContent === wanted;
      }, number);
    await firstIs('700');
    await page.getByRole('button', { name: 'Older lines' }).click();
    await page.waitForFunction(
      () => !document.querySelector('.log > button')?.textContent?.includes('Older'),
    );
    await firstIs('1');
    const all = () => page.locator('header [aria-live]').textContent();
    const before = await all();
    await page.getByRole('button', { name: 'Newer lines' }).click();
    await page.waitForFunction(
      (old) => document.querySelector('header [aria-live]')!.textContent !== old,
      before,
    );
  },
);

browserTest('following a log goes on when the job starts again', async ({ page, base, server }) => {
  await page.goto(`${base}/jobs/91/logs?rank=0`);
  await page.locator('.log .line').first().waitFor();
  const asked: string[] = [];
  page.on('request', (request) => {
    if (request.url().includes('/logs?')) asked.push(request.url());
  });
  const one = server.world.jobs.get('91')!;
  one.job.generation = String(Number(one.job.generation) + 1);
  await page.waitForFunction(
    (start) =>
      [...document.querySelectorAll('.log .line a')].some((a) =>
        a.getAttribute('href')!.includes(`line=${start}.`),
      ),
    one.job.generation,
  );
  assert.ok(asked.every((url) => url.includes('after=')));
});

browserTest('what a job has made: checkpoints, classes, mistakes', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91/results`);
  const checkpoints = page.locator('section[aria-label=Checkpoints] tbody tr');
  await checkpoints.first().waitFor();
  assert.match((await checkpoints.first().textContent())!, /there/);
  assert.match((await checkpoints.nth(0).locator('td:nth-child(2)').textContent())!, /^\d+\.\d\d\u00a0%$/);
  assert.deepEqual(await checkpoints.nth(0).locator('.badge').allTextContents(), ['last', 'best']);
  assert.deepEqual(await checkpoints.nth(1).locator('.badge').allTextContents(), ['newest 2']);
  assert.equal(await checkpoints.first().locator('.downloads a', { hasText: 'manifest.json' }).count(), 1);
  const classes = page.locator('section[aria-label=Classes] tbody tr td:nth-child(4)');
  await classes.nth(9).waitFor();
  const shares = await classes.allTextContents();
  const numbers = shares.map((text) => Number.parseFloat(text));
  assert.equal(numbers.length, 10);
  assert.deepEqual(
    numbers,
    [...numbers].sort((a, b) => a - b),
    'the worst first',
  );
  await page.locator('section[aria-label="What was taken for what"] td.right').first().waitFor();
  await page.getByText('ILSVRC2012_val_00010234.JPEG').waitFor();
});

browserTest('images with what the model answered, as pictures and as text', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91/results`);
  const samples = page.locator('section[aria-label="Sample images"] li');
  await samples.first().waitFor();
  assert.equal(await samples.count(), 16);
  assert.match((await samples.nth(2).textContent())!, /✗ .+ 70\u00a0%loss 2\.10/);
  await page.locator('section[aria-label="Sample images"]').scrollIntoViewIfNeeded();
  await page.waitForFunction(() =>
    [...document.querySelectorAll<HTMLImageElement>('.samples img')].every(
      (image) => image.loading === 'lazy' && (!image.complete || image.naturalWidth > 0),
    ),
  );
  assert.ok(await samples.first().locator('img').getAttribute('alt'));
});

browserTest("a checkpoint's file is downloaded", async ({ page, base }) => {
  await page.goto(`${base}/jobs/91/results`);
  const link = page.locator('section[aria-label=Checkpoints] a', { hasText: 'model.safetensors' }).first();
  const coming = page.waitForEvent('download');
  await link.click();
  const download = await coming;
  assert.match(download.suggestedFilename(), /^job-g\d+-step\d+-model\.safetensors$/);
});

browserTest('an ended job is deleted, after a question', async ({ page, base, server }) => {
  await page.goto(`${base}/jobs/11`);
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('button', { name: 'Delete the job' }).click();
  await page.waitForURL(/\/jobs$/);
  assert.equal(server.world.jobs.has('11'), false);
  await page.getByText('Job 11 is deleted').waitFor();
});

browserTest('a GPU that is held back, and one with an Xid, are told apart', async ({ page, base }) => {
  await page.goto(`${base}/nodes/gpu-8`);
  const rows = page.locator('section[aria-label=gpu-8] section[aria-label=Devices] tbody tr');
  await rows.first().waitFor();
  const notes = await rows.locator('td:last-child').allTextContents();
  assert.match(notes[4]!, /held back by heat/);
  assert.match(notes[5]!, /Xid 79/);
  assert.match(notes[6]!, /GPU is lost/);
});

browserTest('a chart is looked at closely by keys alone', async ({ page, base }) => {
  await page.goto(`${base}/jobs/91`);
  const plot = page.locator('figure[aria-label=Loss] .plot');
  await plot.locator('canvas').waitFor();
  const asked = () => page.waitForRequest((request) => /metrics.*from=/.test(request.url()));
  await plot.focus();
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  const zoomed = asked();
  await page.keyboard.press('+');
  const url = new URL((await zoomed).url());
  assert.ok(Number(url.searchParams.get('from')) > 0);
  await page.getByRole('button', { name: 'Show all' }).waitFor();
  await plot.focus();
  await page.keyboard.press('0');
  await page.getByText('Drag over a chart to look closer').waitFor();
});

browserTest('a node that is not there is said to be none, with a way back', async ({ page, base }) => {
  await page.goto(`${base}/nodes/zz`);
  const alert = page.getByRole('alert');
  await alert.getByText('There is no node zz').waitFor();
  assert.equal(await axe(page), '');
  await alert.getByRole('link', { name: 'All nodes' }).press('Enter');
  await page.waitForURL(/\/nodes$/);
  await alert.waitFor({ state: 'detached' });
});

browserTest('a job that never ran says so, and not that it took 0 s', async ({ page, base, server }) => {
  const { job } = server.world.jobs.get('11')!;
  const ran = page.locator('.facts div', { hasText: 'Ran for' });
  Object.assign(job, { generation: '0' });
  await page.goto(`${base}/jobs/${job.id}`);
  await ran.getByText('never started').waitFor();
  Object.assign(job, { generation: '1', held_ms: '476', state: 'JOB_STATE_FAILED' });
  await page.reload();
  await ran.getByText('< 1 s').waitFor();
});

browserTest('use and quotas keep up with what runs', async ({ page, base, server }) => {
  await page.goto(`${base}/usage`);
  const panel = page.locator('section[aria-label="Use and quotas"]');
  await panel.locator('tbody tr').first().waitFor();
  const account = server.world.usage[0]!;
  account.name = 'somebody-new';
  await panel.getByText('somebody-new').waitFor();
});

browserTest('one spike does not flatten the loss, and a key shows it', async ({ page, base, server }) => {
  server.world.jobs.get('91')!.run.spike = { step: 1000, loss: 5000 };
  await page.goto(`${base}/jobs/91`);
  const chart = page.locator('figure[aria-label=Loss]');
  const button = chart.getByRole('button', { name: /^Peaks up to 5/ });
  await button.waitFor();
  assert.equal(await button.getAttribute('aria-pressed'), 'false');
  await button.press('Enter');
  assert.equal(await button.getAttribute('aria-pressed'), 'true');
  assert.equal(await page.locator('figure[aria-label=Accuracy] button', { hasText: 'Peaks' }).count(), 0);
});
