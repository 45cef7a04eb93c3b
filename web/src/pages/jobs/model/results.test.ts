import { describe, expect, it } from "vitest";
import type { Task } from "@/api/types";
import { csv, fileName } from "./csv";
import { axisOf, curvesOf, drawn, overs, type WireMetrics } from "./curves";
import { group } from "./failures";
import type { Ranges } from "../search";
import { correlation, distanceToLine, inRanges, nearest, placesOf, rangeAt, scaleOf } from "./plot";
import { bestOf, differs, fieldsOf, flatten, lessIsBetter, objective, parameters, toCSV, toRun } from "./results";

const task = (index: number, x: Partial<Task>): Task => ({ id: `1.${index}`, job: 1, index, group: 0, name: "train", kind: "process", state: "succeeded", ...x });
const runs = [
  task(0, { element: "lr=0.1,opt=adam", result: { loss: 0.5, test: { f1: 0.8 } }, metrics: { loss: 0.6 } }),
  task(1, { element: "lr=0.001,opt=sgd", result: { loss: 0.25, test: { f1: 0.9 } } }),
  task(2, { element: "lr=0.01,opt=adam", state: "failed" }),
].map((t) => toRun(t, ["lr", "opt"]));
const fields = fieldsOf(runs);
const field = (key: string) => fields.find((f) => f.key === key) ?? expect.fail(`no field ${key}`);

describe("parameters", () => {
  it("reads a matrix with and without its axes", () => {
    expect(parameters("lr=0.1,seed=2")).toEqual([["lr", 0.1], ["seed", 2]]);
    expect(parameters("opt=a,b=c,seed=2", ["opt", "seed"])).toEqual([["opt", "a,b=c"], ["seed", 2]]);
    expect(parameters("opt=a,b,seed=2")).toEqual([["opt", "a,b"], ["seed", 2]]);
    expect(parameters("fast=true,name=", ["fast", "name"])).toEqual([["fast", true], ["name", ""]]);
  });
  it("reads the number of an array, and nothing of a plain task", () => {
    expect(parameters("7")).toEqual([["index", 7]]);
    expect(parameters(undefined)).toEqual([]);
  });
});

describe("fields", () => {
  it("come in the order parameters, metrics, results, others, with what they hold", () => {
    expect(fields.map((f) => f.key).slice(0, 5)).toEqual(["param:lr", "param:opt", "metric:loss", "result:loss", "result:test.f1"]);
    expect(field("param:lr")).toMatchObject({ numeric: true, min: 0.001, max: 0.1, known: 3, varies: true });
    expect(field("param:opt").numeric).toBe(false);
    expect(objective(fields)?.key).toBe("result:loss");
  });
  it("flatten nested results and bound them", () => {
    expect(flatten({ a: { b: { c: { d: { e: 1 } } } } })).toEqual([["a.b.c.d", "{…}"]]);
    expect(flatten(0.5)).toEqual([["result", 0.5]]);
    expect(flatten({ list: Array.from({ length: 100 }, () => 1) })).toEqual([["list", "[100 values]"]]);
    expect(flatten(Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`k${i}`, i])))).toHaveLength(200);
  });
  it("know which metrics are better when they are less", () => {
    expect(["loss", "val_loss", "rmse", "latency_ms"].every(lessIsBetter)).toBe(true);
    expect(["accuracy", "f1", "reward"].some(lessIsBetter)).toBe(false);
  });
});

describe("differs", () => {
  it("finds fields whose values are not the same in all runs", () => {
    const runs = [toRun(task(0, { result: { loss: 1, same: "x" } }), []), toRun(task(1, { result: { loss: 1, same: "x", only: 0 } }), []), toRun(task(2, { result: { loss: 2, same: "x" } }), [])];
    const names = (of: typeof runs) => fieldsOf(of).filter((f) => f.source === "result" && differs(f, of)).map((f) => f.name).sort();
    expect([names(runs), names(runs.slice(0, 2)), names(runs.slice(0, 1))]).toEqual([["loss", "only"], ["only"], []]);
  });
});

describe("bestOf", () => {
  it("is the least or the greatest by the metric's name, where all values are numbers", () => {
    expect([bestOf("loss", [2, 1, undefined]), bestOf("accuracy", [2, 1, undefined]), bestOf("accuracy", [2, "x"]), bestOf("epoch", [1, 2]), bestOf("loss", [])]).toEqual([1, 0, -1, -1, -1]);
  });
});

