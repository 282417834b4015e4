export interface Place {
  x: number;
  y: number;
}

/** The heights at which the tags of curves that end at these places are written: their own, or as near to it as leaves each
 * of `size` to itself, between `top` and `bottom`. */
export function placeTags(
  ends: readonly Place[],
  size: { width: number; height: number },
  top: number,
  bottom: number,
): number[] {
  const placed: Place[] = [];
  const free = ({ x, y }: Place) =>
    placed.every((one) => Math.abs(one.x - x) >= size.width || Math.abs(one.y - y) >= size.height);
  for (const { x, y } of ends) {
    const own = Math.min(Math.max(y, top), bottom);
    const places = Array.from({ length: 4 * ends.length }, (_, i) => ({
      x,
      y: own + (i % 2 ? 1 : -1) * Math.ceil(i / 2) * (size.height / 2),
    }));
    placed.push(places.find((one) => one.y >= top && one.y <= bottom && free(one)) ?? { x, y: own });
  }
  return placed.map((one) => one.y);
}
