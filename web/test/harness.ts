import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, type TestContext, test } from 'node:test';
import { type Browser, type BrowserContext, chromium, type Locator, type Page } from 'playwright-core';
import { CHROMIUM } from '../dev/chromium.ts';
import { DevServer, type Options } from '../dev/server.ts';

export const PAGES = process.env.IMGD_WEB_OUT ?? new URL('../../build/web', import.meta.url).pathname;
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const launch = (without: string[] = []) =>
  chromium.launch({
    executablePath: CHROMIUM!,
    args: ['--no-sandbox', '--disable-gpu'],
    ignoreDefaultArgs: without,
  });

let browser: Browser | undefined;
before(async () => {
  if (CHROMIUM) browser = await launch();
});
after(() => browser?.close());

export interface Place {
  page: Page;
  context: BrowserContext;
  server: DevServer;
  base: string;
}

/** A test with a server and a browser's profile of its own. It fails when the page logs an error, or asks another host.
 * `keepsPages`: the browser keeps pages as they are for who goes back, as people's do. */
export function browserTest(
  name: string,
  what: (place: Place) => Promise<void>,
  options: Partial<Options> & { dark?: boolean; keepsPages?: boolean } = {},
): void {
  test(name, async (t: TestContext) => {
    if (!browser)
      return t.skip('there is no Chromium: apt-get install chromium, or say where it is in IMGD_CHROMIUM');
    const { dark = false, keepsPages = false, ...rest } = options;
    const server = new DevServer({ port: 0, pages: PAGES, jobs: 120, token: '', everyMs: 200, ...rest });
    const base = await server.listen();
    const own = keepsPages ? await launch(['--disable-back-forward-cache']) : undefined;
    const context = await (own ?? browser).newContext({
      viewport: { width: 1440, height: 900 },
      colorScheme: dark ? 'dark' : 'light',
      reducedMotion: 'reduce',
    });
    const faults: string[] = [];
    context.on('request', (request) => {
      if (!request.url().startsWith(base)) faults.push(`asked ${request.url()}`);
    });
    context.on('weberror', (error) => faults.push(String(error.error())));
    const page = await context.newPage();
    // A machine that is busy with something else is slow, and not wrong.
    page.setDefaultTimeout(60_000);
    page.on('console', (message) => {
      // A refused call is told by the browser itself; that is what some tests are about.
      if (message.type() === 'error' && !/Failed to load resource/.test(message.text()))
        faults.push(message.text());
    });
    try {
      await what({ page, context, server, base });
      if (faults.length > 0) throw new Error(faults.join('\n'));
    } finally {
      // An answer that a test held back may still be on its way.
      for (const open of context.pages()) await open.unrouteAll({ behavior: 'ignoreErrors' });
      await context.close();
      await own?.close();
      server.close();
    }
    return undefined;
  });
}

/** By the button, unless it comes back by itself while the pointer is on its way, which takes the button along. */
export async function comeBack(page: Page): Promise<void> {
  const live = page.waitForSelector('[data-state=live]');
  await Promise.any([page.getByRole('button', { name: 'Try now' }).click(), live]);
  await live;
}

/** Drops a file of this text on the editor of job files. */
export async function dropFile(page: Page, text: string): Promise<void> {
  const dataTransfer = await page.evaluateHandle((content) => {
    const data = new DataTransfer();
    data.items.add(new File([content], 'job.yaml'));
    return data;
  }, text);
  await page.dispatchEvent('.editor', 'drop', { dataTransfer });
}

const MOST_TABS = 100;

/** Goes on by the key Tab (or Shift+Tab) until the element has the focus. */
export async function tabTo(page: Page, wanted: Locator, key: 'Tab' | 'Shift+Tab' = 'Tab'): Promise<void> {
  for (let i = 0; i < MOST_TABS; i++) {
    await page.keyboard.press(key);
    if (await wanted.evaluate((element) => element === document.activeElement)) return;
  }
  throw new Error(`${key} does not lead to ${wanted}`);
}

interface AxeResult {
  violations: { id: string; help: string; nodes: { html: string; failureSummary: string }[] }[];
}

/** What axe finds on the page as it is, by all its rules, in words; empty when it finds nothing. */
export async function axe(page: Page): Promise<string> {
  await page.evaluate(AXE);
  const result = (await page.evaluate("axe.run(document, {resultTypes: ['violations']})")) as AxeResult;
  return result.violations
    .map(
      (one) =>
        `${one.id}: ${one.help}\n${one.nodes
          .slice(0, 3)
          .map((node) => `  ${node.html}\n  ${node.failureSummary}`)
          .join('\n')}`,
    )
    .join('\n');
}
