import { defineConfig, type Plugin } from 'vite';

// IMGD_WEB_API: where `vite` (the development server with reloading) sends what is not the page itself.
const api = process.env.IMGD_WEB_API ?? 'http://127.0.0.1:7670';

const MAIN = 'src/main.tsx';

/** The page itself is a script beside that of index.html, which is small and runs while this one is read. */
const withMain: Plugin = {
  name: 'with-main',
  transformIndexHtml: {
    order: 'post',
    handler: (_, { bundle }) => {
      const isMain = (name: string | null | undefined) => name?.endsWith(MAIN) ?? false;
      const main = Object.values(bundle ?? {}).find(
        (one) => one.type === 'chunk' && isMain(one.facadeModuleId),
      );
      if (bundle && !main) throw new Error(`no ${MAIN} was built`);
      const src = `/${main?.fileName ?? MAIN}`;
      return [{ tag: 'script', attrs: { type: 'module', src }, injectTo: 'head' }];
    },
  },
};

/** Ways to draw a curve that no chart of ours has. */
const UNUSED = /\(paths\.(stepped|bars|spline) *= \w+\);/g;
const withoutUnused: Plugin = {
  name: 'without-unused',
  transform: {
    filter: { id: /uPlot\.esm\.js$/ },
    handler: (code) => {
      if (code.match(UNUSED)?.length !== 3) throw new Error('uPlot has its paths elsewhere now');
      return code.replace(UNUSED, '');
    },
  },
};

export default defineConfig({
  plugins: [withMain, withoutUnused],
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  worker: { format: 'es' },
  build: {
    target: ['chrome123', 'firefox121', 'safari17.5'],
    outDir: process.env.IMGD_WEB_OUT ?? '../build/web',
    emptyOutDir: true,
    rolldownOptions: { input: ['index.html', MAIN], treeshake: { propertyReadSideEffects: false } },
    // The policy of the page allows no inline data in scripts.
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
  },
  server: { proxy: { '/api': api } },
});
