// Package place decides whether a task fits on a worker, how well, and which
// devices it is given. It is pure: it keeps the books of what is free and never
// gives out more than there is.
//
// Filters are asked in a fixed order, and the first that fails is the answer to
// "why not there":
//
//	state → kind → engine → features → project → tags → not → workers → price → owner → vendor → model →
//	max tasks → slots or cpus → memory → disk → gpus
//
// Those up to model never change while the worker is the same; the rest depend
// on what is free. Book.Ever asks them as if the worker were empty, so that
// "never" can be told from "not now".
//
// What is not asked for is not reserved: a task that names no memory takes none.
// A task that names no cpus takes a slot instead. CPUs are counted in
// thousandths. A GPU is given whole, or, when the task shares, by bytes of its
// memory; a device that is shared is never given whole at the same time. All
// devices of one grant are of one vendor. A quarantined device is given to nobody,
// now or ever, until the worker offers it without.
//
// A gang is placed all at once or not at all: Room tells how many of its members a
// worker could take, and Gather chooses workers, as few as can be.
//
// A task that is to run in a container needs a worker with an engine, which the kind
// container says, besides its own kind; one that may run as either is placed as if it
// were a process. What a worker's owner does not allow is not sent
// there, though the worker would refuse it in any case: package allow says what that is.
//
// A worker may lack features of specs, such as files or env: those of other systems carry less
// than Muster's own. Limits knows which features any worker of the fleet lacks and which projects
// any names; only by these are Needs told apart.
//
// Score spreads tasks without GPUs over workers (the one with the most free share
// wins) and packs tasks with GPUs (the tightest devices win, so that big ones
// stay free for those who need them).
package placement
