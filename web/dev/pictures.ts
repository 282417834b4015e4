import type { Page } from 'playwright-core';

export const THEMES = ['light', 'dark'] as const;

/** A picture's name, the page's address, what is waited for before it is taken, and of what is long how much is shown. */
type Picture = [string, string, ((page: Page) => Promise<unknown>)?, number?];

export const MOST_HEIGHT = 900;
const LONG = 3000;

/** The pictures of the dashboard: docs/images/NAME-THEME.png. The first of the jobs has its own pages shown. */
export function picturesOf(jobs: readonly string[]): Picture[] {
  return [
    ['jobs', '/'],
    [
      'submit',
      '/submit',
      (page) =>
        page
          .getByText(/The file is good|Line \d+/)
          .first()
          .waitFor(),
    ],
    ['job', `/jobs/${jobs[0]}`, (page) => drawn(page).then(() => sparkling(page)), LONG],
    ['job-logs', `/jobs/${jobs[0]}/logs`, (page) => page.waitForSelector('.log .line')],
    ['job-results', `/jobs/${jobs[0]}/results`, loaded, LONG],
    ['job-timeline', `/jobs/${jobs[0]}/timeline`],
    ['job-config', `/jobs/${jobs[0]}/config`],
    ['queue', '/queue'],
    ['nodes', '/nodes', sparkling],
    ['node', '/nodes/gpu-1'],
    ['datasets', '/datasets'],
    ['dataset', '/datasets/shapes', loaded],
    ['usage', '/usage'],
    ['compare', `/compare?jobs=${jobs.join(',')}`, drawn],
  ];
}

/** Every chart that has figures has drawn them. */
async function drawn(page: Page): Promise<void> {
  await page.waitForSelector('figure .uplot canvas');
  await page
    .waitForFunction(() => !document.querySelector('figure .none'), null, { timeout: 5000 })
    .catch(() => {});
}

/** The small curves of how busy GPUs were, a value a minute, have more than one. */
async function sparkling(page: Page): Promise<void> {
  await page.waitForFunction(
    () => (document.querySelector('.spark path')?.getAttribute('d')?.split('L').length ?? 0) > 1,
    null,
    { timeout: 150_000 },
  );
}

/** Small pictures are there; those that nobody has scrolled to are not asked for. */
async function loaded(page: Page): Promise<void> {
  await page.locator('.samples img').first().waitFor();
  await page.waitForFunction(() =>
    [...document.querySelectorAll<HTMLImageElement>('.samples img')].some((image) => image.naturalWidth > 0),
  );
}
