//go:build !unix

package runtime

// owned has nothing to refuse where files have no such owner.
func owned(string) error { return nil }
