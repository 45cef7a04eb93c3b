//go:build !unix

package tool

// Denied says whether a file is there and closed: there are no device files here.
func Denied(string) bool { return false }
