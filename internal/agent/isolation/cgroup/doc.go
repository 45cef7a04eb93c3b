// Package cgroup makes the control groups of a worker's attempts, and counts, stops and
// ends what is in them.
//
// # Where they lie
//
// The worker's group, muster- and a hash of its data dir, lies below the group in which
// the worker was started, and bounds all tasks together: the memory that is offered,
// and half of the processes that the machine may have. In it each attempt has one,
// in version 1 one for each controller that it needs. Always that is pids; memory and cpu if it
// names them, since each costs tens of microseconds. In version 2 the worker moves
// itself into a group beside, because groups with others in them may have no
// processes. Where the worker may not make groups it goes up to one where it may, unless
// it would leave a limit behind. Where there is none, Make says so, and it is others' to watch.
//
// Containers have groups in a tree of their own, from the root of all hierarchies: there an
// engine looks for a path.
//
// # What is promised
//
// A group that was made is found again by the next life of the worker, which ends what is left in
// it: all that were made are on record in the data dir before the first attempt is in one. Of a group that
// was ended nothing is left, whatever forks meanwhile. What the kernel does not tell is absent
// from what is counted, never zero.
//
// Empty, Freeze, Counted and Enter work in any process from the run.Cgroup alone. On
// systems other than Linux there are no groups, and nothing fails for it.
package cgroup
