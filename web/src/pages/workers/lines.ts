// The lines to paste for a new worker.

import type { components } from "@/api/schema";

export type System = "linux" | "macos" | "container" | "systemd";
export type Arch = "amd64" | "arm64";

/** The executable that the server answers at /download/muster, as whoami tells it. */
export type Program = components["schemas"]["Program"];

/** Whose GPUs a container is given. The options of Docker differ, and those of a maker that is not there make it refuse to start. */
export type GPUMaker = "nvidia" | "amd" | "none";

/** The new machine. */
export interface Machine {
  readonly system: System;
  readonly arch: Arch;
  /** Absent means none. */
  readonly gpus?: GPUMaker;
}

/** How the new worker reaches the server. */
export interface Joining {
  readonly server: string;
  readonly token: string;
  /** Empty for the machine's host name. */
  readonly name: string;
}

export interface JoinLine {
  readonly title: string;
  readonly text: string;
}

/** Quotes for a POSIX shell, if it must. */
export function quote(s: string): string {
  return /^[\w./:@%+=,-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`;
}

/** Whether other machines cannot reach a server at this URL. */
export function onlyHere(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === "localhost" || hostname.endsWith(".localhost") || /^127\./.test(hostname) || hostname === "[::1]";
}

/** What Go calls the operating system of a machine. */
export const osOf = (system: System) => (system === "macos" ? "darwin" : "linux");

/** Whether the server's executable runs on a machine. */
export const fits = (machine: Machine, program: Program | undefined) => program?.os === osOf(machine.system) && program.arch === machine.arch;

/**
 * Fetches the server's executable for the machine on which this is pasted, and puts it in its place. If the server has none for it, or refuses the token,
 * its answer is printed, and what was there stays.
 */
export const download = (server: string, token: string, to: string, part = `${to}.new`) =>
  `curl --fail-with-body -sS -H "Authorization: Bearer ${token}" -o ${part} "${server}/download/muster?os=$(uname -s | tr A-Z a-z)&arch=$(uname -m)" || (cat ${part}; false) && chmod 755 ${part} && mv ${part} ${to}`;

// Root in the container opens AMD's devices as the machine's root does, and the worker gives their groups to tasks.
const gpuOptions: Record<GPUMaker, string> = { nvidia: " --gpus all", amd: " --device /dev/kfd --device /dev/dri", none: "" };

export function joinLines(machine: Machine, { server, token, name }: Joining, program: Program | undefined): JoinLine[] {
  const named = name ? ` --name ${quote(name)}` : "";
  const { system, arch, gpus = "none" } = machine;
  const path = system === "systemd" ? "/usr/local/bin/muster" : "muster";
  const get: JoinLine[] = fits(machine, program)
    ? [{ title: system === "systemd" ? "Get the program from this server, as root" : "Get the program from this server", text: download(server, token, path) }]
    : [
        { title: "Build the program, on a machine with Go and the source of Muster", text: `CGO_ENABLED=0 GOOS=${osOf(system)} GOARCH=${arch} go build -o muster ./cmd/muster` },
        { title: "Copy it to the new machine", text: `scp muster ${system === "systemd" ? "root@" : ""}NEW_MACHINE:${path}` },
      ];
  const check = (options = ""): JoinLine => ({ title: "Check the machine (optional)", text: `${system === "systemd" ? path : "./muster"} doctor --server ${server}${options}` });
  switch (system) {
    case "linux":
    case "macos":
      return [...get, check(), { title: "Start the worker", text: `MUSTER_JOIN_TOKEN=${token} ./muster worker --server ${server}${named}` }];
    case "container":
      return [
        ...get,
        {
          title: "Start the worker in a container that keeps its data in a volume",
          text: `docker run -d --name muster-worker --restart unless-stopped --network host${gpuOptions[gpus]} \\
  -e MUSTER_JOIN_TOKEN=${token} -v "$PWD/muster:/usr/local/bin/muster:ro" -v muster-worker:/data \\
  debian:stable-slim muster worker --server ${server} --data /data${named}`,
        },
      ];
    case "systemd":
      return [
        ...get,
        check(),
        { title: "Install and start the service, as root", text: `MUSTER_JOIN_TOKEN=${token} ${path} worker install --server ${server}${named}` },
      ];
  }
}
