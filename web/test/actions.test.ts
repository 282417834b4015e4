// What people ask for in the browser, and what happens when imgd is away.
import assert from 'node:assert/strict';
import { axe, browserTest, comeBack, dropFile, tabTo } from './harness.ts';

browserTest('submit: a fault is shown at its line, and a good file goes', async ({ page, server, base }) => {
  await page.goto(`${base}/submit`);
  const editor = page.getByLabel('Job file');
  await editor.fill('name: fine\nmodle:\n  name: resnet50\ntrain:\n  epochs: many\n');
  await page.waitForSelector('.gutter .fault');
  assert.deepEqual(
    (await page.locator('.gutter .fault').allTextContents()).map((text) => text.replace(/\D/g, '')),
    ['2', '5'],
  );
  assert.match((await page.textContent('.faults'))!, /did you mean 'model'/);
  assert.ok(await page.getByRole('button', { name: 'Submit', exact: true }).isDisabled());
  await page.getByRole('button', { name: 'Line 5' }).click();
  const chosen = await editor.evaluate((field: HTMLTextAreaElement) =>
    field.value.slice(field.selectionStart, field.selectionEnd),
  );
  assert.equal(chosen, 'many');

  await editor.fill('name: fine\nresources: {nodes: 1}\ntrain:\n  epochs: 5\n');
  await page.getByText('The file is good').waitFor();
  await page.getByLabel('Owner').fill('ada');
  await page.getByRole('button', { name: 'Submit', exact: true }).click();
  await page.waitForURL(/\/jobs\/121$/);
  await page.getByRole('heading', { name: 'fine #121' }).waitFor();
  assert.equal(server.world.jobs.get('121')!.job.owner, 'ada');
});

browserTest('submit: the usual settings are fields that write into the file', async ({ page, base }) => {
  await page.goto(`${base}/submit`);
  const editor = page.getByLabel('Job file');
  await editor.fill('name: fine # mine\ntrain: {epochs: 5}\nresources:\n  nodes: {min: 1, max: 2}\n');
  await page.getByLabel('Epochs').fill('90');
  await page.getByLabel('Learning rate').fill('0.4');
  assert.equal(
    await editor.inputValue(),
    'name: fine # mine\ntrain: {epochs: 90}\nresources:\n  nodes: {min: 1, max: 2}\noptimizer:\n  lr: 0.4\n',
  );
  assert.equal(await page.getByLabel('Name', { exact: true }).inputValue(), 'fine');
  assert.ok(await page.getByLabel('Nodes', { exact: true }).isDisabled());
});

