// Package output reads the output and events of a task: its pipes (Pumps), which it splits into lines, and $MUSTER_EVENTS (Events). Output goes
// to the attempt's log (Log), events to a Listener.
//
// A pipe is read by one goroutine, which holds a buffer of fixed size only while it has data. Output is timestamped and appended to the log at
// once; the start of an unfinished line is appended after 200 ms, so that prompts show. A task that prints faster than it may is throttled by
// reading its pipes more slowly. The values of the task's secrets are replaced before anything else reads the output or an event: see package
// redact.
package output
