// The pages on a phone.
import assert from 'node:assert/strict';
import { axe, browserTest } from './harness.ts';

const PLACES = [
  ...['/', '/queue', '/nodes', '/nodes?view=table', '/nodes/gpu-5', '/datasets', '/datasets/imagenet-176'],
  ...['/datasets/shapes', '/datasets/places', '/usage', '/submit', '/compare', '/compare?jobs=11,12,13'],
  ...['/jobs/12', '/jobs/11', '/jobs/11/logs', '/jobs/11/results', '/jobs/11/timeline', '/jobs/11/config'],
];

browserTest('no page scrolls sideways, all of the header is in view, and axe finds nothing', async ({ page, base }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const faults: string[] = [];
  for (const path of PLACES) {
    await page.goto(base + path);
    await page.waitForSelector('main .panel');
    await page.waitForFunction(() => !document.querySelector('main')!.textContent!.includes('Loading …'));
    const wide = await page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      return scrollWidth > clientWidth ? scrollWidth : 0;
    });
    if (wide) faults.push(`${path} is ${wide} px wide`);
    for (const [name, box] of await page.evaluate(() =>
      [...document.querySelectorAll('.bar > *, .bar nav a, .tabs a')].map(
        (one) => [one.textContent ?? '', one.getBoundingClientRect().right] as const,
      ),
    ))
      if (box > 390) faults.push(`${path}: ${name} ends at ${box} px`);
    const found = await axe(page);
    if (found) faults.push(`${path}: ${found}`);
  }
  assert.deepEqual(faults, []);
}, { jobs: 40 }); // biome-ignore format: one argument
