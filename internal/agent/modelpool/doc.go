// Package modelpool manages model servers: processes that keep models in memory between tasks.
//
//	task ──► Pool.Acquire ──► a model server with the task's key: found, or started
//	  │                                │
//	  └── $MUSTER_WARM ── unix socket ─┘  requests and responses; see wire.py of the runtime
//
// A model server is started for the first task of a key, as the user of tasks, with a task's sandbox, control groups and memory limit. It has
// no access to any task's secrets, folders or files: all input comes over its socket. It loads what its first client requests, and exits
// by itself when it is unused for long or the machine is short of memory.
//
// # When a model server is stopped
//
// When it is unused for the TTL; when it is unused and the machine has less free memory than its owner wants (least recently used first);
// when it is unused and a starting task needs its memory (FreeMemory) or its devices (Evict); and with the worker, unless the worker
// leaves its tasks running for its next incarnation. A kernel short of memory kills model servers before tasks. No task depends on one: a
// task whose model server has exited loads the model itself.
//
// # GPUs
//
// A model server acquires its devices like an attempt, of job 0, before it starts. So its memory is not attributed to the tasks that use
// the device meanwhile, and after its exit the allocator checks that the device is clean, as after any task.
//
// # Restarts of the worker
//
// A model server outlives the worker. It has a folder with its socket and its log, and a record beside it. The next incarnation recovers it
// if its process is the recorded one and answers. Without a worker it exits after the TTL. Processes without a usable record are
// found by an entry in their environment and killed.
//
// # Limits
//
// The memory of model servers is also offered to tasks: it is freed within seconds when a task needs it. A model server serves one request at
// a time. Tasks that know the name of its socket, those that it was started for, can disturb it.
package modelpool
