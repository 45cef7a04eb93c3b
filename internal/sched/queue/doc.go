// Package queue holds the tasks that may be placed, and an index of the workers that they
// may be placed on. It is pure, and does not know tasks or their states: package sched adds
// Items, and Place calls it back to try them.
//
//	priority 90:  project a ─┬─ bucket (process, 2 cpus)      17.3  17.4…17.99  21.0
//	                         └─ bucket (process, 1 GPU 16GiB) 18.0
//	              project b ─── bucket (process, 2 cpus)      16.0…16.999
//	priority 50:  project a ─── …
//
// Tasks with equal priority, project and need are in one bucket, ordered by age; the
// unmaterialized elements of an array are one item. If the first item of a bucket cannot
// be placed none of it can: the bucket is parked until a worker changes to fit its Shape.
// All buckets of one project at one priority are a project queue. Place goes from the
// highest priority down; at each it always takes the project whose dominant share (of
// slots, cpus, memory or GPUs, over all priorities) is the least, and of that its oldest
// task.
//
// A Shape is a need with an index of the workers that fit it now. The index is updated on
// use, from the workers that changed since: workers that stay full or unreachable cost
// nothing.
//
// # Reservations
//
// Without reservations, a task that needs most of a worker would starve while smaller tasks
// of its priority take whatever becomes free. Example: worker a has 4 cpus, two tasks with
// 2 cpus run on it, and many more are queued. Job 7 needs 4 cpus. Whenever a small task
// ends, 2 cpus are free, another small task fits, and job 7 does not.
//
//  1. The first failed try of job 7's bucket starts its timer (blockedSince). Placing
//     something of the bucket, or emptying it, stops the timer.
//  2. After the starvation timeout the bucket starves (Queue.starving), and the next Place
//     reviews the reservations. It reserves the worker that will likely have room soonest,
//     estimated from how long its tasks have run and how long others of their shapes took:
//     here a, in freeIn.
//  3. While a is reserved, tasks of equal or lower priority are not placed on it, except
//     those that will likely end before freeAt (backfill). Tasks of a higher priority may
//     use it, if no other worker fits.
//  4. When both small tasks have ended, job 7 is placed on a, and the reservation ends. It
//     also ends when job 7 is placed elsewhere or ends, and when a can no longer run it; in
//     the last case another worker is reserved.
//  5. If nothing was placed within holdFor, the next review may serve other starving
//     buckets instead, or choose a better worker. holdFor doubles each time, so that it
//     eventually exceeds the run time of any task.
//
// A gang is one item, in a bucket of gangs of its need and size. The index of its shape
// counts how many members fit on each worker, and it is placed when all fit. A starving gang
// gets as many workers as hold all of it once they are empty.
//
// Other buckets have one reserved worker at most, and a quarter of the open workers (at
// least one, at most 64) are reserved at once: for the highest priority first, and for the
// buckets that are blocked for longest. The first bucket gets what it needs in any case, even
// if a gang needs the whole fleet. Reservations are in memory only: after a restart, the
// timers start again.
//
// Reviews run only when something changed that reservations depend on: starving buckets,
// open workers, descriptions of workers, and the age of a reservation. A review examines a
// limited number of workers and continues in the next Place.
package queue
