package workerd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/modelpool"
	"github.com/muster-dev/muster/internal/agent/run"
)

// taskPath returns the PATH of tasks if their user cannot reach all directories of the worker's PATH, else "".
func taskPath(canReach func(dir string) bool) string {
	if canReach == nil {
		return ""
	}
	dirs := filepath.SplitList(os.Getenv("PATH"))
	return strings.Join(slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) || !canReach(dir) }), string(filepath.ListSeparator))
}

// sweep removes the isolation of attempts from before a restart, except of recovered attempts and model servers.
func sweep(l *isolation.Isolator, recovered []run.Recovered, orphans []modelpool.Orphan) error {
	var keep []*run.IsolationSpec
	for i := range recovered {
		if c := recovered[i].Start.Isolation; c != nil {
			keep = append(keep, c)
		}
	}
	for i := range orphans {
		if c := orphans[i].Isolation; c != nil {
			keep = append(keep, c)
		}
	}
	return l.Sweep(keep...)
}

// exposedPaths lists paths outside the data dir to which the worker may give tasks, or the builder of their packages, access.
func (c *Config) exposedPaths() []string {
	list := []string{c.AI.Kinds, c.Wheels}
	for _, name := range []string{c.Python, os.Getenv("MUSTER_UV"), "uv"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			list = append(list, installDirs(path)...)
		}
	}
	for _, name := range []string{"UV_FIND_LINKS", "PIP_FIND_LINKS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "UV_PYTHON_INSTALL_DIR"} {
		list = append(list, strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return slices.DeleteFunc(list, func(path string) bool { return !filepath.IsAbs(path) })
}

// installDirs returns the directories of a program's installation, by its own path and by the target of its links.
func installDirs(path string) []string {
	var list []string
	home, _ := os.UserHomeDir() // "" if unknown
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	for _, name := range []string{path, isolation.ResolvePath(path)} {
		dir := filepath.Dir(name)
		list = append(list, dir)
		switch prefix := filepath.Dir(dir); {
		case filepath.Base(dir) != "bin":
		case filepath.Base(prefix) == ".local":
			list = append(list, filepath.Join(prefix, "lib")) // the rest is the owner's data
		case prefix != home:
			list = append(list, prefix)
		}
	}
	return list
}
