// Package python builds, checks and removes Python environments with uv: those that tasks ask for in their specs, and the runtimes of
// package runtimes.
//
//	<root>/envs/NAME    an environment; its name contains a hash of everything that determines it
//	<root>/locks/NAME   file lock: exclusive to build or remove, shared to start using
//
// An environment is built in a temporary folder, then renamed to its path, with a marker that lists its packages. Before use, each file
// of each package is checked; a damaged environment is built again. After a build, environments that were unused for too long are
// removed, and the disk budget is enforced: first uv's cache is emptied, then the least recently used environments are removed, except
// those that a process of this machine uses.
//
// Several processes may use one data dir concurrently: workers, and muster runtime.
//
// The log of the task that started a build gets uv's output. uv sees the worker's settings of package indexes, proxies and
// certificates; the task does not.
package python
