// How numbers, sizes and times are written. Everything takes undefined and writes a dash: unknown is not zero.

export const none = "–";

type Num = number | null | undefined;

const known = (n: Num): n is number => typeof n === "number" && Number.isFinite(n);

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 1,234,567 */
export function count(n: Num): string {
  return known(n) ? grouped.format(n) : none;
}

/** 950, 1.2k, 34k, 1.2M: three digits at most. */
export function short(n: Num): string {
  if (!known(n)) return none;
  const abs = Math.abs(n);
  if (abs < 1000) return Number.isInteger(n) ? String(n) : digits(n, 3);
  const units = ["k", "M", "G", "T"];
  let v = n;
  let unit = "";
  for (const u of units) {
    if (Math.abs(v) < 999.5) break;
    v /= 1000;
    unit = u;
  }
  return digits(v, 3) + unit;
}

/** A number with this many significant digits and no trailing zeros. */
export function digits(n: Num, significant = 3): string {
  if (!known(n)) return none;
  if (n === 0) return "0";
  const abs = Math.abs(n);
  if (abs >= 10 ** significant) return grouped.format(n);
  if (abs < 1e-4) return n.toExponential(significant - 1);
  return String(Number(n.toPrecision(significant)));
}

/** 0 B, 512 B, 1.5 KiB, 23.4 GiB */
export function bytes(n: Num): string {
  if (!known(n)) return none;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let v = n;
  let i = 0;
  while (Math.abs(v) >= 1023.95 && i < units.length - 1) {
    v /= 1024;
    i++;
  }
  const text = i === 0 || Math.abs(v) >= 100 ? String(Math.round(v)) : String(Number(v.toFixed(1)));
  return `${text} ${units[i] ?? ""}`;
}

/** 23.4 of 64 GiB: both in the unit of the larger one. */
export function bytesOf(used: Num, capacity: Num): string {
  if (!known(capacity)) return bytes(used);
  const whole = bytes(capacity);
  if (!known(used)) return `${none} of ${whole}`;
  const unit = whole.slice(whole.indexOf(" ") + 1);
  const power = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].indexOf(unit);
  return `${Number((used / 1024 ** power).toFixed(1))} of ${whole}`;
}

/** 12% */
export function percent(share: Num): string {
  if (!known(share)) return none;
  const p = share * 100;
  if (p > 0 && p < 1) return "<1%";
  if (p > 99 && p < 100) return "99%";
  return `${Math.round(p)}%`;
}

/** 0 s, 350 ms, 12 s, 3 m 20 s, 2 h 5 m, 3 d 4 h */
export function duration(seconds: Num): string {
  if (!known(seconds)) return none;
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.9995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  const two = (a: number, au: string, b: number, bu: string) => (b > 0 ? `${a} ${au} ${b} ${bu}` : `${a} ${au}`);
  if (s < 3600) return two(Math.floor(s / 60), "m", s % 60, "s");
  const m = Math.round(seconds / 60);
  if (m < 1440) return two(Math.floor(m / 60), "h", m % 60, "m");
  const h = Math.round(seconds / 3600);
  return two(Math.floor(h / 24), "d", h % 24, "h");
}

/** Prices have no currency in Muster: 0.42, 12.30, 1,234 */
export function cost(n: Num): string {
  if (!known(n)) return none;
  if (n === 0) return "0";
  if (n > 0 && n < 0.0001) return "< 0.0001";
  if (Math.abs(n) < 0.01) return digits(n, 2);
  if (Math.abs(n) < 1000) return n.toFixed(2);
  return grouped.format(n);
}

/** 350 W, 1.2 kW */
export function watts(n: Num): string {
  if (!known(n)) return none;
  return Math.abs(n) < 999.5 ? `${Math.round(n)} W` : `${digits(n / 1000)} kW`;
}

/** 12 Wh, 1.2 kWh */
export function energy(wh: Num): string {
  if (!known(wh)) return none;
  return Math.abs(wh) < 999.5 ? `${digits(wh)} Wh` : `${digits(wh / 1000)} kWh`;
}

/** Per second, or per minute or hour if that is easier to read: 12/s, 3.5/min, 2/h */
export function rate(perSecond: Num): string {
  if (!known(perSecond)) return none;
  if (perSecond === 0) return "0/s";
  if (perSecond >= 0.5) return `${short(Number(perSecond.toPrecision(3)))}/s`;
  if (perSecond * 60 >= 0.5) return `${digits(perSecond * 60, 2)}/min`;
  return `${digits(perSecond * 3600, 2)}/h`;
}

/** Seconds between two times of the API; an end that is absent is now. */
export function between(start: string | undefined, end: string | undefined, now = Date.now()): number | undefined {
  if (!start) return undefined;
  return Math.max(0, (end ? Date.parse(end) : now) - Date.parse(start)) / 1000;
}

/** just now, 12 s ago, 3 m ago, 2 h ago, 4 d ago; in 5 m for the future. */
export function ago(at: string | undefined, now = Date.now()): string {
  if (!at) return none;
  const s = (now - Date.parse(at)) / 1000;
  if (!Number.isFinite(s)) return none;
  if (Math.abs(s) < 2) return "just now";
  const text = rough(Math.abs(s));
  return s < 0 ? `in ${text}` : `${text} ago`;
}

/** One unit: 12 s, 3 m, 2 h, 4 d */
export function rough(seconds: number): string {
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  if (seconds < 3570) return `${Math.round(seconds / 60)} m`;
  if (seconds < 84_600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** 3 Feb 2026, 14:05:09 in the user's zone. */
export function dateTime(at: string | number | undefined): string {
  if (at === undefined || at === "") return none;
  const d = new Date(at);
  return Number.isNaN(d.getTime()) ? none : full.format(d);
}

/** 14:05:09 in the user's zone. */
export function timeOfDay(at: string | number): string {
  return clock.format(new Date(at));
}

/** A sentence of the server with its times, such as 2026-02-03T13:05:09.120Z, in the user's zone. */
export function localTimes(text: string): string {
  return text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, (at) => (new Date(at).toDateString() === new Date().toDateString() ? timeOfDay(at) : dateTime(at)));
}

/** exit_code → exit code: names of the API for people. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

/** "1 task", "2 tasks", "1,000 tasks". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** The server's texts are parts of sentences. */
export function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
