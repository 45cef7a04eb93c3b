package probe

import (
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// host is the sources of facts: the file system and the environment of this process.
type host struct {
	fs   fs.FS // of /; its paths have no leading slash
	env  func(name string) string
	home string // of this user, "" if unknown
	os   string // as runtime.GOOS

	canReach func(dir string) bool // see Config
	engine   string                // see Config

	toolTimeout time.Duration // of one query of a tool: some hang with their daemon or driver
}

func thisHost() *host {
	home, _ := os.UserHomeDir()
	return &host{fs: os.DirFS("/"), env: os.Getenv, home: home, os: runtime.GOOS, toolTimeout: tool.Timeout}
}

// maxFile is how much of a file is read at most.
const maxFile = 4 << 20

// readText returns the content of a file without surrounding white space, "" if it cannot be read.
func (h *host) readText(name string) string {
	f, err := h.fs.Open(strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // it was only read
	return strings.TrimSpace(string(readLimited(f, maxFile)))
}

func (h *host) readInt(name string) (int64, bool) {
	n, err := strconv.ParseInt(h.readText(name), 10, 64)
	return n, err == nil
}

// readDir returns the sorted names in a directory, nil if it cannot be read.
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

func (h *host) exists(name string) bool {
	_, err := fs.Stat(h.fs, strings.TrimPrefix(path.Clean(name), "/"))
	return err == nil
}
