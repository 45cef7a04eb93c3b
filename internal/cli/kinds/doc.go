// Package kinds has the commands about kinds of tasks.
package kinds
