//go:build !linux

package frame

// conceal does nothing: where this system shows arguments of processes is not known.
func conceal([]string) {}
