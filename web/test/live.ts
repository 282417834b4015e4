// node test/live.ts URL JOB_FILE: what people do in the browser, on every page, against a real imgd. tests/e2e/test_dashboard.py runs it;
// a line on standard output asks for something that is done outside, and a line on standard input says that it is.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { chromium, type Page } from 'playwright-core';
import { CHROMIUM } from '../dev/chromium.ts';

const [base, file] = process.argv.slice(2) as [string, string];
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function outside(what: string): Promise<void> {
  console.log(what);
  assert.equal((await answers.next()).done, false, `nobody did '${what}'`);
}

const fact = (page: Page, name: string) =>
  page.locator('.facts > div', { has: page.locator('dt', { hasText: name }) }).locator('dd');

async function step(page: Page): Promise<number> {
  return Number.parseInt((await fact(page, 'Step').textContent())!.replace(/[^\d].*/, ''), 10) || 0;
}

/** Waits until the page, as it is, shows a step after this one. */
async function after(page: Page, number: number): Promise<number> {
  const end = Date.now() + 30_000;
  for (let at = await step(page); ; at = await step(page)) {
    if (at > number) return at;
    assert.ok(Date.now() < end, `the page still shows step ${at}`);
    await page.waitForTimeout(100);
  }
}

/** Steps of the table behind a chart, newest first. */
async function stepsOf(page: Page, title: string): Promise<number[]> {
  const cells = await page
    .locator(`section[aria-label="${title}, table"] tbody tr :first-child`)
    .allTextContents();
  return cells.map((text) => Number(text.replace(/\D/g, '')));
}

/** What imgd says of a faulty file is at the fault; where that is mended, the file goes. */
async function submit(page: Page): Promise<void> {
  await page.goto(`${base}/submit`);
  const editor = page.getByLabel('Job file');
  // What it begins with.
  await page.getByText('The file is good').waitFor();
  const good = readFileSync(file, 'utf8');
  const [said] = /epochs: \d+/.exec(good)!;
  await editor.fill(good.replace(said, 'epochs: many'));
  const line = good.slice(0, good.indexOf(said)).split('\n').length;
  await page.getByRole('button', { name: `Line ${line}`, exact: true }).click();
  assert.ok(await page.getByRole('button', { name: 'Submit', exact: true }).isDisabled());
  const chosen = await editor.evaluate((field: HTMLTextAreaElement) =>
    field.value.slice(field.selectionStart, field.selectionEnd),
  );
  assert.match(chosen, /^many\b/, 'what is wrong is selected');
  await editor.fill(good);
  await page.getByText('The file is good').waitFor();
  await page.getByLabel('Owner').fill('ada');
  await page.getByRole('button', { name: 'Submit', exact: true }).click();
  await page.waitForURL(/\/jobs\/1$/);
  await page.evaluate(() => Object.assign(window, { sameDocument: true }));
}

/** The step grows, and the chart with it, while nobody does anything. */
async function watch(page: Page): Promise<number> {
  await page.locator('.title .state', { hasText: 'Running' }).waitFor({ timeout: 60_000 });
  const first = await after(page, 0);
  const second = await after(page, first);
  await page.locator('figure[aria-label=Loss] .legend', { hasText: /training \d/ }).waitFor();
  return second;
}

async function loseAndFind(page: Page, seen: number): Promise<void> {
  await outside('stop the daemon');
  await page.getByText('The connection to imgd is lost').waitFor();
  assert.ok((await step(page)) >= seen, 'what was shown stays');
  const before = await step(page);
  await outside('start the daemon');
  await page.waitForSelector('[data-state=live]', { timeout: 60_000 });
  await page.getByText('The connection to imgd is lost').waitFor({ state: 'detached' });
  await after(page, before);
}

const first = (page: Page, rows: string) => page.locator(rows).first();

/** What has been used: of a job that has ended it is counted at once. */
async function usage(page: Page): Promise<void> {
  await page.goto(`${base}/usage`);
  await first(page, 'section[aria-label="Use and quotas"] tbody tr').filter({ hasText: 'ada' }).waitFor();
  await first(page, 'section[aria-label="Jobs that took most"] tbody tr')
    .filter({ hasText: 'small #1' })
    .waitFor();
  await page.getByRole('button', { name: 'By day as a table' }).click();
  await first(page, 'section[aria-label="By day, table"] tbody tr').waitFor();
}