browserTest('rerun shows what was changed', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/91`);
  await page.getByRole('button', { name: 'Rerun' }).click();
  const editor = page.getByLabel('Job file');
  await editor.waitFor();
  const text = await editor.inputValue();
  await editor.fill(text.replace(/lr: .*/, 'lr: 0.125'));
  await page.waitForSelector('.diff .added');
  assert.equal(await page.textContent('.diff .added'), '+   lr: 0.125');
  await page.getByText('The file is good').waitFor();
  await page.getByRole('button', { name: 'Submit', exact: true }).click();
  await page.waitForURL(/\/jobs\/121$/);
  assert.equal(server.world.jobs.get('121')!.job.rerun_of, '91');
  await page.getByRole('link', { name: 'rerun of 91' }).waitFor();
});

browserTest('rerun shows no more than what was changed of a file with CRLF', async ({ page, server, base }) => {
  const { job } = server.world.jobs.get('91')!;
  job.job_yaml = job.job_yaml.replaceAll('\n', '\r\n');
  await page.goto(`${base}/submit?rerun=91`);
  const editor = page.getByLabel('Job file');
  const changed = page.locator('.diff :is(.added, .removed)');
  await editor.fill((await editor.inputValue()).replace(/lr: .*/, 'lr: 0.0123'));
  await page.locator('.diff .added', { hasText: 'lr: 0.0123' }).waitFor();
  assert.equal(await changed.count(), 2);
  await dropFile(page, job.job_yaml.replace(/lr: .*/, 'lr: 0.0456'));
  await page.locator('.diff .added', { hasText: 'lr: 0.0456' }).waitFor();
  assert.equal(await changed.count(), 2);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('several jobs are cancelled, and of them one is refused', async ({ page, server, base }) => {
  await page.route('**/api/v1/jobs/92/cancel', (route) =>
    route.fulfill({ status: 412, json: { error: { code: 'REFUSED', message: 'job 92 has ended' } } }),
  );
  await page.goto(`${base}/?state=running`);
  for (const id of [91, 92, 93]) await page.locator(`#row-${id} input`).check();
  const chosen = page.getByRole('region', { name: 'Chosen jobs' });
  await chosen.getByRole('button', { name: 'Cancel …' }).click();
  await page.getByRole('button', { name: 'Cancel them' }).click();
  await page.locator('.toast', { hasText: '2 jobs cancelled' }).waitFor();
  await page.locator('.toast', { hasText: 'job 92 has ended' }).waitFor();
  const states = [91, 92, 93].map((id) => server.world.jobs.get(String(id))!.job.state);
  assert.deepEqual(states, ['JOB_STATE_CANCELLED', 'JOB_STATE_RUNNING', 'JOB_STATE_CANCELLED']);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('pause, resume, priority and cancel', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/92`);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.locator('.title .state', { hasText: 'Paused' }).waitFor();
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.locator('.title .state', { hasText: 'Queued' }).waitFor();
  await page.getByRole('button', { name: /^Priority/ }).click();
  await page.getByRole('textbox', { name: 'Priority' }).fill('5000');
  await page.getByRole('button', { name: 'Change it' }).click();
  await page.getByRole('alert').getByText('from -1000 to 1000 is allowed').waitFor();
  await page.getByRole('textbox', { name: 'Priority' }).fill('7');
  await page.getByRole('button', { name: 'Change it' }).click();
  await page.getByRole('button', { name: 'Priority 7' }).waitFor();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('button', { name: 'Cancel the job' }).click();
  await page.locator('.title .state', { hasText: 'Cancelled' }).waitFor();
  assert.equal(server.world.jobs.get('92')!.job.state, 'JOB_STATE_CANCELLED');
});

browserTest('by keys alone: a job is written, its fault mended, and submitted', async ({ page, server, base }) => {
  await page.goto(`${base}/submit`);
  const editor = page.getByLabel('Job file');
  await editor.waitFor();
  await tabTo(page, editor);
  await page.keyboard.press('Control+A');
  await page.keyboard.type('name: keys\nresources: {nodes: 1}\ntrain:\n  epochs: many\n');
  const fault = page.getByRole('button', { name: 'Line 4' });
  await fault.waitFor();
  await tabTo(page, fault);
  await page.keyboard.press('Space');
  // What is wrong is selected.
  await page.keyboard.type('5');
  await page.getByText('The file is good').waitFor();
  await tabTo(page, page.getByRole('button', { name: 'Submit', exact: true }), 'Shift+Tab');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/jobs\/121$/);
  assert.match(server.world.jobs.get('121')!.job.job_yaml, /^name: keys\n.*\n {2}epochs: 5\n$/s);
}); // biome-ignore format: one argument

browserTest('by keys alone: a job is cancelled, after second thoughts', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/92`);
  const button = page.getByRole('button', { name: 'Cancel', exact: true });
  await button.waitFor();
  await tabTo(page, button);
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Cancel job 92?' });
  await dialog.waitFor();
  assert.equal(await axe(page), '');
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  assert.equal(server.world.jobs.get('92')!.job.state, 'JOB_STATE_RUNNING');
  assert.ok(await button.evaluate((one) => one === document.activeElement), 'the focus is where it was');
  await page.keyboard.press('Space');
  await dialog.waitFor();
  const box = dialog.getByLabel('Save a checkpoint first');
  if (!(await box.evaluate((one) => one === document.activeElement))) await tabTo(page, box);
  await page.keyboard.press('Space');
  assert.equal(await box.isChecked(), false);
  await tabTo(page, dialog.getByRole('button', { name: 'Cancel the job' }));
  await page.keyboard.press('Enter');
  await page.locator('.title .state', { hasText: 'Cancelled' }).waitFor();
  assert.equal(server.world.jobs.get('92')!.job.state, 'JOB_STATE_CANCELLED');
}); // biome-ignore format: one argument

