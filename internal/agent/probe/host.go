package probe

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// host is the machine as the facts are read from it: its file system and the
// environment of this process.
type host struct {
	fs   fs.FS // from the root; its paths have no leading slash
	env  func(name string) string
	home string // of this user, "" if unknown
	os   string // as runtime.GOOS

	canReach func(dir string) bool // Config.Reach
	engine   string                // Config.Engine
}

func thisHost() *host {
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	return &host{fs: os.DirFS("/"), env: os.Getenv, home: home, os: runtime.GOOS}
}

// maxFile bounds what is read of one file.
const maxFile = 4 << 20

// readText returns what a file below the root holds, without white space around it,
// or "" if it cannot be read.
func (h *host) readText(name string) string {
	f, err := h.fs.Open(strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // it was only read
	return strings.TrimSpace(string(readLimited(f, maxFile)))
}

// readInt returns the whole number in a file.
func (h *host) readInt(name string) (int64, bool) {
	n, err := strconv.ParseInt(h.readText(name), 10, 64)
	return n, err == nil
}

// readDir returns the names in a folder, sorted, or none.
func (h *host) readDir(name string) []string {
	entries, err := fs.ReadDir(h.fs, strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// exists says whether there is something at a path.
func (h *host) exists(name string) bool {
	_, err := fs.Stat(h.fs, strings.TrimPrefix(path.Clean(name), "/"))
	return err == nil
}

// firstLine returns the first line that says something.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(line)
}
