package app

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// Build is what the binary knows of its making.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // made from files that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version is set by the linker for releases.
var version string

// CurrentBuild says which build this is.
func CurrentBuild() Build {
	b := Build{Version: cmp.Or(version, "devel"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; version == "" && v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
