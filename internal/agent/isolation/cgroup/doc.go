// Package cgroup creates the control groups of a worker's attempts, reads their counters, and freezes and kills what is in them.
//
// # Layout
//
// The worker's group, muster- and a hash of its data dir, is below the group in which the worker was started; for a service of
// systemd, below the root group of its service manager, so that the service can be restarted while tasks run. It limits all tasks
// together: to the offered memory, and half of the processes that the machine may have. In it each attempt has a group, with
// version 1 one for each controller that it needs: always pids; memory and cpu if it has such a limit, since each costs tens of
// microseconds. With version 2 the worker moves itself into a sibling group, because a group with groups in it may have no
// processes. If the worker may not create groups there, it uses the nearest ancestor where it may, unless a limit would be lost.
// If there is none, New logs why, and the worker watches the limits itself.
//
// Groups of containers are in a separate tree, from the root of all hierarchies: that is where engines look for a path.
//
// # Promises
//
// After a restart the worker finds all groups that it created and kills what is left in them: they are on record in the data
// dir before the first attempt is in one. Kill leaves no process of a group, however fast it forks. Counters that the kernel
// does not have are absent, never zero.
//
// Kill, Freeze, Stats and Enter work in any process from the run.Cgroup alone. On systems other than Linux there are no groups,
// and no call fails because of that.
package cgroup
