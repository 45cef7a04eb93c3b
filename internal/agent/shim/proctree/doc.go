// Package kin knows the processes of tasks: which main process and which of all others
// belong to an attempt, how they are ended, and how a main process ended. Package shim
// tells how they are told apart.
package proctree
