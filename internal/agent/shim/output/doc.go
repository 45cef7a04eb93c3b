// Package output reads what a task prints and says: its pipes (Pumps), which it cuts
// into lines, and $MUSTER_EVENTS (Events). Output goes to the attempt's log (Log),
// what is meant for Muster to a Listener.
//
// A pipe is read by one goroutine, which holds a buffer of fixed size only while
// something is in it. What is read is stamped and appended to the log at once; the
// beginning of a line that does not end is appended after 200 ms, so that prompts
// show. A task that prints faster than it may is slowed by reading its pipes slower.
package output
