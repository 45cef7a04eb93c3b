//go:build !unix

package runtimes

import (
	"io/fs"
	"os"
)

// lockFile has no meaning where environments are not made, which uv does for Unix here.
func lockFile(*os.File, bool) error { return nil }

func inode(info fs.FileInfo) (id [2]uint64, blocks int64) { return id, info.Size() }
