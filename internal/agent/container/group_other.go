//go:build !unix

package container

import "io/fs"

// groupOf is the group that a file belongs to, -1 if unknown.
func groupOf(fs.FileInfo) int { return -1 }
