// Package vessel is what a shim holds of a task that runs in a container: it
// starts it, reads its output, stops it, and tells how it ended, whatever becomes
// of the connection with the engine in between.
package vessel