browserTest('by keys alone: jobs are chosen and compared, and one is left out', async ({ page, base }) => {
  await page.goto(`${base}/?state=running`);
  await page.waitForSelector('.rows [role=row]');
  await tabTo(page, page.getByRole('grid', { name: 'Jobs' }));
  for (const key of ['ArrowDown', 'Space', 'ArrowDown', 'x', 'ArrowDown', 'x']) await page.keyboard.press(key);
  await tabTo(page, page.getByRole('region', { name: 'Chosen jobs' }).getByRole('link', { name: 'Compare' }));
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/compare\?jobs=\d+,\d+,\d+$/);
  const figures = page.locator('section[aria-label=Figures] tbody tr');
  await figures.nth(2).waitFor();
  await tabTo(page, page.getByRole('button', { name: 'Training loss' }));
  await page.keyboard.press('Space');
  await page.waitForURL(/metric=loss/);
  await tabTo(page, page.getByRole('button', { name: 'Training loss as a table' }));
  await page.keyboard.press('Enter');
  await page.locator('section[aria-label="Training loss, table"] tbody tr').first().waitFor();
  await tabTo(page, page.getByRole('button', { name: /^Leave out job/ }).first());
  await page.keyboard.press('Enter');
  await page.waitForURL(/jobs=\d+,\d+&/);
}); // biome-ignore format: one argument

browserTest('a node is drained, and used again', async ({ page, server, base }) => {
  await page.goto(`${base}/nodes`);
  await page.getByRole('button', { name: 'Drain … gpu-2' }).click();
  await page.getByLabel(/^Why/).fill('new cables');
  await page.getByRole('button', { name: 'Drain it' }).click();
  await page.getByText('is drained by dashboard: new cables').waitFor();
  assert.equal(server.world.nodes.get('gpu-2')!.set_aside?.reason, 'new cables');
  await page.getByRole('button', { name: 'Undrain gpu-2' }).click();
  await page.getByText('is drained by dashboard: new cables').waitFor({ state: 'detached' });
});

