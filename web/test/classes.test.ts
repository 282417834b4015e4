// The table of classes of a large data set.
import assert from 'node:assert/strict';
import { classesOf } from '../dev/results.ts';
import { browserTest } from './harness.ts';

const CLASSES = 1000;

browserTest("all of ImageNet's classes are shown", async ({ page, server, base }) => {
  const figures = classesOf(server.world.jobs.get('91')!)!;
  figures.class_count = CLASSES;
  figures.classes = Array.from({ length: CLASSES }, (_, label) => ({
    label,
    name: `class ${label}`,
    images: '50',
    top1: String((label * 7) % 50),
    top5: '50',
  }));
  figures.confusion = [];
  await page.route('**/api/v1/jobs/91/classes', (route) => route.fulfill({ json: { figures } }));
  await page.goto(`${base}/jobs/91/results`);
  const rows = page.locator('section[aria-label=Classes] tbody tr');
  await rows.first().waitFor();
  assert.equal(await rows.count(), 10);
  await page.getByRole('button', { name: 'Show all classes' }).click();
  await rows.nth(CLASSES - 1).waitFor();
  assert.equal(await rows.count(), CLASSES);
  assert.match((await rows.nth(CLASSES - 1).textContent())!, /98\.0/, 'the best is the last');
  assert.equal(await page.getByRole('button', { name: 'Show all classes' }).count(), 0);
}, { everyMs: 0 }); // biome-ignore format: one argument
