// Package doctor looks at one machine, as a client of a server and as a worker, and says
// what is wrong with it and how to mend that.
//
// Each check is a function that looks and tells findings; all run at the same time, each with
// a time limit, and what they found is told in a fixed order. A check changes nothing
// but one file that it writes into the data dir and removes, and sends nothing but
// questions: to the server, to the container engines of this machine, to its tools.
//
// A finding may come with a mend. Mends are safe: they touch only what is Muster's
// own, lose nothing that a worker would keep, and need nobody to be asked. What is
// removed is proven dead first, under the lock that a worker of the same data dir
// would need to start. Whatever else has to be done is told as a command.
package doctor