browserTest('by keys alone: a node is drained, with a reason, and used again', async ({ page, server, base }) => {
  await page.goto(`${base}/nodes`);
  await page.waitForSelector('.node-row');
  await page.keyboard.press('/');
  await page.keyboard.type('gpu-2');
  const drain = page.getByRole('button', { name: 'Drain … gpu-2' });
  await page.waitForFunction(() => document.querySelectorAll('.node-row').length === 1);
  await tabTo(page, drain);
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Drain gpu-2?' });
  const why = dialog.getByLabel(/^Why/);
  await why.waitFor();
  if (!(await why.evaluate((one) => one === document.activeElement))) await tabTo(page, why);
  await page.keyboard.type('new cables');
  await tabTo(page, dialog.getByRole('button', { name: 'Drain it' }));
  await page.keyboard.press('Enter');
  await page.getByText('is drained by dashboard: new cables').waitFor();
  assert.equal(server.world.nodes.get('gpu-2')!.set_aside?.drain, true);
  await tabTo(page, page.getByRole('button', { name: 'Undrain gpu-2' }));
  await page.keyboard.press('Space');
  await drain.waitFor();
  assert.equal(server.world.nodes.get('gpu-2')!.set_aside, undefined);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what was decided of a node is shown while events never pause', async ({ page, server, base }) => {
  await page.goto(`${base}/nodes`);
  await page.getByRole('button', { name: 'Drain … gpu-2' }).waitFor();
  await page.waitForSelector('[data-state=live]');
  const decide = () =>
    server.live.decide({
      actor: 'scheduler',
      reason: 'REASON_CODE_PLACED',
      text: 'placed on gpu-7',
      job_id: '92',
      generation: '1',
      from: 'JOB_STATE_QUEUED',
      to: 'JOB_STATE_STARTING',
      node: '',
    });
  const begun = Date.now();
  const timer = setInterval(decide, 100);
  let asked = 0;
  page.on('request', (request) => {
    if (request.url().endsWith('/api/v1/nodes')) asked += 1;
  });
  try {
    const node = server.world.nodes.get('gpu-2')!;
    node.set_aside = { drain: true, reason: 'new cables', actor: 'ada', since_us: '1', empty: true, by_imgd: false };
    node.reason_text = 'is drained by ada: new cables';
    await page.getByText('is drained by ada: new cables').waitFor();
    await page.waitForTimeout(3000);
    // Each two seconds, however long the machine took for them, and once at either end.
    const most = (Date.now() - begun) / 2000 + 2;
    assert.ok(asked >= 2 && asked <= most, `it was asked for ${asked} times, of ${most}`);
  } finally {
    clearInterval(timer);
  }
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('chosen jobs are compared: curves, figures, settings that differ', async ({ page, base }) => {
  await page.goto(`${base}/?state=running`);
  await page.waitForSelector('.rows [role=row]');
  for (const i of [0, 1, 2]) await page.locator('.rows [role=row] input').nth(i).check();
  await page.getByRole('link', { name: 'Compare', exact: true }).last().click();
  await page.waitForURL(/\/compare\?jobs=\d+,\d+,\d+$/);
  await page.locator('section[aria-label=Figures] tbody tr').nth(2).waitFor();
  await page.locator('figure .legend svg').nth(2).waitFor();
  await page.locator('section[aria-label="Settings that differ"] th', { hasText: 'optimizer.lr' }).waitFor();
  await page.getByRole('button', { name: 'Training loss' }).click();
  await page.waitForURL(/metric=loss/);
});

browserTest('a data set is registered, and forgotten', async ({ page, server, base }) => {
  await page.goto(`${base}/datasets`);
  await page.getByRole('button', { name: 'Register …' }).click();
  await page.getByLabel(/^Name/).fill('tiny');
  await page.getByLabel(/^Where it is/).fill('/shared/tiny');
  await page.getByRole('button', { name: 'Register', exact: true }).click();
  await page.getByRole('rowheader', { name: 'tiny' }).waitFor();
  await page.getByRole('button', { name: 'Forget … tiny' }).click();
  await page.getByRole('button', { name: 'Take it away' }).click();
  await page.getByRole('rowheader', { name: 'tiny' }).waitFor({ state: 'detached' });
  assert.ok(!server.world.datasets.has('tiny'));
});

browserTest(
  'while imgd is away the page says so; back, it has what it missed',
  async ({ page, server, base }) => {
    await page.goto(`${base}/?state=running`);
    await page.waitForSelector('[data-state=live]');
    await page.waitForSelector('.rows [role=row]');
    server.setAway(true);
    await page.getByText('The connection to imgd is lost').waitFor();
    const gone = server.world.jobs.get('93')!;
    server.live.change(gone, 'FAILED', 'while nobody looked', 'agent:gpu-4', 'RANK_FAILED');
    server.setAway(false);
    await comeBack(page);
    await page.waitForFunction(() => !document.querySelector('#row-93'));
    await page.getByText('The connection to imgd is lost').waitFor({ state: 'detached' });
  },
);

browserTest('after a break the stream is asked for from the last number on', async ({ page, server, base }) => {
  await page.goto(`${base}/jobs/93`);
  await page.waitForSelector('[data-state=live]');
  assert.deepEqual(server.streams, [null]);
  // It has a number, and the page has taken it once the state that follows on it is shown.
  server.live.change(server.world.jobs.get('93')!, 'PAUSED', 'somebody looks', 'user:ada', 'PAUSED_BY_USER');
  await page.locator('.title .state', { hasText: 'Paused' }).waitFor();
  const last = String(server.world.events);
  server.setAway(true);
  await page.getByText('The connection to imgd is lost').waitFor();
  server.setAway(false);
  await page.waitForSelector('[data-state=live]');
  assert.deepEqual(server.streams, [null, last]);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a token is asked for where imgd wants one', async ({ page, base }) => {
  await page.goto(`${base}/nodes`);
  await page.getByRole('button', { name: 'Enter a token' }).click();
  await page.locator('input[name=token]').fill('imgd_bad');
  await page.getByRole('button', { name: 'Use it' }).click();
  await page.getByRole('dialog').getByRole('alert').waitFor();
  await page.locator('input[name=token]').fill('imgd_good');
  await page.getByRole('button', { name: 'Use it' }).click();
  await page.waitForSelector('[data-state=live]');
  await page.waitForSelector('.node-row');
  // It outlives the page, and no script can read it.
  await page.reload();
  await page.waitForSelector('[data-state=live]');
  const seen = await page.evaluate(() => document.cookie + JSON.stringify(localStorage));
  if (seen.includes('imgd_good')) throw new Error(`a script can read the token: ${seen}`);
  // Who logs out leaves nothing to see, here and in other tabs.
  const other = await page.context().newPage();
  await other.goto(`${base}/nodes`);
  await other.waitForSelector('[data-state=live]');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('button', { name: 'Enter a token' }).waitFor();
  assert.equal(new URL(page.url()).pathname, '/');
  assert.equal(await page.locator('.node-row, .rows [role=row]').count(), 0);
  assert.equal(await page.getByRole('button', { name: 'Log out' }).count(), 0);
  assert.equal(await page.evaluate(() => localStorage.getItem('imgd.logged-in')), null);
  await page.goBack();
  await page.getByRole('button', { name: 'Enter a token' }).waitFor();
  assert.equal(await page.locator('.node-row').count(), 0);
  await other.getByRole('button', { name: 'Enter a token' }).waitFor();
  await other.locator('.node-row').waitFor({ state: 'detached' });
  await other.close();
}, { token: 'imgd_good' }); // biome-ignore format: one argument

browserTest('a page that the browser kept is left where its session was ended meanwhile', async ({ page, base }) => {
  // What the browser says as it puts a page away and takes it out again.
  const away = (meanwhile: string) =>
    page.evaluate((script) => {
      dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }));
      const session = localStorage.getItem('imgd.logged-in')!;
      if (script === 'out') localStorage.removeItem('imgd.logged-in');
      if (script === 'another') localStorage.setItem('imgd.logged-in', `${session}1`);
      dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }));
    }, meanwhile);
  const logIn = async () => {
    await page.goto(`${base}/nodes`);
    await page.getByRole('button', { name: 'Enter a token' }).click();
    await page.locator('input[name=token]').fill('imgd_good');
    await page.getByRole('button', { name: 'Use it' }).click();
    await page.waitForSelector('.node-row');
  };
  await logIn();
  await away('nothing');
  await page.waitForTimeout(500);
  assert.equal(new URL(page.url()).pathname, '/nodes');
  for (const meanwhile of ['out', 'another']) {
    await away(meanwhile);
    await page.waitForURL(`${base}/`);
    await page.goto(`${base}/nodes`);
    await page.evaluate(() => localStorage.setItem('imgd.logged-in', '1'));
    await page.waitForSelector('.node-row');
  }
}, { token: 'imgd_good' }); // biome-ignore format: one argument

