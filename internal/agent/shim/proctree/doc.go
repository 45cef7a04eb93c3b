// Package proctree tracks the processes of tasks: their main processes, the other processes that belong to an attempt, how to end them, and how a
// main process ended. The documentation of package shim has the rules.
package proctree
