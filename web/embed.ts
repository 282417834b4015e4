// node embed.ts DIST RUNBOOKS OUT: writes the built page as a C++ source, each file as it is and compressed, and its size
// to standard output. With it go the pages that alerts link to. Fails where all of that, by gzip, is above the limit.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { extname, join, relative } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const MOST_BYTES = 100_000;
const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  // To be read as it is: browsers would save a text/markdown.
  '.md': 'text/plain; charset=utf-8',
};

const [dist, runbooks, out] = process.argv.slice(2) as [string, string, string];
const filesOf = (folder: string, below: string) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
    .map((file) => ({ file, path: `${below}/${relative(folder, file)}` }));
const files = [...filesOf(dist, ''), ...filesOf(runbooks, '/runbooks')];

/** Bytes as a C++ literal: octal escapes can't run on into what follows. */
function literal(bytes: Buffer): string {
  const lines: string[] = [];
  for (let from = 0; from < bytes.length; from += 4096) {
    let line = '';
    for (const byte of bytes.subarray(from, from + 4096)) {
      const plain = byte >= 32 && byte < 127 && byte !== 34 && byte !== 92 && byte !== 63;
      line += plain ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, '0')}`;
    }
    lines.push(`    "${line}"`);
  }
  return lines.length > 0 ? lines.join('\n') : '    ""';
}

let total = 0;
const entries = files.map(({ file, path }, i) => {
  const type = TYPES[extname(file)];
  if (!type) throw new Error(`${path}: no content type for its kind`);
  const raw = readFileSync(file);
  const gzip = gzipSync(raw, { level: 9 });
  const brotli = brotliCompressSync(raw, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  total += gzip.length;
  const etag = createHash('sha256').update(raw).digest('hex').slice(0, 16);
  const parts = { Raw: raw, Gzip: gzip, Brotli: brotli };
  const data = Object.entries(parts).map(
    ([name, bytes]) => `constexpr char k${name}${i}[] =\n${literal(bytes)};`,
  );
  const views = Object.entries(parts).map(([name, bytes]) => `{k${name}${i}, ${bytes.length}}`);
  return { data: data.join('\n'), row: `    {"${path}", "${type}", "\\"${etag}\\"", ${views.join(', ')}},` };
});
if (total > MOST_BYTES)
  throw new Error(`the page has ${total} bytes compressed, and ${MOST_BYTES} are allowed`);

writeFileSync(
  out,
  `// Made by web/embed.ts.
#include "server/web/static_files.h"

namespace imgd::web {
namespace {

${entries.map((entry) => entry.data).join('\n')}

constexpr PageFile kFiles[] = {
${entries.map((entry) => entry.row).join('\n')}
};

}  // namespace

std::span<const PageFile> PageFiles() { return kFiles; }

}  // namespace imgd::web
`,
);
console.log(`the dashboard: ${files.length} files, ${total} bytes compressed`);