/** The tables of jobs, of what waits and of nodes, while job 1 runs and job 2 waits for its nodes. */
async function tables(page: Page): Promise<void> {
  const rows = '.rows [role=row] .c-name';
  await page.goto(base);
  await page.locator(rows).nth(1).waitFor();
  assert.deepEqual(await page.locator(rows).allTextContents(), ['small', 'other'], 'what runs comes first');
  await page.getByRole('img', { name: 'Loss of job 1' }).waitFor();
  await page.locator('[role=columnheader] button', { hasText: 'Name' }).click();
  await page.waitForURL(/sort=name/);
  await first(page, rows).filter({ hasText: 'other' }).waitFor();

  await page.goto(`${base}/queue`);
  const waiting = first(page, 'section[aria-label="In the queue"] tbody tr');
  await waiting.waitFor();
  assert.match((await waiting.textContent())!, /^1other #2.*needs 1 node/);
  await first(page, 'section[aria-label="Use and quotas"] tbody tr')
    .filter({ hasText: /^ada\s*2/ })
    .waitFor();

  await page.goto(`${base}/nodes`);
  for (const node of ['a', 'b'])
    await page.locator('.node-row', { hasText: '#1 small' }).locator(`a[href="/nodes/${node}"]`).waitFor();
}

/** A job's own pages: its log, searched, with a link to a line that opens with it; its states; its file. */
async function pagesOfJob(page: Page): Promise<void> {
  await page.goto(`${base}/jobs/1/logs?rank=0`);
  await first(page, '.log .line').waitFor();
  await page.getByLabel('Search the lines').fill('VALIDATION:');
  const line = first(page, '.log .line').filter({ hasText: /validation: top-1 \d/ });
  await line.locator('mark').waitFor();
  const text = await line.textContent();
  await line.locator('a').click();
  await page.waitForURL(/line=1\.0\.\d+/);
  await page.goto(page.url().replace(/q=[^&]*&?/, ''));
  await page.locator('.line.chosen').waitFor();
  assert.equal(await page.locator('.line.chosen').textContent(), text);

  await page.goto(`${base}/jobs/1/timeline`);
  await first(page, '.timeline li').waitFor();
  const states = await page.locator('.timeline .state').allTextContents();
  assert.deepEqual(states.reverse(), ['Queued', 'Starting', 'Running']);

  await page.goto(`${base}/jobs/1/config`);
  await first(page, 'section.yaml > div').waitFor();
  const lines = await page.locator('section.yaml > div').allTextContents();
  assert.equal(`${lines.join('\n')}\n`, readFileSync(file, 'utf8'));
}

/** Of job 2, which waits. */
async function changes(page: Page): Promise<void> {
  await page.goto(`${base}/jobs/2`);
  const state = (name: string) => page.locator('.title .state', { hasText: name }).waitFor();
  await page.getByRole('button', { name: 'Pause' }).click();
  await state('Paused');
  await page.getByRole('button', { name: 'Resume' }).click();
  await state('Queued');
  await page.getByRole('button', { name: /^Priority/ }).click();
  await page.getByRole('textbox', { name: 'Priority' }).fill('-7');
  await page.getByRole('button', { name: 'Change it' }).click();
  await page.getByRole('button', { name: 'Priority -7' }).waitFor();
  // Of a new page too: it is imgd that says so.
  await page.reload();
  await page.getByRole('button', { name: 'Priority -7' }).waitFor();
  await page.goto(`${base}/jobs/2/timeline`);
  await page.locator('.timeline li', { hasText: 'Paused' }).waitFor();
}

async function cancel(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('button', { name: 'Cancel the job' }).click();
  await page.locator('.title .state', { hasText: 'Cancelled' }).waitFor();
}

/** Of all steps none is missing, also not of those while imgd was away. */
async function nothingIsMissing(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Loss as a table' }).click();
  const last = await step(page);
  let steps: number[] = [];
  for (let i = 0; i < 50 && !(steps[0]! >= last && isEven(steps)); i++) {
    steps = await stepsOf(page, 'Loss');
    await page.waitForTimeout(100);
  }
  assert.ok(isEven(steps), `steps are missing: ${steps}`);
  assert.ok(await page.evaluate(() => 'sameDocument' in window), 'the page was loaded anew');
}

/** No stretch between two rows is much longer than the others. */
function isEven(steps: readonly number[]): boolean {
  const gaps = steps.slice(1).map((at, i) => steps[i]! - at);
  const usual = [...gaps].sort((a, b) => a - b)[gaps.length >> 1]!;
  return gaps.length > 5 && gaps.every((gap) => gap <= usual * 3);
}

async function compare(page: Page): Promise<void> {
  await page.goto(`${base}/compare?jobs=1,2&metric=loss&x=step`);
  await page.locator('section[aria-label="Settings that differ"] th', { hasText: 'optimizer.lr' }).waitFor();
  for (const name of ['1 small', '2 other'])
    await page
      .locator('figure .legend span', { hasText: new RegExp(`${name} \\d`) })
      .waitFor({ timeout: 60_000 });
}

const browser = await chromium.launch({ executablePath: CHROMIUM!, args: ['--no-sandbox', '--disable-gpu'] });
try {
  const context = await browser.newContext({ reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(40_000);
  const faults: string[] = [];
  page.on('pageerror', (error) => faults.push(String(error)));
  await submit(page);
  await loseAndFind(page, await watch(page));
  // In a tab of its own: the first one is to see the whole run.
  const other = await context.newPage();
  other.setDefaultTimeout(40_000);
  other.on('pageerror', (error) => faults.push(String(error)));
  await tables(other);
  await pagesOfJob(other);
  await changes(other);
  await cancel(page);
  await usage(other);
  await other.close();
  await nothingIsMissing(page);
  await compare(page);
  assert.deepEqual(faults, []);
} finally {
  await browser.close();
  process.stdin.destroy();
}
