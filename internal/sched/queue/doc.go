// Package queue holds the tasks that may be placed, and an index of the workers
// that they may be placed on. It is pure, and knows neither tasks nor their
// states: package sched puts Items in, and is asked to try them.
//
// Tasks with equal priority, project and need stand in one lane, by age. If the
// first of a lane cannot be placed none of it can: the lane is parked until a
// worker changes to fit its Shape. All lanes of one project at one priority are a
// line.
//
// A Shape is a need together with an index of the workers that fit it now. The
// index is brought up to date when it is asked, by looking at those workers only
// that changed since: workers that stay full or away cost nothing.
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
