import { taskStates } from "@/api/types";

/** How full a state's colour is in the grid: what is over or has not begun stays behind what runs or failed. */
const strength: Record<string, number> = { waiting: 0.28, queued: 0.5, assigned: 0.75, running: 1, cancelling: 0.9, succeeded: 0.8, failed: 1, timed_out: 1, cancelled: 0.6, skipped: 0.3 };

/** The colours of all states over a background, as pixels; what is not among `shown` fades. */
export function palette(colors: readonly string[], background: string, shown?: ReadonlySet<number>): Uint32Array {
  const bg = rgb(background);
  return Uint32Array.from(taskStates, (s, i) => {
    const c = rgb(colors[i] ?? "#888888");
    const a = shown && !shown.has(i) ? 0.1 : (strength[s] ?? 1);
    return pixel([0, 1, 2].map((k) => Math.round((bg[k] ?? 0) * (1 - a) + (c[k] ?? 0) * a)));
  });
}

/** A colour as it is in the memory of an ImageData. */
export function pixel([r = 0, g = 0, b = 0]: readonly number[]): number {
  return new Uint32Array(Uint8Array.of(r, g, b, 255).buffer)[0] ?? 0;
}

/** Reads #rgb, #rrggbb and rgb(r g b). */
export function rgb(color: string): [number, number, number] {
  const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(color.trim())?.[1];
  if (hex) {
    const full = hex.length === 3 ? hex.replace(/./g, "$&$&") : hex;
    return [0, 2, 4].map((i) => parseInt(full.slice(i, i + 2), 16)) as [number, number, number];
  }
  const parts = /rgba?\(\s*([\d.]+)[\s,]+([\d.]+)[\s,]+([\d.]+)/.exec(color);
  return parts ? [Number(parts[1]), Number(parts[2]), Number(parts[3])] : [136, 136, 136];
}

/**
 * Paints the mark of a state into a square of `size` pixels: each has its own shape, so that states can be distinguished
 * without colour.
 */
export function paintTile(ctx: CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D, code: number, size: number, color: string): void {
  const s = size;
  const state = taskStates[code];
  ctx.clearRect(0, 0, s, s);
  ctx.save();
  ctx.fillStyle = color;
  ctx.strokeStyle = color;
  ctx.lineWidth = Math.max(1, s / 8);
  const edge = ctx.lineWidth / 2;
  const line = (...points: readonly [number, number][]) => {
    ctx.beginPath();
    points.forEach(([x, y], i) => (i === 0 ? ctx.moveTo(x * s, y * s) : ctx.lineTo(x * s, y * s)));
    ctx.stroke();
  };
  const over = () => {
    ctx.globalCompositeOperation = "destination-out";
    ctx.lineWidth = Math.max(1, s / 7);
  };
  switch (state) {
    case "waiting":
      ctx.globalAlpha = 0.55;
      ctx.setLineDash([s / 5, s / 6]);
      ctx.strokeRect(edge, edge, s - 2 * edge, s - 2 * edge);
      break;
    case "queued":
      ctx.strokeRect(edge, edge, s - 2 * edge, s - 2 * edge);
      break;
    case "assigned":
      ctx.strokeRect(edge, edge, s - 2 * edge, s - 2 * edge);
      ctx.fillRect(s * 0.33, s * 0.33, s * 0.34, s * 0.34);
      break;
    case "running": // a triangle, as of play
      ctx.fillRect(0, 0, s, s);
      over();
      ctx.beginPath();
      ctx.moveTo(s * 0.32, s * 0.22);
      ctx.lineTo(s * 0.8, s * 0.5);
      ctx.lineTo(s * 0.32, s * 0.78);
      ctx.fill();
      break;
    case "cancelling": // two bars
      ctx.fillRect(0, 0, s, s);
      over();
      ctx.fillRect(s * 0.27, s * 0.24, s * 0.16, s * 0.52);
      ctx.fillRect(s * 0.57, s * 0.24, s * 0.16, s * 0.52);
      break;
    case "failed": // a cross
      ctx.fillRect(0, 0, s, s);
      over();
      line([0.24, 0.24], [0.76, 0.76]);
      line([0.76, 0.24], [0.24, 0.76]);
      break;
    case "timed_out": // the hands of a clock
      ctx.fillRect(0, 0, s, s);
      over();
      line([0.5, 0.2], [0.5, 0.54], [0.76, 0.7]);
      break;
    case "cancelled": // a slash
      ctx.globalAlpha = 0.8;
      ctx.strokeRect(edge, edge, s - 2 * edge, s - 2 * edge);
      line([0.15, 0.85], [0.85, 0.15]);
      break;
    case "skipped": // a dash
      ctx.globalAlpha = 0.7;
      line([0.2, 0.5], [0.8, 0.5]);
      break;
    default: // succeeded: plain
      ctx.globalAlpha = 0.85;
      ctx.fillRect(0, 0, s, s);
  }
  ctx.restore();
}
