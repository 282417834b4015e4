// node results.ts URL JOB FILE: how many pictures the page of a job's results draws, and what a download is called, as
// JSON; the downloaded weights go to FILE. For tests/e2e/test_results.py.
import { chromium } from 'playwright-core';
import { CHROMIUM } from '../dev/chromium.ts';

const [base, job, file] = process.argv.slice(2) as [string, string, string];
const browser = await chromium.launch({ executablePath: CHROMIUM!, args: ['--no-sandbox', '--disable-gpu'] });
try {
  const page = await browser.newPage({ viewport: { width: 1400, height: 2000 } });
  page.setDefaultTimeout(20_000);
  await page.goto(`${base}/jobs/${job}/results`);
  await page.locator('.samples img').first().waitFor();
  await page.locator('section[aria-label="Sample images"]').scrollIntoViewIfNeeded();
  await page.waitForFunction(() =>
    [...document.querySelectorAll<HTMLImageElement>('.samples img')].every((image) => image.complete),
  );
  const pictures = await page.evaluate(
    () =>
      [...document.querySelectorAll<HTMLImageElement>('.samples img')].filter((one) => one.naturalWidth > 0)
        .length,
  );
  const coming = page.waitForEvent('download');
  await page.locator('section[aria-label=Checkpoints] a', { hasText: 'model.safetensors' }).first().click();
  const download = await coming;
  await download.saveAs(file);
  console.log(JSON.stringify({ pictures, name: download.suggestedFilename() }));
} finally {
  await browser.close();
}
