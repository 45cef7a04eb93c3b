// Package web embeds the built dashboard. Its sources are in this folder. `make build` builds them into dist/ if Node.js is
// available; otherwise dist/ has no index.html.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Dist returns the files of the built dashboard. Without a build it has no index.html.
func Dist() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("web: " + err.Error()) // fs.Sub fails only for an invalid path
	}
	return files
}
