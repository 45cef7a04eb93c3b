// Package runtimes makes, checks and removes the Python runtimes of a worker.
package runtimes
