// Package run is how a worker executes tasks: the Executor contract, what an
// executor is given (Env), who stands by the processes (Supervisor), and the
// protocol by which a task talks to Muster (ParseLine). Package runtest holds the
// contract as tests.
//
// # What a task is promised
//
// It runs in a folder of its own that is removed afterwards, sees the environment
// that its spec asks for and nothing of the worker's, and only the GPUs that it
// was granted. It is asked to stop by a signal before it is killed. When its
// report is made, none of its processes is left: neither children that moved to
// another process group or session, nor daemons that dropped their environment.
// It goes on when its worker ends, and the worker's next life takes it up: see
// package shim.
package run
