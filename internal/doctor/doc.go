// Package doctor checks one machine, as a client of a server and as a worker, and reports problems and how to fix them.
//
// Each check is a function that returns findings. All run concurrently, each with a time limit, and their findings are reported in a fixed
// order. A check changes nothing except one file that it writes into the data dir and removes, and sends only queries: to the server,
// to the container engines of this machine, to its tools.
//
// A finding may have a repair. Repairs are safe: they affect only what belongs to Muster, lose nothing that a worker would keep, and need no
// confirmation. Before they remove something they verify that it is unused, under the lock that a worker with the same data dir
// needs to start. All other fixes are reported as commands.
package doctor
