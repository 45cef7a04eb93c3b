// Geometry of the array grid: elements are cells of one unit in rows of `cols`, and a view looks at a part of that plane.

export interface Plane {
  readonly count: number;
  readonly cols: number;
  readonly rows: number;
}

/** What is seen of a plane: pixels = (units - x, y) × scale. */
export interface View {
  readonly x: number;
  readonly y: number;
  /** CSS pixels per cell. */
  readonly scale: number;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

export const maxScale = 48;
/** The largest cell of a plane that fits; larger ones are only reached by zoom. */
const fitScale = 28;

/**
 * Chooses how many cells a row has, and how high the canvas is, so that all of them fit at the largest cell. One of a
 * pixel or more has whole pixels.
 */
export function fit(count: number, width: number, maxHeight: number): { plane: Plane; height: number; scale: number } {
  const w = Math.max(16, Math.floor(width));
  // Round numbers of columns, so that the eye can count.
  const colsAt = (s: number) => {
    const cols = Math.max(1, Math.floor(w / s));
    const step = cols > 1000 ? 100 : cols > 200 ? 50 : cols > 30 ? 10 : 1;
    return Math.max(1, Math.min(cols - (cols % step), count));
  };
  const heightAt = (s: number) => Math.ceil(count / colsAt(s)) * s;
  let scale = fitScale;
  while (scale > 1 && heightAt(scale) > maxHeight) scale--;
  for (let percent = 95; heightAt(scale) > maxHeight && percent >= 50; percent -= 5) scale = percent / 100;
  for (let k = 3; heightAt(scale) > maxHeight && k <= 64; k++) scale = 1 / k;
  const cols = colsAt(scale);
  const rows = Math.ceil(count / cols);
  return { plane: { count, cols, rows }, height: Math.max(fitScale, Math.min(maxHeight, Math.ceil(rows * scale))), scale };
}

/** Keeps a view within its plane: what is smaller than the window stays at its left and top. */
export function clamp(view: View, plane: Plane, size: Size, least: number): View {
  const scale = Math.min(maxScale, Math.max(least, view.scale));
  const limit = (at: number, cells: number, pixels: number) => Math.max(0, Math.min(at, cells - pixels / scale));
  return { scale, x: limit(view.x, plane.cols, size.width), y: limit(view.y, plane.rows, size.height) };
}

/** Zooms by a factor so that what is under the pixel stays there. */
export function zoomAt(view: View, factor: number, px: number, py: number, least: number): View {
  const scale = Math.min(maxScale, Math.max(least, view.scale * factor));
  return { scale, x: view.x + px / view.scale - px / scale, y: view.y + py / view.scale - py / scale };
}

/** The element under a pixel. */
export function elementAt(view: View, plane: Plane, px: number, py: number): number | undefined {
  const col = Math.floor(view.x + px / view.scale);
  const row = Math.floor(view.y + py / view.scale);
  if (col < 0 || col >= plane.cols || row < 0) return undefined;
  const i = row * plane.cols + col;
  return i < plane.count ? i : undefined;
}

/** Moves a view as little as it takes to show an element with a margin of one cell. */
export function reveal(view: View, plane: Plane, size: Size, element: number): View {
  const col = element % plane.cols;
  const row = Math.floor(element / plane.cols);
  const along = (at: number, cell: number, pixels: number) => {
    const span = pixels / view.scale;
    const margin = Math.min(1, span / 4);
    if (cell - margin < at) return cell - margin;
    if (cell + 1 + margin > at + span) return cell + 1 + margin - span;
    return at;
  };
  return { ...view, x: along(view.x, col, size.width), y: along(view.y, row, size.height) };
}

/** Where a key leads from an element; undefined for keys that do not move. */
export function moveBy(key: string, at: number, plane: Plane, pageRows: number): number | undefined {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -plane.cols, ArrowDown: plane.cols, PageUp: -plane.cols * pageRows, PageDown: plane.cols * pageRows }[key];
  if (step !== undefined) {
    const to = at + step;
    // A move up or down that leaves the plane stays in its column.
    if (to < 0) return Math.abs(step) > 1 ? at % plane.cols : 0;
    if (to >= plane.count) return Math.abs(step) === 1 ? plane.count - 1 : Math.floor(at / plane.cols) < plane.rows - 1 && Math.abs(step) === plane.cols ? plane.count - 1 : at;
    return to;
  }
  if (key === "Home") return 0;
  if (key === "End") return plane.count - 1;
  return undefined;
}
