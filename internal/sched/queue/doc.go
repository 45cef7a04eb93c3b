// Package queue holds the tasks that may be placed, and an index of the workers
// that they may be placed on. It is pure, and knows neither tasks nor their
// states: package sched puts Items in, and is asked to try them.
//
//	priority 90:  project a ─┬─ lane (process, 2 cpus)      17.3  17.4…17.99  21.0
//	                         └─ lane (process, 1 GPU 16GiB) 18.0
//	              project b ─── lane (process, 2 cpus)      16.0…16.999
//	priority 50:  project a ─── …
//
// Tasks with equal priority, project and need stand in one lane, by age; the rest
// of an array stands there as one item. If the
// first of a lane cannot be placed none of it can: the lane is parked until a
// worker changes to fit its Shape. All lanes of one project at one priority are a
// line. A Place goes through the priorities from the highest; at each it
// always takes the project whose dominant share (of slots, cpus, memory or GPUs, over
// all priorities) is the least, and of that its oldest task.
//
// A Shape is a need together with an index of the workers that fit it now. The
// index is brought up to date when it is asked, by looking at those workers only
// that changed since: workers that stay full or away cost nothing.
//
// # Reservations
//
// A task that asks for most of a worker would wait for ever while smaller ones of
// its priority take whatever becomes free. So when nothing of a lane could be
// placed for the patience of the queue, though a worker that takes tasks could run its first
// task if it were empty, one worker is kept free for that task: the one that will
// likely have room soonest, by what its tasks have run already and by what others
// of their shapes took. It is given nothing new of equal or lower priority, except
// what will likely have ended well before that (backfill), until the task is
// placed, there or elsewhere, or ends, or the worker can no longer run it; in the
// last case another one is kept free. When nothing came of it for long, it is the
// turn of others that starve, or of a better worker; the next turn is longer.
//
// A gang stands in the queue as one item, in a lane of gangs of its need and size.
// The index of its shape counts for how many members each worker has room, and it is
// placed when there is enough for all. For one that starves as many workers are
// kept free as take all of it once they are empty.
//
// A lane has one such worker at most, but for gangs, and a quarter of the open
// workers (one at least, 64 at most) are kept free at once: for lanes of the highest
// priority first, and of these for those that wait for longest. The first of all gets
// what it needs in any case, be it a gang that needs the whole fleet. A reservation is a hint, kept in memory
// only: after a restart, patience begins anew.
//
// A lane from which nothing could be placed for the queue's patience starves. For
// those that starve for longest, of the highest priority first, the queue keeps
// workers free. In the index such a worker stands apart: only the lane that it is
// kept for and lanes of a higher priority may have it, and they take any other
// first. A lane's clock starts with the first try in vain, and stops when
// something of it is placed, or it is empty. Once a lane starves, the
// reservations are reviewed at the next Place, and then only when something
// changed that they depend on: who starves, who is open, what workers are, and
// the age of a reservation. A review looks at a bounded number of workers and
// goes on in the next Place.
package queue
