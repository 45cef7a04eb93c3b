// Package kinds runs tasks of defined kinds, those that come with Muster and those of the worker's owner, as
// processes or in containers: see internal/kind.
package kinds