browserTest('who goes back after log-out to a page that the browser kept sees nothing of it', async ({ page, base }) => {
  await page.addInitScript(() => {
    window.addEventListener('pageshow', (event) => {
      if (event.persisted) sessionStorage.setItem('kept', location.pathname);
    });
  });
  await page.goto(`${base}/nodes`);
  await page.getByRole('button', { name: 'Enter a token' }).click();
  await page.locator('input[name=token]').fill('imgd_good');
  await page.getByRole('button', { name: 'Use it' }).click();
  await page.waitForSelector('.node-row');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.waitForURL(`${base}/`);
  await page.getByRole('button', { name: 'Enter a token' }).waitFor();
  await page.evaluate(() => history.back());
  await page.waitForFunction(() => sessionStorage.getItem('kept') === '/nodes' && location.pathname === '/');
  await page.getByRole('button', { name: 'Enter a token' }).waitFor();
  assert.equal(await page.locator('.node-row, .rows [role=row]').count(), 0);
}, { token: 'imgd_good', keepsPages: true }); // biome-ignore format: one argument

browserTest('where imgd fails at log-out the page is left; where it is away, it says so', async ({ page, server, base }) => {
  await page.goto(`${base}/nodes`);
  await page.evaluate(() => localStorage.setItem('imgd.logged-in', '1'));
  await page.reload();
  await page.waitForSelector('.node-row');
  server.setAway(true);
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByText('imgd can’t be reached').first().waitFor();
  assert.equal(new URL(page.url()).pathname, '/nodes');
  server.setAway(false);
  await comeBack(page);
  await page.route('**/api/v1/session', (route) =>
    route.fulfill({ status: 500, json: { error: { code: 'INTERNAL', message: 'the disk is full' } } }),
  );
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.waitForURL(`${base}/`);
  // It is still let in here.
  await page.getByRole('button', { name: 'Log out' }).waitFor();
}); // biome-ignore format: one argument
