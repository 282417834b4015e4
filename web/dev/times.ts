// node dev/times.ts URL RUNS TABLE JOBS: how long pages of real imgds take in Chromium, milliseconds as JSON, {case: [of each
// pass]}. Jobs 1 to RUNS at URL have curves; at TABLE there are so many jobs; both by HTTPS. The search in logs is timed over
// canned data.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:tls';
import { type Browser, chromium, type Page } from 'playwright-core';
import { CHROMIUM } from './chromium.ts';
import { DevServer } from './server.ts';

const [base, runsText, table, jobsText] = process.argv.slice(2) as [string, string, string, string];
const RUNS = Number(runsText);
const JOBS = Number(jobsText);
const PASSES = 3;
const COMPARED = 20;
const VIEWPORT = { width: 1440, height: 900 };
const PAGES = process.env.IMGD_WEB_OUT ?? new URL('../../build/web', import.meta.url).pathname;

const found: Record<string, number[]> = {};
const note = (what: string, milliseconds: number) => {
  found[what] = [...(found[what] ?? []), milliseconds];
};

// Runs in the page before its own code: the longest time that it did nothing else.
const WATCH_STALLS = `window.longest = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration);
}).observe({ type: 'longtask', buffered: true });`;

/** When, after the navigation began, the condition first held in a frame. */
function since(page: Page, condition: string): Promise<number> {
  return page.evaluate(
    `new Promise((done) => { const look = () => (${condition}) ? done(performance.now()) : requestAnimationFrame(look); look(); })`,
  ) as Promise<number>;
}

/** How long it takes from a change of a field until the condition holds. */
function afterTyping(page: Page, text: string, condition: string): Promise<number> {
  return page.evaluate(`new Promise((done) => {
    const field = document.querySelector('input[type=search]');
    const begin = performance.now();
    field.value = ${JSON.stringify(text)};
    field.dispatchEvent(new Event('input', { bubbles: true }));
    const look = () => (${condition}) ? done(performance.now() - begin) : requestAnimationFrame(look);
    look();
  })`) as Promise<number>;
}

const figures = (figure: string) =>
  `document.querySelectorAll('figure[aria-label="${figure}"] .legend svg').length > 0 && [...document.querySelectorAll('figure[aria-label="${figure}"] .legend svg')].every((one) => /\\d/.test(one.parentElement.querySelector('b').textContent))`;

const STALL = 'window.longest';

async function charts(page: Page): Promise<void> {
  for (let i = 1; i <= PASSES; i++) {
    await page.goto(`${base}/jobs/${i}`, { waitUntil: 'commit' });
    note('a job’s page, first chart', await since(page, figures('Loss')));
  }
  for (let pass = 0; pass < PASSES; pass++) {
    const all: number[] = [];
    let stall = 0;
    for (let first = 1; first <= RUNS; first += COMPARED) {
      const ids = Array.from({ length: Math.min(COMPARED, RUNS - first + 1) }, (_, i) => first + i);
      await page.goto(`${base}/compare?jobs=${ids}&metric=loss&x=step`, { waitUntil: 'commit' });
      all.push(await since(page, figures('Training loss')));
      stall = Math.max(stall, (await page.evaluate(STALL)) as number);
    }
    note(`${COMPARED} runs compared, slowest of ${all.length}`, Math.max(...all));
    note(`${RUNS} runs compared by ${COMPARED}, longest stall`, stall);
  }
}

/** Of somebody who has not been there before: nothing is in the cache. */
async function firstVisit(browser: Browser): Promise<void> {
  for (let i = 1; i <= PASSES; i++) {
    const context = await browser.newContext({ viewport: VIEWPORT });
    const page = await context.newPage();
    await page.goto(`${base}/jobs/${i}`, { waitUntil: 'commit' });
    note('a job’s page with nothing cached, first chart', await since(page, figures('Loss')));
    await context.close();
  }
}

async function jobsTable(page: Page): Promise<void> {
  const listed = `document.querySelector('.title .sub')?.textContent.replace(/\\D/g, '')`;
  const what = `${JOBS.toLocaleString('en')} jobs`;
  for (let pass = 0; pass < PASSES; pass++) {
    await page.goto(table, { waitUntil: 'commit' });
    note(`${what}: first rows`, await since(page, `document.querySelector('.rows [role=row]')`));
    note(`${what}: all of them`, await since(page, `${listed} === '${JOBS}'`));
    const filtered = `document.querySelector('.title .sub').textContent.includes(' of ')`;
    note(`${what}: filter`, await afterTyping(page, 'many 7', filtered));
    note(`${what}: longest stall`, (await page.evaluate(STALL)) as number);
  }
}

async function linesOfALog(page: Page, canned: string, job: string): Promise<void> {
  for (let pass = 0; pass < PASSES; pass++) {
    await page.goto(`${canned}/jobs/${job}/logs?rank=0`);
    await page.waitForSelector('.log .line');
    const marked = `document.querySelector('.log mark')`;
    note('the lines of a log that the page has: search', await afterTyping(page, 'validation', marked));
  }
}

/** The public key of a server, as Chromium names those that it is to trust: where it only lets a certificate pass it does not
 * cache all. */
async function keyOf(url: string): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const key = socket.getPeerX509Certificate()!.publicKey.export({ type: 'spki', format: 'der' });
  socket.destroy();
  return createHash('sha256').update(key).digest('base64');
}

const server = new DevServer({ port: 0, pages: PAGES, jobs: 100, token: '', everyMs: 0 });
const canned = await server.listen();
const longest = [...server.world.jobs.values()].reduce((a, b) => (b.step > a.step ? b : a));
const trusted = `--ignore-certificate-errors-spki-list=${await keyOf(base)},${await keyOf(table)}`;
const browser = await chromium.launch({
  executablePath: CHROMIUM!,
  args: ['--no-sandbox', '--disable-gpu', trusted],
});
try {
  const context = await browser.newContext({ viewport: VIEWPORT });
  await context.addInitScript(WATCH_STALLS);
  const page = await context.newPage();
  await page.goto(base); // what the browser itself needs to begin
  await charts(page);
  await firstVisit(browser);
  await jobsTable(page);
  await linesOfALog(page, canned, longest.job.id);
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
  server.close();
}
