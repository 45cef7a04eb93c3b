// Package warm keeps processes that hold models in memory between tasks.
//
//	task ──► Keeper.Socket ──► a host of its key: found, or started
//	  │                                │
//	  └── $MUSTER_WARM ── unix socket ─┘  requests and answers; see wire.py of the runtime
//
// A host is started for the first task of a key, as the user of tasks, in a sandbox and with control groups like a task's, with the
// memory of the task that asked. It has nothing of any task's: no secrets, no folders, no files. What is to be
// worked on comes over its socket. It loads what its first client asks for, and ends by itself when it is not used for long or the machine
// is short of memory.
//
// # When a host ends
//
// Unused for the time to live; unused and the machine has less memory than its owner wants to be left, those unused for longest
// first; unused and a task is about to start that needs its memory (Room) or its devices (Evict); and with the worker, but not when that leaves its tasks to
// its next life. The kernel, short of memory, takes hosts before tasks. Nobody depends on one: a task whose host is gone loads the model itself.
//
// # GPUs
//
// A host is on the board of devices as an attempt is, of job 0, from before it starts. So what it holds is not held against the tasks that
// use the device meanwhile, and when it has ended the board proves that the device is clean, as after any task.
//
// # Lives
//
// A host belongs to no life of the worker. Each has a folder with its socket, its log and what it was started with: the next life finds it there,
// and goes on with it if its process still is the recorded one and answers. One without a worker ends when its time to live has passed.
// What was noted before there was a process, or not at all, is found by a mark in its environment and ended.
//
// # What is not promised
//
// Memory that hosts hold is offered to tasks all the same: it is freed when it is needed, within seconds. A host serves one request at a time. Tasks that know
// the name of its socket, which are those that it was started for, can disturb it.
package modelpool
