// Package run is how a worker executes tasks: the Executor contract, what an
// executor is given (Env), the protocol by which a task talks to Muster
// (ParseLine), and the hunt for what a task leaves behind (Kin). Package runtest
// holds the contract as tests.
//
// # What a task is promised
//
// It runs in a folder of its own that is removed afterwards, sees the environment
// that its spec asks for and nothing of the worker's, and only the GPUs that it
// was granted. It is asked to stop by a signal before it is killed. When its
// report is made, none of its processes is left: neither children that moved to
// another process group or session, nor daemons that dropped their environment.
//
// # How processes are told apart
//
// The worker makes itself the reaper of its orphaned descendants (Linux only), so
// that whatever a task starts stays below the worker. A process belongs to an
// attempt if it is in its main process's group or session, if it descends from
// it, or if the entry Proc.Mark is in its environment. An orphan with none of
// these belongs to an attempt that was running when the orphan began; once no
// such attempt runs any more, it is killed. The worker's own tools stay in the
// worker's process group and are never taken for orphans.
//
// Elsewhere than on Linux only the process group is killed.
package run
