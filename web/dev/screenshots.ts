// node dev/screenshots.ts URL OUT JOBS...: pictures of every page of a running imgd, in both themes. The first of JOBS is
// the one whose own pages are shown; all of them are compared.
import { writeFileSync } from 'node:fs';
import { chromium, type Page } from 'playwright-core';
import { CHROMIUM } from './chromium.ts';
import { withPalette } from './palette.ts';
import { MOST_HEIGHT, picturesOf, THEMES } from './pictures.ts';

const [base, out, ...jobs] = process.argv.slice(2) as [string, string, ...string[]];
if (!base || !out || jobs.length === 0) throw new Error('usage: screenshots.ts URL OUT JOBS...');
if (!CHROMIUM) throw new Error('no Chromium: apt-get install chromium, or say where it is in IMGD_CHROMIUM');

const WIDTH = 1280;
const LEAST_HEIGHT = 420;
const BELOW = 24;

/** What is below the page's content is left out; what is too long is cut. */
async function take(page: Page, name: string, most: number): Promise<void> {
  const end = await page.evaluate(() => {
    const main = document.querySelector('main')!;
    return Math.max(...[...main.children].map((child) => child.getBoundingClientRect().bottom));
  });
  const height = Math.min(Math.max(Math.ceil(end) + BELOW, LEAST_HEIGHT), most);
  const png = await page.screenshot({ clip: { x: 0, y: 0, width: WIDTH, height } });
  writeFileSync(`${out}/${name}.png`, withPalette(png));
}

// imgd's own certificate is one that nobody knows.
const ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--ignore-certificate-errors'];
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
try {
  for (const theme of THEMES) {
    const context = await browser.newContext({
      viewport: { width: WIDTH, height: MOST_HEIGHT },
      colorScheme: theme,
      reducedMotion: 'reduce',
    });
    const page = await context.newPage();
    for (const [name, path, prepare, most = MOST_HEIGHT] of picturesOf(jobs)) {
      await page.setViewportSize({ width: WIDTH, height: most });
      await page.goto(base + path);
      await page.waitForSelector('[data-state=live]', { timeout: 60_000 });
      await page.waitForSelector('main .panel');
      await page.waitForFunction(() => !document.querySelector('main')!.textContent!.includes('Loading …'));
      await prepare?.(page);
      // Small curves and forecasts come after the rest.
      await page.waitForLoadState('networkidle', { timeout: 1500 }).catch(() => {});
      await take(page, `${name}-${theme}`, most);
    }
    await context.close();
  }
} finally {
  await browser.close();
}
