//go:build !unix

package blob

// syncFolder does nothing where folders cannot be synced: the file system keeps names.
func syncFolder(string) error { return nil }
