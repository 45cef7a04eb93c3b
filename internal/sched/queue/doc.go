// Package queue holds the tasks that may be placed, and an index of the workers
// that they may be placed on. It is pure, and knows neither tasks nor their
// states: package sched puts Items in, and is asked to try them.
//
// Tasks with equal priority, project and need stand in one lane, by age. If the
// first of a lane cannot be placed none of it can: the lane is parked until a
// worker changes to fit its Shape. All lanes of one project at one priority are
// a line.
//
// A Shape is a need together with an index of the workers that fit it now. The
// index is brought up to date when it is asked, by looking at those workers only
// that changed since: workers that stay full or away cost nothing.
package queue
