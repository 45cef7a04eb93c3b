//go:build !unix

package runtime

// checkOwner has nothing to refuse where files have no such owner.
func checkOwner(string) error { return nil }
