// Screenshots as small files: a page has few colours, and at most 256 of them tell it as well.
import { crc32, deflateSync, inflateSync } from 'node:zlib';

const MOST = 256;

/** A PNG of 8-bit RGB, as Chromium writes it, as one with a palette of its most frequent colours. */
export function withPalette(png: Buffer): Buffer {
  const chunks = chunksOf(png);
  const head = chunks.find(([type]) => type === 'IHDR')![1];
  const width = head.readUInt32BE(0);
  const height = head.readUInt32BE(4);
  if (head[8] !== 8 || head[9] !== 2 || head[12] !== 0) throw new Error('not a plain PNG of 8-bit RGB');
  const data = Buffer.concat(chunks.filter(([type]) => type === 'IDAT').map(([, body]) => body));
  const pixels = unfiltered(inflateSync(data), width * 3, height);
  const colours = new Map<number, number>();
  for (let i = 0; i < pixels.length; i += 3) {
    const colour = pixels.readUIntBE(i, 3);
    colours.set(colour, (colours.get(colour) ?? 0) + 1);
  }
  const palette = choose(colours);
  const nearest = new Map([...colours.keys()].map((colour) => [colour, nearestOf(palette, colour)]));
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      rows[y * (width + 1) + 1 + x] = nearest.get(pixels.readUIntBE((y * width + x) * 3, 3))!;
  const newHead = Buffer.from(head);
  newHead[9] = 3;
  const table = Buffer.concat(palette.map((colour) => Buffer.from([colour >> 16, colour >> 8, colour])));
  return Buffer.concat([
    png.subarray(0, 8),
    chunk('IHDR', newHead),
    chunk('PLTE', table),
    chunk('IDAT', deflateSync(rows, { level: 9 })),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

function chunksOf(png: Buffer): [string, Buffer][] {
  const out: [string, Buffer][] = [];
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    out.push([png.toString('latin1', at + 4, at + 8), png.subarray(at + 8, at + 8 + length)]);
    at += 12 + length;
  }
  return out;
}

/** Undoes the five filters of PNG, https://www.w3.org/TR/png-3/#9Filters; each pixel has 3 bytes. */
function unfiltered(data: Buffer, stride: number, height: number): Buffer {
  const out = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y++) {
    const filter = data[y * (stride + 1)]!;
    for (let x = 0; x < stride; x++) {
      const at = y * stride + x;
      const a = x >= 3 ? out[at - 3]! : 0;
      const b = y > 0 ? out[at - stride]! : 0;
      const c = x >= 3 && y > 0 ? out[at - stride - 3]! : 0;
      const guess = [0, a, b, (a + b) >> 1, paeth(a, b, c)][filter]!;
      out[at] = data[y * (stride + 1) + 1 + x]! + guess;
    }
  }
  return out;
}

function paeth(a: number, b: number, c: number): number {
  const [pa, pb, pc] = [Math.abs(b - c), Math.abs(a - c), Math.abs(a + b - 2 * c)];
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}

function apart(a: number, b: number): number {
  return [16, 8, 0].reduce((sum, shift) => sum + (((a >> shift) & 255) - ((b >> shift) & 255)) ** 2, 0);
}

const FREQUENT = 32;

/** The most frequent first; then one that is close to a chosen one waits until the others had their turn. */
function choose(colours: ReadonlyMap<number, number>): number[] {
  const left = new Set([...colours.keys()].sort((a, b) => colours.get(b)! - colours.get(a)!));
  const out = [...left].slice(0, FREQUENT);
  for (const colour of out) left.delete(colour);
  for (const distance of [1200, 500, 200, 80, 0]) {
    for (const colour of left) {
      if (out.length === MOST) return out;
      if (out.some((other) => apart(other, colour) < distance)) continue;
      out.push(colour);
      left.delete(colour);
    }
  }
  return out;
}

function nearestOf(palette: readonly number[], colour: number): number {
  let best = 0;
  for (let i = 1; i < palette.length; i++)
    if (apart(palette[i]!, colour) < apart(palette[best]!, colour)) best = i;
  return best;
}

function chunk(type: string, body: Buffer): Buffer {
  const out = Buffer.alloc(body.length + 12);
  out.writeUInt32BE(body.length, 0);
  out.write(type, 4, 'latin1');
  body.copy(out, 8);
  out.writeUInt32BE(crc32(out.subarray(4, 8 + body.length)), 8 + body.length);
  return out;
}
