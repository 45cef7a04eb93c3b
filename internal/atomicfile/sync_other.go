//go:build !unix

package atomicfile

// SyncDir does nothing: these systems cannot sync a directory, and their file systems keep names.
func SyncDir(string) error { return nil }
