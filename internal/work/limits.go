package work

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/warm"
)

// limits makes what holds tasks. all is the memory that they have together.
func (w *Worker) limits(all muster.Size) (*limit.Limits, error) {
	cfg := w.cfg.Limits
	cfg.Memory, cfg.Log = all, w.log
	return limit.New(cfg)
}

// tasksPath returns the PATH of tasks if their user does not come to all of the
// worker's, and else "".
func tasksPath(reach func(dir string) bool) string {
	if reach == nil {
		return ""
	}
	dirs := filepath.SplitList(os.Getenv("PATH"))
	return strings.Join(slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) || !reach(dir) }), string(filepath.ListSeparator))
}

// sweep ends what attempts of earlier lives left, but for those that are held and for hosts of models.
func sweep(l *limit.Limits, held []run.Held, hosts []warm.Leftover) error {
	var keep []*run.Confine
	for i := range held {
		if c := held[i].Start.Confine; c != nil {
			keep = append(keep, c)
		}
	}
	for i := range hosts {
		if c := hosts[i].Confine; c != nil {
			keep = append(keep, c)
		}
	}
	return l.Sweep(keep...)
}

// lent lists what the worker may lend to tasks, or to what builds packages for them, that may lie outside its data dir.
func (c *Config) lent() []string {
	list := []string{c.AI.Kinds, c.Wheels}
	for _, name := range []string{c.Python, os.Getenv("MUSTER_UV"), "uv"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			list = append(list, installation(path)...)
		}
	}
	for _, name := range []string{"UV_FIND_LINKS", "PIP_FIND_LINKS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "UV_PYTHON_INSTALL_DIR"} {
		list = append(list, strings.FieldsFunc(os.Getenv(name), func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return slices.DeleteFunc(list, func(path string) bool { return !filepath.IsAbs(path) })
}

// installation returns the folders into which a program was installed, by its own name and by that of the file that it leads to.
func installation(path string) []string {
	var list []string
	home, _ := os.UserHomeDir() // none is none's
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	for _, name := range []string{path, resolved(path)} {
		dir := filepath.Dir(name)
		list = append(list, dir)
		switch prefix := filepath.Dir(dir); {
		case filepath.Base(dir) != "bin":
		case filepath.Base(prefix) == ".local":
			list = append(list, filepath.Join(prefix, "lib")) // beside it are the owner's data
		case prefix != home:
			list = append(list, prefix)
		}
	}
	return list
}

func resolved(path string) string {
	if end, err := filepath.EvalSymlinks(path); err == nil {
		return end
	}
	return path
}
