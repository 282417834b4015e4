// What is read on the pages beside a job's curves, over canned data.
import assert from 'node:assert/strict';
import { addChange } from '../dev/jobs.ts';
import { browserTest, dropFile } from './harness.ts';

browserTest('the queue: place, reason and forecast; what is held back or paused; quotas', async ({ page, base }) => {
  await page.goto(`${base}/queue`);
  const rows = page.locator('section[aria-label="In the queue"] tbody tr');
  const first = rows.first();
  await first.locator('td:nth-child(7) time').waitFor();
  const cells = await first.locator('td').allTextContents();
  assert.equal(cells[0], '1');
  assert.match(cells[1]!, / #99$/);
  assert.match(cells[6]!, /^in 2\u00a0h/);
  assert.match(cells[7]!, /^needs 4 nodes with 8 free GPUs each; .* job 91 holds gpu-1, gpu-2/);
  const places = await page.locator('section[aria-label="In the queue"] tbody td:first-child').allTextContents();
  assert.deepEqual(places, places.map((_, i) => String(i + 1)));
  // One that waits for a quota starts nobody knows when.
  const quota = rows.filter({ hasText: 'may have 32 devices at once' }).first();
  await quota.getByText('nobody knows').waitFor();

  const held = page.locator('section[aria-label="Held back"] tbody tr');
  assert.match((await held.first().textContent())!, /comes after job 91 /);
  assert.equal(await held.count(), 3);
  const paused = page.locator('section[aria-label="Paused"] tbody tr');
  assert.match((await paused.first().textContent())!, /#120.*Paused.*paused by /);
  const usage = page.locator('section[aria-label="Use and quotas"] tbody tr');
  await usage.first().waitFor();
  assert.match((await usage.first().textContent())!, / of /);

  await first.locator('a').click();
  await page.waitForURL(/\/jobs\/99$/);
}); // biome-ignore format: one argument

browserTest('use and quotas say whose share is larger, and what each has had lately', async ({ page, base }) => {
  await page.goto(`${base}/queue`);
  const table = page.locator('section[aria-label="Use and quotas"] table');
  await table.waitFor();
  const heads = await table.locator('thead th').allTextContents();
  const cells = async (name: string) => {
    const texts = await table.locator('tbody tr', { hasText: name }).locator('th, td').allTextContents();
    return Object.fromEntries(texts.map((text, i) => [heads[i]!, text.trim()]));
  };
  const ada = await cells('ada');
  assert.equal(ada.Share, '2');
  assert.equal(ada['Devices now'], '24 of 64');
  assert.equal(ada['Lately, device-hours'], '690');
  const grace = await cells('grace');
  assert.equal(grace.Share, '1');
  assert.equal(grace['Devices now'], '32 of 32');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest("a waiting job's page says why it waits", async ({ page, server, base }) => {
  const waiting = [...server.world.jobs.values()].filter(({ job }) => job.state === 'JOB_STATE_QUEUED' && job.reason_text);
  const texts = new Map(waiting.map(({ job }) => [job.reason, job]));
  assert.ok(texts.has('REASON_CODE_WAITS_BEHIND_JOB') && texts.size >= 4, [...texts.keys()].join(' '));
  for (const job of texts.values()) {
    await page.goto(`${base}/jobs/${job.id}`);
    const why = await page.locator('p.why').textContent();
    // As a sentence: with a capital, and a full stop.
    assert.equal(why, `${job.reason_text[0]!.toUpperCase()}${job.reason_text.slice(1)}.`, job.reason);
  }
}); // biome-ignore format: one argument

browserTest('the timeline: each change of state, with who did it and why', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/91/timeline`);
  const items = page.locator('.timeline li');
  await items.first().waitFor();
  const changes = server.world.jobs.get('91')!.history.map((event) => event.state_change!);
  const shown = (await items.allTextContents()).reverse();
  assert.equal(shown.length, changes.length);
  assert.ok(changes.some((change) => change.to === 'JOB_STATE_PREEMPTING'));
  changes.forEach((change, i) => {
    assert.ok(shown[i]!.includes(change.text), shown[i]);
    assert.ok(shown[i]!.endsWith(change.actor), shown[i]);
    assert.ok(shown[i]!.toUpperCase().includes(change.to.slice('JOB_STATE_'.length)), shown[i]);
  });
  // Each but the newest says for how long.
  assert.deepEqual(
    shown.map((text) => text.includes(' · for ')),
    changes.map((_, i) => i < changes.length - 1),
  );
  assert.match(shown.at(-1)!, / · start 2/);
});

browserTest('a job that holds nothing says where its ranks were last', async ({ page, server, base }) => {
  const heading = page.getByRole('heading', { name: /^Where its ranks/ });
  await page.goto(`${base}/jobs/91`);
  await heading.waitFor();
  assert.equal(await heading.textContent(), 'Where its ranks are');
  for (const state of ['PAUSED', 'QUEUED', 'FAILED'] as const) {
    addChange(server.world.jobs.get('91')!, Date.now() / 1000, state, 'paused by ada', 'user:ada');
    await page.goto(`${base}/jobs/91`);
    await heading.waitFor();
    assert.equal(await heading.textContent(), 'Where its ranks were last', state);
  }
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what could start at once starts now, and was not to start some time ago', async ({ page, base }) => {
  await page.route('**/api/v1/jobs', async (route) => {
    const response = await route.fetch();
    const answer = (await response.json()) as { job: { expected_start_us: string } };
    answer.job.expected_start_us = String((Date.now() - 90_000) * 1000);
    await route.fulfill({ response, json: answer });
  });
  await page.goto(`${base}/submit`);
  await page.getByText('The file is good').waitFor();
  const start = page.locator('.pairs dt', { hasText: 'Would start' }).locator('+ dd');
  assert.equal(await start.textContent(), 'now');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('the configuration: the file as it was submitted, to copy and to run again', async ({ page, context, server, base }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.goto(`${base}/jobs/91/config`);
  const text = server.world.jobs.get('91')!.job.job_yaml;
  const lines = page.locator('section.yaml > div');
  await lines.first().waitFor();
  assert.equal(`${(await lines.allTextContents()).join('\n')}\n`, text);
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByText('The job file is in the clipboard').waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
  await page.getByRole('link', { name: 'Change and rerun' }).click();
  await page.waitForURL(/\/submit\?rerun=91$/);
  const editor = page.getByLabel('Job file');
  await editor.waitFor();
  assert.equal(await editor.inputValue(), text);
}); // biome-ignore format: one argument

browserTest('a GPU leads to the job that holds it, and a node says what it costs and that it goes', async ({ page, base }) => {
  await page.goto(`${base}/nodes`);
  const row = page.locator('.node-row').filter({ has: page.getByRole('link', { name: 'gpu-1', exact: true }) });
  await row.locator('a.gpu').first().waitFor();
  assert.equal(await row.locator('a.gpu').count(), 8);
  assert.match((await row.locator('a.gpu').first().textContent())!, /\d\u00a0%.*#91/);
  await row.locator('a.gpu').first().click();
  await page.waitForURL(/\/jobs\/91$/);

  await page.goto(`${base}/nodes/gpu-12`);
  const facts = page.locator('section[aria-label="gpu-12"] .pairs');
  await facts.waitFor();
  await facts.getByText('29.50 USD an hour'.replace(' ', '\u00a0')).waitFor();
  const text = (await facts.textContent())!;
  assert.match(text, /Spot noticeterminate in \d/);
}); // biome-ignore format: one argument

browserTest('a node says what was decided of it, also what is while one looks', async ({ page, base }) => {
  await page.goto(`${base}/nodes/gpu-7`);
  const events = page.locator('section[aria-label="Events of gpu-7"] tbody tr');
  await events.filter({ hasText: 'node gpu-7 has joined with 8 devices' }).waitFor();
  const before = await events.count();
  await page.locator('section[aria-label="gpu-7"]').getByRole('button', { name: 'Drain … gpu-7' }).click();
  await page.getByRole('dialog').getByRole('textbox').fill('bad fan');
  await page.getByRole('button', { name: 'Drain it' }).click();
  await events.filter({ hasText: 'is drained by' }).first().waitFor();
  assert.match((await events.first().textContent())!, /bad fan.*user:/, 'the newest is the first');
  assert.equal(await events.count(), before + 1);
  await page.reload();
  await events.filter({ hasText: 'bad fan' }).waitFor();
}); // biome-ignore format: one argument

browserTest('a file that is dropped on the editor is the job', async ({ page, base }) => {
  await page.goto(`${base}/submit`);
  const editor = page.getByLabel('Job file');
  await editor.waitFor();
  await dropFile(page, 'name: dropped\nmodle: {name: resnet50}\n');
  await page.waitForSelector('.gutter .fault');
  assert.equal(await editor.inputValue(), 'name: dropped\nmodle: {name: resnet50}\n');
  await dropFile(page, 'name: dropped\nresources: {nodes: 1}\n');
  await page.getByText('The file is good').waitFor();
});

browserTest('text that is dragged in the editor is left to its field, and a file that is too large is refused', async ({ page, base }) => {
  await page.goto(`${base}/submit`);
  const editor = page.getByLabel('Job file');
  await editor.fill('name: mine\n');
  const taken = await editor.evaluate((field) =>
    ['dragover', 'drop'].map((type) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.setData('text/plain', 'mine');
      return !field.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
    }),
  );
  assert.deepEqual(taken, [false, false]);
  await dropFile(page, '#'.repeat(2 ** 20 + 1));
  await page.locator('.toast').getByText('job.yaml is too large').waitFor();
  assert.equal(await editor.inputValue(), 'name: mine\n');
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('spend by day is there also when the jobs that cost something are deleted', async ({ page, server, base }) => {
  for (const { job } of server.world.jobs.values()) job.cost = 0;
  await page.route('**/api/v1/usage/over-time?*', (route) => {
    const edges = new URL(route.request().url()).searchParams.get('edges_us')!.split(',');
    const each = (amount: number) => edges.slice(1).map(() => amount);
    return route.fulfill({ json: { owners: [{ owner: 'ada', device_hours: each(2), cost: each(3) }] } });
  });
  await page.goto(`${base}/usage`);
  const days = page.getByRole('figure', { name: 'By day' });
  await days.getByText(/^90\.00\sUSD$/).first().waitFor();
  await page.getByRole('button', { name: 'Device-hours' }).click();
  await days.getByText(/^60[.0]*\sh$/).first().waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a data set: its images, its classes, what verifying found, in words', async ({ page, base }) => {
  await page.goto(`${base}/datasets`);
  await page.getByRole('link', { name: 'imagenet-176' }).click();
  await page.waitForURL(/\/datasets\/imagenet-176$/);
  await page.locator('nav a[aria-current=page]', { hasText: 'Data sets' }).waitFor();
  await page.locator('.samples img').first().waitFor();
  assert.equal(await page.locator('.samples img').count(), 36);
  assert.match((await page.locator('.samples img').first().getAttribute('alt'))!, /bench\/.*: bench$/);
  const verification = page.getByRole('region', { name: 'Verification' });
  assert.match((await verification.textContent())!, /✗ 131 faults.*1\s331\s167 decoded/);
  await verification.getByRole('button', { name: 'Show the first 100' }).click();
  assert.match((await verification.textContent())!, /Corrupt JPEG data.*and 31 more/);
  assert.match((await page.textContent('main'))!, /n02105855_2933\.JPEG.*truncated/);
  const classes = page.getByRole('region', { name: 'Classes of train' });
  assert.equal(await classes.locator('tbody tr').count(), 50);
  await page.getByRole('button', { name: 'Show all classes of train' }).click();
  assert.equal(await classes.locator('tbody tr').count(), 1000);
});

browserTest(
  'how far a conversion is comes live, and goes when it is done',
  async ({ page, server, base }) => {
    await page.goto(`${base}/datasets/places`);
    const bar = page.getByRole('progressbar', { name: 'How far the conversion is' });
    await bar.waitFor();
    const text = page.getByRole('region', { name: 'Conversion' }).locator('.conversion span');
    const before = await text.textContent();
    assert.match(before!, /writing train: \d+\s\d+ of 1\s803\s460 images, \d+ of 1503 shards/);
    await page.waitForFunction(
      (old) => document.querySelector('.conversion span')!.textContent !== old,
      before,
    );
    assert.match((await page.textContent('main'))!, /Never verified: it is still being made/);

    // Its end: it is described and verified.
    const made = server.world.datasets.get('places')!;
    const { progress, ...rest } = made;
    assert.ok(progress);
    const at = String(Date.now() * 1000);
    const done = {
      ...rest,
      made_by: '0',
      described_us: at,
      verified_us: at,
      images: '1803460',
      classes: 365,
    };
    server.world.datasets.set('places', done);
    server.hub.send('datasets', { datasets: [done], gone: [] });
    await page.locator('.samples img').first().waitFor();
    assert.equal(await bar.count(), 0);
    assert.match((await page.textContent('main'))!, /✓ nothing is broken/);
  },
);

browserTest('a set that goes away while one looks is said to be gone', async ({ page, server, base }) => {
  await page.goto(`${base}/datasets/shapes`);
  await page.getByText('Never verified: nobody has told').waitFor();
  await page
    .getByText(/^imgcli --server 127\.0\.0\.1:17650 dataset verify --decode dataset:shapes$/)
    .waitFor();
  server.world.datasets.delete('shapes');
  server.hub.send('datasets', { datasets: [], gone: ['shapes'] });
  await page.getByText('There is no data set shapes').waitFor();
});

browserTest('a job that never ran needs nodes, and runs on none', async ({ page, server, base }) => {
  const waits = [...server.world.jobs.values()].find(({ job }) => job.state === 'JOB_STATE_QUEUED' && job.generation === '0')!;
  waits.job.project = 'vision';
  await page.goto(`${base}/jobs/${waits.job.id}`);
  await page.locator('.facts dt', { hasText: 'Needs' }).waitFor();
  assert.equal(await page.locator('.facts dt', { hasText: 'Runs on' }).count(), 0);
  const about = page.locator('.pairs dt', { hasText: 'Project' }).locator('xpath=following-sibling::dd[1]');
  assert.equal(await about.textContent(), 'vision');
}, { everyMs: 0 }); // biome-ignore format: one argument
