//go:build !linux

package checkpoint

// bootID returns "": it is unknown on this system.
func bootID() string { return "" }
