// Package run defines how a worker executes tasks: the Executor contract, the parent of the processes (Supervisor) with what it starts
// (StartSpec, IsolationSpec, Container), and the protocol between a task and Muster (ParseLine). Package runtest holds the contract as tests.
//
// # What a task is promised
//
// It runs in its own folder, which is removed afterwards, and sees the environment that its spec asks for, none of the worker's, and only
// the GPUs that it was granted. It receives a signal before it is killed. When its report is made, none of its processes is left: neither
// children that moved to another process group or session, nor daemons that cleared their environment. It keeps running when its worker
// ends, and the next process of the worker recovers it: see package shim.
package run
