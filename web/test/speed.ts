// node speed.ts URL JOB: what the chart of images a second of a job has in its table, as JSON [[step, images/s], ...]; for
// tests/e2e/test_same_figures.py.
import { chromium } from 'playwright-core';
import { CHROMIUM } from '../dev/chromium.ts';

const [base, job] = process.argv.slice(2) as [string, string];
const browser = await chromium.launch({ executablePath: CHROMIUM!, args: ['--no-sandbox', '--disable-gpu'] });
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  await page.goto(`${base}/jobs/${job}?smooth=0`);
  const chart = page.locator('figure[aria-label="Images per second"]');
  await chart.getByRole('button', { name: 'Images per second as a table' }).click();
  await chart.locator('tbody tr').first().waitFor();
  const rows = await chart.locator('tbody tr').allTextContents();
  const cells = await chart.locator('tbody td').allTextContents();
  const numbers = cells.map((text) => Number(text.replaceAll('\u202f', '')));
  const columns = cells.length / rows.length;
  console.log(JSON.stringify(rows.map((_, i) => [numbers[i * columns], numbers[i * columns + 1]])));
} finally {
  await browser.close();
}
