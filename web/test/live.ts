// node test/live.ts URL JOB_FILE: what people do in the browser, against a real imgd. tests/e2e/test_dashboard.py runs it;
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

async function submit(page: Page): Promise<void> {
  await page.goto(`${base}/submit`);
  await page.getByLabel('Job file').fill(readFileSync(file, 'utf8'));
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

const browser = await chromium.launch({
  executablePath: CHROMIUM!,
  args: ['--no-sandbox', '--disable-gpu'],
});
try {
  const page = await browser.newPage({ reducedMotion: 'reduce' });
  page.setDefaultTimeout(40_000);
  const faults: string[] = [];
  page.on('pageerror', (error) => faults.push(String(error)));
  await submit(page);
  await loseAndFind(page, await watch(page));
  await cancel(page);
  await nothingIsMissing(page);
  await compare(page);
  assert.deepEqual(faults, []);
} finally {
  await browser.close();
  process.stdin.destroy();
}