describe("CSV", () => {
  it("quotes what must be quoted and disarms formulas", () => {
    expect(csv(["a", "b"], [["x,y", '"q"'], ["=1+1", -5], [undefined, { k: 1 }], ["-0.5", Infinity]])).toBe('a,b\r\n"x,y","""q"""\r\n\'=1+1,-5\r\n,"{""k"":1}"\r\n-0.5,\r\n');
  });
  it("writes runs, and tells fields of one name apart", () => {
    const text = toCSV(runs.slice(0, 1), fields.filter((f) => f.name === "loss" || f.name === "lr"));
    expect(text).toBe("lr,metric.loss,result.loss\r\n0.1,0.6,0.5\r\n");
  });
  it("makes names of files", () => {
    expect(fileName("a/b: c", 17)).toBe("a_b_c-17");
  });
});

describe("plots", () => {
  it("use a logarithmic axis for values that span two powers of ten", () => {
    const scale = scaleOf(field("param:lr"), runs);
    expect(scale.log).toBe(true);
    expect([0.001, 0.01, 0.1].map((v) => scale.at(v)?.toFixed(2))).toEqual(["0.00", "0.50", "1.00"]);
    expect(scale.ticks.map((t) => t.label)).toEqual(["0.001", "0.01", "0.1"]);
    expect(scale.at(undefined)).toBeUndefined();
  });
  it("place texts side by side", () => {
    const scale = scaleOf(field("param:opt"), runs);
    expect([scale.at("adam"), scale.at("sgd"), scale.at("lion")]).toEqual([0, 1, undefined]);
  });
  it("keep the runs in all ranges, and none without a value", () => {
    const ids = (ranges: Ranges) => inRanges(runs, ranges).map((r) => r.id);
    expect(ids({ "param:lr": [0.01, null] })).toEqual(["1.0", "1.2"]);
    expect(ids({ "param:lr": [0.01, 0.1], "result:loss": [null, 1] })).toEqual(["1.0"]);
    expect(ids({ "param:opt": ["b", "z"] })).toEqual(["1.1"]);
    expect(inRanges(runs, {})).toBe(runs);
  });
  it("keep a range in its values when a run moves the ends of the axis", () => {
    const range = rangeAt(scaleOf(field("result:loss"), runs), 0.2, 1) ?? expect.fail("no range");
    expect(range).toEqual([0.3, 0.5]);
    const more = [...runs, toRun(task(3, { element: "lr=0.1,opt=adam", result: { loss: 50 } }), ["lr", "opt"])];
    expect(inRanges(more, { "result:loss": range }).map((r) => r.id)).toEqual(["1.0"]);
    const places = placesOf(scaleOf(fieldsOf(more).find((f) => f.key === "result:loss") ?? expect.fail("no field"), more), range);
    expect(places.map((p) => Math.round(p * 1000))).toEqual([34, 131]);
  });
  it("turn places into values and back, also of logarithms and texts", () => {
    const lr = scaleOf(field("param:lr"), runs);
    expect(rangeAt(lr, 0, 0.5)).toEqual([0.001, 0.01]);
    expect(placesOf(lr, [0, 0.01]).map((p) => p.toFixed(2))).toEqual(["0.00", "0.50"]);
    expect(placesOf(lr, [null, null])).toEqual([0, 1]);
    const opt = scaleOf(field("param:opt"), runs);
    expect([rangeAt(opt, 0.5, 1), rangeAt(opt, 0.2, 0.8), placesOf(opt, ["b", "sgd"])]).toEqual([["sgd", "sgd"], undefined, [1, 1]]);
  });
  it("correlate what they can", () => {
    const linear = Array.from({ length: 5 }, (_, i) => toRun(task(i, { result: { a: i, b: -2 * i, c: 1 } }), []));
    expect(correlation(linear, "result:a", "result:b")).toBeCloseTo(-1);
    expect(correlation(linear, "result:a", "result:c")).toBeUndefined();
    expect(correlation(runs, "result:loss", "result:test.f1")).toBeUndefined();
  });
  it("find the nearest dot and line", () => {
    expect(nearest(Float64Array.from([0, 0, 10, 10, NaN, NaN]), 9, 9, 5)).toBe(1);
    expect(nearest(Float64Array.from([0, 0]), 9, 9, 5)).toBeUndefined();
    expect(distanceToLine([0, 10], [0, 10], 5, 5)).toBe(0);
    expect(distanceToLine([0, 10], [0, undefined], 5, 5)).toBe(Infinity);
  });
});

