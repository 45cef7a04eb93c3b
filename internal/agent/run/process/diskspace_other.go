//go:build !linux

package process

// diskSpace returns ok=false: it is not implemented on this system.
func diskSpace(string) (free, total int64, ok bool) { return 0, 0, false }
