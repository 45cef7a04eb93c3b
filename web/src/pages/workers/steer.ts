import { client, data } from "@/api/client";
import type { Action } from "./model";

/** The options of an action. */
export interface SteerOptions {
  /** Seconds until a drain preempts running tasks, or a pause ends. */
  readonly duration?: number | undefined;
  /** UUIDs of the devices to heal; default: all quarantined devices. */
  readonly gpus?: readonly string[];
}

export async function steer(action: Action, worker: string, { duration, gpus }: SteerOptions = {}): Promise<void> {
  const params = { params: { path: { worker } } };
  switch (action) {
    case "approve":
      await client.POST("/api/v1/workers/{worker}/approve", params);
      return;
    case "drain":
      await client.POST("/api/v1/workers/{worker}/drain", { ...params, body: duration === undefined ? {} : { deadline: duration } });
      return;
    case "pause":
      await client.POST("/api/v1/workers/{worker}/pause", { ...params, body: duration === undefined ? {} : { for: duration } });
      return;
    case "resume":
      await client.POST("/api/v1/workers/{worker}/resume", params);
      return;
    case "heal":
      await client.POST("/api/v1/workers/{worker}/heal", { ...params, body: gpus ? { gpus: [...gpus] } : {} });
      return;
    case "remove":
      await client.DELETE("/api/v1/workers/{worker}", params);
      return;
  }
}

/** A worker reports the state of a device within a few seconds. */
const healLimit = 15_000;
const healEvery = 1_000;

/** Makes a worker check a quarantined device again, and waits until it is healthy. Rejects with the reason if it is not. */
export async function healGPU(worker: string, uuid: string): Promise<void> {
  await steer("heal", worker, { gpus: [uuid] });
  for (const end = Date.now() + healLimit; ; ) {
    await new Promise((resolve) => setTimeout(resolve, healEvery));
    const { resources } = await data(client.GET("/api/v1/workers/{worker}", { params: { path: { worker } } }));
    const gpu = resources.gpus?.find((g) => g.uuid === uuid);
    if (!gpu?.quarantined) return;
    if (Date.now() > end) throw new Error(`GPU ${gpu.index} stays quarantined: ${gpu.quarantined}`);
  }
}
