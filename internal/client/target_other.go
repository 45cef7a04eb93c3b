//go:build !unix

package client

import "io/fs"

const nonBlock = 0

// isPrivate reports whether a file is regular. It has no owner and no number of names here.
func isPrivate(info fs.FileInfo) bool { return info.Mode().IsRegular() }