describe("failures", () => {
  it("are grouped by reason, whatever numbers their messages have", () => {
    const failed = [task(0, { state: "failed", reason: "exit_code", exit_code: 1, message: "exit code 1" }), task(1, { state: "timed_out", reason: "timeout", message: "after 4s" }), task(2, { state: "timed_out", reason: "timeout", message: "after 5s" })];
    expect(group(failed).map((g) => [g.reason, g.message, g.tasks])).toEqual([["timeout", "after 4s", ["1.1", "1.2"]], ["exit code 1", "", ["1.0"]]]);
  });
});

describe("curvesOf", () => {
  it("takes the last attempt with points, and metrics with two values at least", () => {
    const at = (s: number) => new Date(s * 1000).toISOString();
    const history: WireMetrics = { attempts: [{ started_at: at(0), points: [{ at: at(1), metrics: { loss: 9 } }] }, { started_at: at(100), points: [{ at: at(101), metrics: { loss: 2, once: 1 } }, { at: at(103), metrics: { loss: 1 } }] }, { started_at: at(200) }] };
    expect(curvesOf(["1.0", "1.1"], [history, undefined])).toEqual([{ name: "loss", curves: [{ run: "1.0", points: [[1, 2], [3, 1]] }] }]);
  });
});

describe("runs that are drawn over a metric", () => {
  const history = (...points: Record<string, number>[]): WireMetrics => ({ attempts: [{ points: points.map((metrics, i) => ({ at: new Date(i * 1000).toISOString(), metrics })) }] });
  it("offer what rises and never falls in each of them", () => {
    const a = history({ step: 1, epoch: 0, lr: 1, loss: 2 }, { step: 2, lr: 1, loss: 1 }, { step: 2, epoch: 1, loss: 3 });
    const b = history({ step: 5, loss: 1, tokens: 1 }, { step: 9, loss: 2, tokens: 2 });
    expect(overs([a, undefined])).toEqual(["epoch", "step"]);
    expect(overs([a, b, { attempts: [{ points: [] }] }])).toEqual(["step"]);
    expect(overs([])).toEqual([]);
  });
  it("keep the last value of it where a point does not name it", () => {
    const h = history({ loss: 9 }, { step: 1, loss: 3 }, { loss: 2 }, { step: 4, loss: 1 });
    expect(curvesOf(["1.0"], [h], "step")).toEqual([{ name: "loss", curves: [{ run: "1.0", points: [[1, 3], [1, 2], [4, 1]] }] }]);
  });
});

describe("drawn curves", () => {
  it("are averages, without what has no place on a logarithmic scale", () => {
    const curve = { run: "1.0", points: [[0, 1], [1, 0], [2, 100], [3, 0.01]] as const };
    expect(drawn(curve, 0, false)).toEqual(curve);
    expect(drawn(curve, 0, true).points).toEqual([[0, 1], [2, 100], [3, 0.01]]);
    const smoothed = drawn({ run: "1.0", points: [[0, 0], [1, 1], [2, 0]] }, 0.5, false).points.map((p) => p[1]);
    expect(smoothed[1]).toBeGreaterThan(0.5);
    expect(smoothed[2]).toBeGreaterThan(0.2);
  });
  it("lie on an axis by value or by its logarithm", () => {
    const linear = axisOf([0, 10, 4], false);
    expect([linear.at(4), ...linear.ticks]).toEqual([0.4, 0, 5, 10]);
    const log = axisOf([0.01, 100], true);
    expect([log.at(1), ...log.ticks].map((v) => Number(v.toPrecision(6)))).toEqual([0.5, 0.01, 1, 100]);
    expect(axisOf([5], false).at(5)).toBe(0);
    expect(axisOf([1000], true).ticks[2]).toBeCloseTo(10_000);
  });
});
