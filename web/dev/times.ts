// node dev/times.ts URL RUNS: how long pages of a real imgd take in Chromium, milliseconds as JSON, {case: [of each pass]}.
// Jobs 1 to RUNS have curves. The table of jobs and the search in logs are timed over canned data.
import { chromium, type Page } from 'playwright-core';
import { CHROMIUM } from './chromium.ts';
import { DevServer } from './server.ts';

const [base, runsText] = process.argv.slice(2) as [string, string];
const RUNS = Number(runsText);
const PASSES = 3;
const COMPARED = 20;
const CANNED_JOBS = 10_000;
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
      stall = Math.max(stall, (await page.evaluate('window.longest')) as number);
    }
    note(`${COMPARED} runs compared, slowest of ${all.length}`, Math.max(...all));
    note(`${RUNS} runs compared by ${COMPARED}, longest stall`, stall);
  }
}

async function tables(page: Page, canned: string): Promise<void> {
  for (let pass = 0; pass < PASSES; pass++) {
    await page.goto(canned, { waitUntil: 'commit' });
    note('10,000 jobs: first rows', await since(page, `document.querySelector('.rows [role=row]')`));
    await since(page, `/^10\\D?000$/.test(document.querySelector('.title .sub').textContent)`);
    const filtered = `document.querySelector('.title .sub').textContent.includes(' of ')`;
    note('10,000 jobs: filter', await afterTyping(page, 'rn50 mixup', filtered));
    await page.goto(`${canned}/jobs/${longest.job.id}/logs?rank=0`);
    await page.waitForSelector('.log .line');
    const marked = `document.querySelector('.log mark')`;
    note('the lines of a log that the page has: search', await afterTyping(page, 'validation', marked));
  }
}

const server = new DevServer({ port: 0, pages: PAGES, jobs: CANNED_JOBS, token: '', everyMs: 0 });
const canned = await server.listen();
const longest = [...server.world.jobs.values()].reduce((a, b) => (b.step > a.step ? b : a));
const browser = await chromium.launch({ executablePath: CHROMIUM!, args: ['--no-sandbox', '--disable-gpu'] });
try {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  await context.addInitScript(WATCH_STALLS);
  const page = await context.newPage();
  await page.goto(base); // what the browser itself needs to begin
  await charts(page);
  await tables(page, canned);
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
  server.close();
}
