import { defineConfig } from 'vite';

// IMGD_WEB_API: where `vite` (the development server with reloading) sends what is not the page itself.
const api = process.env.IMGD_WEB_API ?? 'http://127.0.0.1:7670';

export default defineConfig({
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  worker: { format: 'es' },
  build: {
    target: ['chrome123', 'firefox121', 'safari17.5'],
    outDir: process.env.IMGD_WEB_OUT ?? '../build/web',
    emptyOutDir: true,
    // The policy of the page allows no inline data in scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { proxy: { '/api': api } },
});
