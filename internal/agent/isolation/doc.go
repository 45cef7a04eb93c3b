// Package limit holds tasks to their resources and away from what is not theirs:
// control groups, Landlock, users, networks.
//
// # Where it happens
//
// Limits, in the worker, decides what holds an attempt, makes its control groups
// and hands its folders over. What it decided is a run.Confine, which goes with the
// task to the process that starts it and stands by it, and is kept there. Spawn, Kill
// and Freeze work from it alone, in any process.
//
//	worker                         shim
//	Limits.Confine ──Confine────►  Spawn ──► thread: join, enter, restrict, fork ──► task
//	Limits.Counted ◄─ control groups
//	Limits.Release                 Kill, Freeze
//
// # How a task gets in
//
// A process takes over what the thread is in that forks it. Spawn forks from a thread
// of its own, which has entered all that is to hold the task, and ends afterwards:
// there is no moment in which the task is outside, and no program between. The process
// of that thread stays as it is. Groups of version 2 take in processes only, so that
// the task is cloned right into its own.
//
// # Control groups
//
// One of the worker bounds all tasks together, and in it each attempt has its own: package
// cgroup has where they lie, and what is done with them. Where there is none, memory, processes
// and threads are watched by others, and processor time is not limited.
//
// # The sandbox
//
// Landlock allows; nothing can be taken away from what is allowed. So what a task may
// read is a list: the system, what the worker's PATH leads to, its Python environment. It may change its
// own folders, a few devices, and what the worker's owner adds. A task without GPUs cannot
// open them. Signals and abstract sockets end at the sandbox, and nobody outside can be traced.
//
// # Users
//
// A worker of root's gives each attempt a user of its own (accounts), which has no capabilities, and hands the attempt's folders over to
// it; folders that tasks share belong to a group. What builds packages for tasks is another such user. Where tasks are to run as root they have the capabilities of
// a plain user of its own files, and see of /etc what programs need, but remain the superuser for sockets with a name, such as that of a
// container engine.
//
// # Views
//
// Such tasks are in a mount namespace (package view), made once in each process that starts them. Its /proc shows a task its own processes only, and what tasks are to
// come to is shown to them also where it lies in folders that are closed to their users.
//
// # Networks
//
// A task may have a network with nothing but loopback. With an allowlist a socket listens there before the
// task's first instruction, and is handed to whoever called Spawn: package netns has how. The unprivileged get such
// a network only with the process that is to be in it, in a user namespace; there this program is executed
// first, listens, passes the socket back, and executes the task's.
//
// # What this does not do
//
// Without a view it does not hide other processes, nor their command lines. Shared memory
// (/dev/shm) is one for all tasks of a user. Disks have no quota. It is no virtual machine: a flaw
// of the kernel is open to tasks.
package isolation
