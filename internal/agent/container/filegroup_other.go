//go:build !unix

package container

import "io/fs"

// fileGID returns -1: the group of a file is unknown on this system.
func fileGID(fs.FileInfo) int { return -1 }
