//go:build !linux

package process

// diskSpace does not know here.
func diskSpace(string) (free, total int64, ok bool) { return 0, 0, false }
