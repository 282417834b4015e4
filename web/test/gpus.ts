// node gpus.ts URL NODE: what the page of a node says of each of its devices, as JSON; for tests/e2e/test_dashboard.py.
import { chromium } from 'playwright-core';
import { CHROMIUM } from '../dev/chromium.ts';

const [base, node] = process.argv.slice(2) as [string, string];
const browser = await chromium.launch({ executablePath: CHROMIUM!, args: ['--no-sandbox', '--disable-gpu'] });
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  await page.goto(`${base}/nodes/${node}`);
  const rows = page.locator(`section[aria-label=${node}] section[aria-label=Devices] tbody tr`);
  // Readings come with a heartbeat.
  await rows.getByText('°C').first().waitFor();
  const notes = await rows.locator('td:last-child').allTextContents();
  const cells = await page.locator('.cells .gpu.trouble').count();
  console.log(JSON.stringify({ notes, cells }));
} finally {
  await browser.close();
}
