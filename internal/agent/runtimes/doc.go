// Package runtimes makes, checks and removes the Python environments of the kinds that come with Muster.
//
//	<data>/runtimes/envs/NAME-KEY   an environment; KEY is a hash of all that decides what is in it
//	<data>/runtimes/code/HASH       the modules of all runtimes, no part of the environments
//	<data>/runtimes/locks/NAME      held alone by who makes or removes, shared by who begins to use
//
// An environment is made beside its place from the lock that is embedded (see internal/agent/run/python) and
// moved there whole, with a marker that lists its packages. Before it is used each file of each package
// is looked at; one that is damaged is made anew. After one is made, others make room for it: the kept
// downloads first, then those that were not used for longest, and never one that a process of this machine uses.
//
// Several processes may do all of this in one data dir: workers, and muster runtime.
package runtimes
