//go:build !unix

package container

import "io/fs"

// fileGID is the group that a file belongs to, -1 if unknown.
func fileGID(fs.FileInfo) int { return -1 }
