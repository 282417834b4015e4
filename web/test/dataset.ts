// node dataset.ts URL NAME: how many pictures the page of a data set draws, and its words, as JSON. For
// tests/e2e/test_datasets.py.
import { chromium } from 'playwright-core';
import { CHROMIUM } from '../dev/chromium.ts';

const [base, name] = process.argv.slice(2) as [string, string];
const browser = await chromium.launch({ executablePath: CHROMIUM!, args: ['--no-sandbox', '--disable-gpu'] });
try {
  const page = await browser.newPage({ viewport: { width: 1400, height: 4000 } });
  page.setDefaultTimeout(20_000);
  await page.goto(`${base}/datasets/${name}`);
  await page.locator('.samples img').first().waitFor();
  await page.waitForFunction(() =>
    [...document.querySelectorAll<HTMLImageElement>('.samples img')].every((image) => image.complete),
  );
  const pictures = await page.evaluate(
    () =>
      [...document.querySelectorAll<HTMLImageElement>('.samples img')].filter((one) => one.naturalWidth > 0)
        .length,
  );
  console.log(JSON.stringify({ pictures, text: await page.textContent('main') }));
} finally {
  await browser.close();
}
