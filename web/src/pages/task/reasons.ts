/** Who can do something about a failure. */
export type Fault = "task" | "fleet" | "user";

interface Plain {
  /** What happened, as a sentence without its full stop. */
  readonly what: string;
  /** What to do. */
  readonly fix?: string;
  readonly fault: Fault;
}

// One entry for each reason of the API: see reason.go.
const plain: Readonly<Record<string, Plain>> = {
  exit_code: { what: "The program ended with an exit code other than 0", fix: "Its last lines of output usually say why.", fault: "task" },
  signal: { what: "The program was ended by a signal", fix: "A crash of the program itself (SIGSEGV, SIGABRT) or someone on the worker ended it.", fault: "task" },
  out_of_memory: { what: "The task used more memory than it was given", fix: "Ask for more with resources.memory, or make it use less, for example with a smaller batch.", fault: "task" },
  timeout: { what: "The task took longer than its timeout", fix: "Raise timeout, or save checkpoints so that a retry continues.", fault: "task" },
  queue_timeout: { what: "No worker could start the task before its queue timeout", fix: "Raise queue_timeout, ask for less, or add workers.", fault: "fleet" },
  artifact_missing: { what: "A file that the task promised in outputs was not there at its end", fix: "Check the path in outputs: it is relative to the task's folder.", fault: "task" },
  dependency: { what: "Something that the task needs could not be installed", fix: "Check its packages and their versions.", fault: "task" },
  fetch_failed: { what: "An input could not be brought to the worker", fault: "fleet" },
  upload_failed: { what: "An output could not be brought from the worker to the server", fault: "fleet" },
  start_failed: { what: "The command could not be executed", fix: "Check that the program exists on the worker or in the image, and may be executed.", fault: "task" },
  disk_full: { what: "The worker's disk was full", fault: "fleet" },
  bad_reference: { what: "A ${…} in the spec could not be resolved", fix: "Check the stage's name and that its result has the field.", fault: "task" },
  need_not_met: { what: "A stage that this one needs did not succeed", fix: "Retry the failed stage: this one follows.", fault: "task" },
  condition_false: { what: "The condition of its stage is false, or its array is empty", fix: "See when in the spec: the stage decides again when a stage that it needs is retried.", fault: "task" },
  job_stopped: { what: "Too many other tasks of the job failed", fix: "Fix and retry these: muster retry takes up the cancelled ones, too. on_failure: continue lets the others run.", fault: "task" },
  crash_limit: { what: "The task took too many workers down with it", fix: "Try it on one worker by hand before it runs again.", fault: "task" },
  worker_lost: { what: "The worker was silent for longer than it may be", fault: "fleet" },
  worker_restart: { what: "The worker restarted and did not have the task any more", fault: "fleet" },
  worker_shutdown: { what: "The worker was shut down", fault: "fleet" },
  rejected: { what: "The worker refused the task", fault: "fleet" },
  cancelled_by_user: { what: "It was cancelled", fault: "user" },
  worker_internal: { what: "The worker has a fault of its own", fix: "The worker's own log says more. Please report it.", fault: "fleet" },
  invalid_spec: { what: "The worker found a fault in the spec", fault: "task" },
  result_invalid: { what: "result.json is not valid JSON, or is too large", fault: "task" },
  pid_limit: { what: "The task started more processes than it may", fix: "Raise resources.pids, or start fewer.", fault: "task" },
  disk_limit: { what: "The task's files grew over its share of the disk", fix: "Raise resources.disk, or write less.", fault: "task" },
  gpu_memory: { what: "The task used more GPU memory than its share", fix: "Raise resources.gpus.memory, or make it use less, for example with a smaller batch.", fault: "task" },
  gpu_fault: { what: "A GPU failed under the task", fault: "fleet" },
  preempted: { what: "It was preempted for another task", fault: "fleet" },
  gang_member: { what: "Another member of its gang ended", fault: "fleet" },
  image_missing: { what: "The image does not exist, or may not be pulled with these credentials", fix: "Check the image's name and the registry's credentials.", fault: "task" },
  image_pull: { what: "The image could not be brought to the worker", fault: "fleet" },
  engine_failed: { what: "The worker's container engine failed", fault: "fleet" },
  bad_input: { what: "Its data, its model or a parameter is not what it must be", fix: "Check the input of the task.", fault: "task" },
  diverged: { what: "What it computed is no longer a finite number", fix: "Try a smaller learning rate, or clip gradients.", fault: "task" },
};

export function plainReason(reason: string | undefined): Plain | undefined {
  return reason ? (plain[reason] ?? { what: reason.replaceAll("_", " "), fault: "task" }) : undefined;
}

export const faultText: Record<Fault, string> = {
  task: "caused by the task",
  fleet: "caused by the fleet, not by the task",
  user: "by a user",
};

const signals: Readonly<Record<number, string>> = {
  1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1",
  11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
};

/** "1", "137 (SIGKILL)", "127 (command not found)". */
export function exitText(code: number): string {
  if (code === 126) return "126 (the command cannot be executed)";
  if (code === 127) return "127 (command not found)";
  const signal = code > 128 ? signals[code - 128] : undefined;
  return signal ? `${code} (${signal})` : String(code);
}
