// Package runtimes builds, checks and removes the Python environments of Muster's own kinds.
//
//	<data>/runtimes/envs/NAME-KEY   an environment; KEY is a hash of everything that determines it
//	<data>/runtimes/code/HASH       the modules of all runtimes, separate from the environments
//	<data>/runtimes/locks/NAME      file lock: exclusive to build or remove, shared to start using
//
// An environment is built in a temporary folder from the embedded lock file (see internal/agent/run/python), then renamed to its path,
// with a marker that lists its packages. Before use, each file of each package is checked; a damaged environment is rebuilt. After a
// build, the disk budget is enforced: first uv's cache is emptied, then the least recently used environments are removed, except
// those that a process of this machine uses.
//
// Several processes may use one data dir concurrently: workers, and muster runtime.
package runtimes
