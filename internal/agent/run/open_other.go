//go:build !unix

package run

const (
	openFlags = 0
	noWait    = 0
)
