//go:build !unix

package process

import "os"

const openFlags = 0

// removeFolder removes an empty folder.
func removeFolder(path string) error { return os.Remove(path) }
