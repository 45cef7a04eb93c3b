// Package runtimes has the Python environments of Muster's own kinds: it says which packages a runtime consists of, by the embedded lock
// file, and package python builds and stores it.
//
//	<data>/runtimes/envs/NAME-KEY   an environment; KEY is a hash of everything that determines it
//	<data>/runtimes/code/HASH       the modules of all runtimes, separate from the environments
package runtimes
