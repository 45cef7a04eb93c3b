// Package placement decides whether a task fits on a worker, how well, and which
// devices it gets. It is pure: it accounts for what is free and never grants more
// than a worker offers.
//
// Filters are checked in a fixed order, and the first that fails is the reason why
// a worker is excluded:
//
//	state → kind → engine → features → project → tags → not → workers → price → owner → vendor → model →
//	max tasks → slots or cpus → memory → disk → gpus
//
// Those up to model depend on the worker only; the rest depend on what is free.
// WorkerUsage.FitsEmpty checks them as if the worker were empty, which separates
// "never" from "not now".
//
// Resources that a task does not request are not reserved: a task without a memory request takes
// none. A task without a cpus request takes a slot instead. CPUs are counted in
// thousandths. A GPU is granted as a whole or, when the task shares, by bytes of its
// memory, never both at the same time. All devices of one grant are of one vendor. A
// quarantined device is not granted until the worker offers it without quarantine.
//
// A gang is placed all at once or not at all: GangFit returns how many of its members
// fit on a worker, and Pack chooses as few workers as possible.
//
// A task that must run in a container needs a worker with a container engine, which
// lists the kind container, besides the task's own kind. One that may run either way is
// placed like a process. Package policy decides what a worker's owner allows; the worker
// checks it again.
//
// Workers of other systems may lack features of specs, such as files or env. Limits
// counts which features are missing and which projects are named by any worker of the
// fleet; Needs differ only in these.
//
// Rank spreads tasks without GPUs over workers (the largest free share wins) and packs
// tasks with GPUs (the tightest devices win, so that large ones stay free).
package placement
