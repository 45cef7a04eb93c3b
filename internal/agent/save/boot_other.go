//go:build !linux

package save

// bootID would tell one start of the machine from another: not here.
func bootID() string { return "" }
