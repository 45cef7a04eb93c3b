import { describe, expect, it } from "vitest";
import type { OverviewGPU, Worker } from "@/api/types";
import { energyOf } from "./history";
import { download, joinLines, onlyHere, quote, type Machine, type Program } from "./lines";
import { actionsOf, devices, filter, filterGPUs, grantText, reserved, troubles, parseDuration } from "./model";
import { validateWorker, validateWorkers } from "./search";

const gib = 2 ** 30;

function worker(over: Partial<Worker> = {}): Worker {
  return {
    id: "w-1",
    name: "lab-1",
    state: "active",
    version: "v1",
    running: 1,
    tags: ["linux", "cuda"],
    labels: { rack: "b7" },
    resources: { cpus: 16, memory: 64 * gib, disk: 100 * gib, slots: 8, gpus: [{ uuid: "GPU-a", index: 0, vendor: "nvidia", name: "RTX 4090", memory: 24 * gib }] },
    free: { cpus: 12, memory: 48 * gib, disk: 90 * gib, slots: 7 },
    load: { cpu: 0.5, memory: 20 * gib, gpus: [{ uuid: "GPU-a", utilization: 0.9 }] },
    ...over,
  };
}

describe("a worker", () => {
  it("has reserved what it offers and is not free", () => {
    expect(reserved(worker())).toEqual({ cpus: 4, memory: 16 * gib });
    const unknown = worker();
    delete unknown.free;
    expect(reserved(unknown)).toEqual({});
  });

  it("shows no load of devices while it is away", () => {
    expect(devices(worker())[0]?.load?.utilization).toBe(0.9);
    expect(devices(worker({ state: "unreachable" }))[0]?.load).toBeUndefined();
  });

  it("says what is wrong with it, the worst first", () => {
    expect(troubles(worker(), "v1")).toEqual([]);
    const ill = worker({ state: "unreachable", constrained: "the disk is full", version: "v0" });
    expect(troubles(ill, "v1").map((t) => t.kind)).toEqual(["unreachable", "constrained"]);
    const copied = worker({ state: "unreachable", quarantined: "used by two processes" });
    expect(troubles(copied, "v1").map((t) => t.kind)).toEqual(["quarantined", "unreachable"]);
    const filling = { cpu: 0, memory: gib, disk: { free: gib, total: 100 * gib, low: true } };
    expect(troubles(worker({ load: filling }), "v1")).toEqual([{ kind: "disk", text: expect.stringMatching(/^1 of 100 GiB of the data folder's disk are free/) as unknown }]);
    expect(troubles(worker({ state: "gone", load: filling }), "v1")).toEqual([]);
    const gpus = [{ uuid: "GPU-a", index: 0, vendor: "nvidia", name: "RTX 4090", memory: 24 * gib, quarantined: "XID 79" }];
    expect(troubles(worker({ version: "v0", resources: { ...worker().resources, gpus } }), "v1").map((t) => t.kind)).toEqual(["quarantined", "outdated"]);
  });

  it("offers the actions that its state allows", () => {
    expect(actionsOf(worker())).toEqual(["pause", "drain"]);
    expect(actionsOf(worker({ state: "draining" }))).toEqual(["resume", "pause"]);
    expect(actionsOf(worker({ state: "gone" }))).toEqual(["remove"]);
    expect(actionsOf(worker({ state: "gone", paused: true }))).toEqual(["resume", "remove"]);
    const avoided = { score: 0.1, reason: "disk_full" as const, attempt: "4.0#1", avoided: "is avoided until noon" };
    expect(actionsOf(worker({ health: avoided }))).toEqual(["resume", "pause", "drain"]);
    const gpus = [{ uuid: "GPU-a", index: 0, vendor: "nvidia", name: "x", memory: gib, quarantined: "XID 79" }];
    expect(actionsOf(worker({ resources: { ...worker().resources, gpus } }))).toContain("heal");
  });
});

describe("what a task was given", () => {
  it("is told with the indexes of its GPUs", () => {
    expect(grantText({ cpus: 4, memory: 8 * gib, gpus: ["GPU-a"], gpu_memory: 12 * gib }, worker())).toBe("4 cores · 8 GiB · GPU 0 · 12 GiB of VRAM");
    expect(grantText({ cpus: 1, gpus: ["GPU-gone"] }, worker())).toBe("1 core · GPU GPU-gone");
    expect(grantText(undefined, worker())).toBe("");
  });
});

describe("the filter", () => {
  const list = [worker(), worker({ id: "w-2", name: "laptop", state: "gone", tags: ["mac"], labels: {}, resources: { cpus: 8, memory: gib, disk: gib, slots: 4 } })];
  it("wants every word, wherever it is", () => {
    expect(filter(list, { q: "CUDA 4090 rack=b7" }, "v1").map((w) => w.name)).toEqual(["lab-1"]);
    expect(filter(list, { q: "cuda mac" }, "v1")).toEqual([]);
  });
  it("selects by state and attention", () => {
    expect(filter(list, { state: "gone" }, "v1").map((w) => w.name)).toEqual(["laptop"]);
    expect(filter(list, { attention: true }, "v2").map((w) => w.name)).toEqual(["lab-1"]);
  });
});

describe("the filter of devices", () => {
  const gpu = (over: Partial<OverviewGPU>): OverviewGPU => ({ worker: "w-1", worker_name: "lab-1", index: 0, uuid: "GPU-a", name: "RTX 4090", memory: 24 * gib, tasks: 0, ...over });
  const list = [gpu({}), gpu({ index: 1, uuid: "GPU-b", name: "H100" }), gpu({ worker: "w-2", worker_name: "lab-2", uuid: "GPU-c", name: "H100" })];
  it("takes words of the device and of its worker, not of its neighbours", () => {
    const uuids = (q: string) => filterGPUs(list, [worker()], q).map((g) => g.uuid);
    expect([uuids(""), uuids("h100 rack=b7"), uuids("gpu-a"), uuids("lab-2")]).toEqual([["GPU-a", "GPU-b"], ["GPU-b"], ["GPU-a"], []]);
  });
});

describe("the URL", () => {
  it("drops what has no meaning", () => {
    expect(validateWorkers({ q: 3, state: "asleep", view: "cards", add: true })).toEqual({ view: "cards", add: true });
    expect([validateWorkers({ view: "gpus" }), validateWorkers({ view: "pie" })]).toEqual([{ view: "gpus" }, {}]);
    expect(validateWorker({ range: "12h", tab: "x" })).toEqual({ range: "12h" });
  });
});

describe("durations", () => {
  it.each([["90s", 90], ["10m", 600], ["1h30m", 5400], ["7d", 604_800], [" 1.5h ", 5400]])("%s is %d seconds", (text, seconds) => expect(parseDuration(text)).toBe(seconds));
  it.each(["", "10", "m", "1 hour", "-5m", "5mm"])("%s is none", (text) => expect(parseDuration(text)).toBeUndefined());
});

describe("join lines", () => {
  it("quote what a shell would read otherwise", () => {
    expect(quote("gpu-box_1.lan")).toBe("gpu-box_1.lan");
    expect(quote("it's mine; rm")).toBe(`'it'\\''s mine; rm'`);
  });
  const joining = { server: "http://lab:8700", token: "mst_join_x", name: "my box" };
  const lines = (machine: Machine, program: Program | undefined) => joinLines(machine, joining, program).map((l) => l.text).join("\n");
  it("name the server, the token and the worker", () => {
    for (const system of ["linux", "macos", "container", "systemd"] as const) {
      for (const program of [{ os: "linux", arch: "amd64" }, { os: "darwin", arch: "arm64" }, undefined]) {
        const text = lines({ system, arch: "amd64" }, program);
        expect(text).toContain("--server http://lab:8700");
        expect(text).toContain("mst_join_x");
        expect(text).toContain("--name 'my box'");
      }
    }
  });
  it("fetch the program where the server has it for the machine, and build it for the machine otherwise", () => {
    const linux = { os: "linux", arch: "amd64" };
    const mac = { os: "darwin", arch: "arm64" };
    for (const system of ["linux", "container", "systemd"] as const) {
      expect(lines({ system, arch: "amd64" }, linux)).toContain("http://lab:8700/download/muster?");
      expect(lines({ system, arch: "amd64" }, linux)).not.toContain("go build");
    }
    expect(lines({ system: "macos", arch: "arm64" }, mac)).toContain("http://lab:8700/download/muster?");
    for (const [machine, program, build] of [
      [{ system: "linux", arch: "arm64" }, linux, "GOOS=linux GOARCH=arm64 go build"],
      [{ system: "macos", arch: "arm64" }, linux, "GOOS=darwin GOARCH=arm64 go build"],
      [{ system: "systemd", arch: "amd64" }, mac, "GOOS=linux GOARCH=amd64 go build"],
      [{ system: "linux", arch: "amd64" }, undefined, "GOOS=linux GOARCH=amd64 go build"],
    ] as const) {
      expect(lines(machine, program)).toContain(build);
      expect(lines(machine, program)).not.toContain("/download/muster");
    }
  });
  it("check the machine before the worker starts", () => {
    for (const system of ["linux", "macos", "systemd"] as const) {
      const text = lines({ system, arch: "amd64" }, undefined);
      expect(text.indexOf("muster doctor --server http://lab:8700")).toBeGreaterThan(0);
      expect(text.indexOf("muster doctor")).toBeLessThan(text.indexOf(system === "systemd" ? "muster worker install --server" : "muster worker --server"));
    }
    // Outside of the container it would check another machine than the worker sees.
    expect(lines({ system: "container", arch: "amd64" }, undefined)).not.toContain("doctor");
  });
  it("give a container the devices of one maker, or none", () => {
    const container = (gpus?: "nvidia" | "amd" | "none") => lines({ system: "container", arch: "amd64", ...(gpus && { gpus }) }, undefined);
    expect(container("nvidia")).toContain("--network host --gpus all \\\n");
    expect(container("amd")).toContain("--network host --device /dev/kfd --device /dev/dri \\\n");
    expect(container("none")).toContain("--network host \\\n");
    expect(container()).toBe(container("none"));
  });
  it("show why the server refused, and keep what was there", () => {
    const text = download("http://lab:8700", "$T", "/usr/local/bin/muster");
    expect(text).toMatch(/^curl --fail-with-body .* -o \/usr\/local\/bin\/muster\.new .* \|\| \(cat \/usr\/local\/bin\/muster\.new; false\) && chmod 755 .* && mv \/usr\/local\/bin\/muster\.new \/usr\/local\/bin\/muster$/);
  });
  it("know addresses that other machines cannot reach", () => {
    expect(onlyHere("http://127.0.0.1:8700")).toBe(true);
    expect(onlyHere("http://localhost:8700")).toBe(true);
    expect(onlyHere("http://[::1]:8700")).toBe(true);
    expect(onlyHere("http://lab.local:8700")).toBe(false);
  });
});

describe("energy", () => {
  it("is the sum of power times time, and unknown without a reading", () => {
    expect(energyOf([100, null, 300], 600)).toBeCloseTo(66.67, 1);
    expect(energyOf([null, null], 600)).toBeUndefined();
  });
});
