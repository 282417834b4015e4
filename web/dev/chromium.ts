import { existsSync } from 'node:fs';

/** The browser of tests and pictures; undefined where there is none. */
export const CHROMIUM = [process.env.IMGD_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'].find(
  (path) => path && existsSync(path),
);
