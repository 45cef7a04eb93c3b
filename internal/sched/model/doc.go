// Package model is what the scheduler remembers: the jobs that are not final with their
// groups and tasks, and the workers, wired to each other. It is pure.
//
//	Job ──► Group ◄──► Group         needs, readers
//	          │  rest: the elements without a row of their own
//	          ▼
//	        Task ◄──► Worker         held
//
// Each of them is a row as it is committed, together with what does not outlive the
// process: its place in the queue, its timer, whether its row is yet to be taken (Dirty).
// Package sched alone sets the fields, and moves tasks from state to state. What is
// here looks at them and says what follows: when something is due, what a retry tries
// again, what is broken. Only four methods change anything: Adopt and Single put a task
// into its group, Resolve notes what a stage takes from those before it, and Ran what is
// known of the tasks of a shape.
package model
