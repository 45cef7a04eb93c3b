import { describe, expect, it } from "vitest";
import * as f from "./format";

describe("localTimes", () => {
  it("writes the times of a sentence in the user's zone, with the date on other days", () => {
    const now = new Date();
    expect(f.localTimes(`avoided until ${now.toISOString()}, because it fails`)).toBe(`avoided until ${f.timeOfDay(now.toISOString())}, because it fails`);
    expect(f.localTimes("until 2020-02-03T12:05:09Z")).toBe(`until ${f.dateTime("2020-02-03T12:05:09Z")}`);
    expect(f.localTimes("no time, w-2026-02-03T")).toBe("no time, w-2026-02-03T");
  });
});

describe("format", () => {
  it.each([
    [f.count(1234567), "1,234,567"],
    [f.count(undefined), "–"],
    [f.short(950), "950"],
    [f.short(1234), "1.23k"],
    [f.short(999_999), "1M"],
    [f.short(34_000), "34k"],
    [f.digits(0.0000123), "1.23e-5"],
    [f.digits(0.123456), "0.123"],
    [f.digits(123456), "123,456"],
    [f.bytes(0), "0 B"],
    [f.bytes(1023), "1023 B"],
    [f.bytes(1536), "1.5 KiB"],
    [f.bytes(1024 ** 3 - 1), "1 GiB"],
    [f.bytes(25276510208), "23.5 GiB"],
    [f.bytesOf(1024 ** 3, 64 * 1024 ** 3), "1 of 64 GiB"],
    [f.bytesOf(undefined, 1024), "– of 1 KiB"],
    [f.percent(0.004), "<1%"],
    [f.percent(0.996), "99%"],
    [f.percent(1), "100%"],
    [f.duration(0), "0 s"],
    [f.duration(0.35), "350 ms"],
    [f.duration(9.96), "10 s"],
    [f.duration(59.6), "1 m"],
    [f.duration(200), "3 m 20 s"],
    [f.duration(7500), "2 h 5 m"],
    [f.duration(3599.9), "1 h"],
    [f.duration(3 * 86400 + 4 * 3600), "3 d 4 h"],
    [f.duration(-12), "−12 s"],
    [f.cost(0.4237), "0.42"],
    [f.cost(0.00123), "0.0012"],
    [f.cost(1234.5), "1,235"],
    [f.watts(350.4), "350 W"],
    [f.watts(1234), "1.23 kW"],
    [f.energy(12.345), "12.3 Wh"],
    [f.rate(12.34), "12.3/s"],
    [f.rate(0.05), "3/min"],
    [f.rate(0.001), "3.6/h"],
    [f.words("timed_out"), "timed out"],
    [f.plural(1, "task"), "1 task"],
    [f.plural(2000, "task"), "2,000 tasks"],
  ])("writes %s as %s", (got, want) => {
    expect(got).toBe(want);
  });

  it("says how long ago something was", () => {
    const now = Date.parse("2026-01-02T12:00:00Z");
    expect(f.ago("2026-01-02T11:59:59Z", now)).toBe("just now");
    expect(f.ago("2026-01-02T11:59:00Z", now)).toBe("1 m ago");
    expect(f.ago("2026-01-02T11:00:00Z", now)).toBe("1 h ago");
    expect(f.ago("2025-12-30T12:00:00Z", now)).toBe("3 d ago");
    expect(f.ago("2026-01-02T12:05:00Z", now)).toBe("in 5 m");
    expect(f.ago("nonsense", now)).toBe("–");
  });

  it("measures from a start to an end or now", () => {
    const now = Date.parse("2026-01-02T12:00:00Z");
    expect(f.between("2026-01-02T11:59:00Z", undefined, now)).toBe(60);
    expect(f.between("2026-01-02T11:59:00Z", "2026-01-02T11:59:30Z", now)).toBe(30);
    expect(f.between(undefined, undefined, now)).toBeUndefined();
  });
});
