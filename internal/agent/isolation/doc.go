// Package isolation enforces the resource limits of tasks and protects what is not theirs, with control groups, Landlock, seccomp,
// users, mount namespaces and network namespaces.
//
// # Where it happens
//
// The Isolator, in the worker, decides how an attempt is isolated, creates its control groups and gives it its folders. Its
// decision is a run.IsolationSpec, which goes with the task to the shim that starts and supervises it, and is stored there. Spawn,
// Kill and Freeze need only the spec, and work in any process.
//
//	worker                             shim
//	Isolator.Prepare ──IsolationSpec─► Spawn ──► thread: join, enter, restrict, fork ──► task
//	Isolator.Stats ◄── control groups
//	Isolator.Release                   Kill, Freeze
//
// # How a task starts
//
// A process inherits the restrictions of the thread that forks it. Spawn forks from a thread of its own, which has entered all
// restrictions of the task and ends afterwards: the task is never unrestricted, and no program runs in between. The process of
// that thread does not change. Groups of version 2 contain processes only, so the task is cloned directly into its group.
//
// # Control groups
//
// One group of the worker limits all tasks together, and in it each attempt has its own: see package cgroup. Without groups the
// worker watches memory, processes and threads, and processor time is not limited.
//
// # The sandbox
//
// Landlock allows access; it cannot make exceptions from what it allows. So a task may read what is on a list: the system, the
// programs on the worker's PATH, its Python environment. It may change its own folders, a few devices, and what the worker's owner
// adds. A task without GPUs cannot open them. Signals and abstract sockets end at the sandbox, and no process outside can be traced.
//
// # System calls
//
// Package seccomp denies tasks the system calls that container engines deny. It is entered last, since it would deny what the steps
// before need. In control groups of version 2 it has to allow clone3; there the view denies user namespaces.
//
// # Users
//
// A worker that runs as root gives each attempt a user of its own (uidPool), which has no capabilities, and makes it the owner of
// the attempt's folders; folders that tasks share belong to a group. Programs that build packages for tasks have another such user.
// If tasks are to run as root, they have the capabilities of a plain user for its own files and see a part of /etc, but they
// remain the superuser for named sockets, such as that of a container engine.
//
// # Views
//
// Such tasks are in a mount namespace (package view), created once in each process that starts tasks. Its /proc shows a task its own
// processes only, and it shows paths that tasks need even if they are in folders that are closed to the users of tasks.
//
// # Networks
//
// A task may have a network with nothing but loopback. With an allowlist a socket listens there before the task's first
// instruction, and Spawn passes it to its caller: see package netns. Without privileges such a network is possible only together
// with a process, in a user namespace; there this program is executed first, listens, passes the socket back, and executes the
// task's program.
//
// # Limits of the isolation
//
// Without a view, tasks see other processes and their command lines. All tasks of a user share /dev/shm. Disks have no quota. It
// is not a virtual machine: tasks can exploit a flaw of the kernel.
package isolation
