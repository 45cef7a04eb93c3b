package probe

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/lazyregexp"
)

// interpreter is a program that may be Python.
type interpreter struct {
	path      string
	source    string // what installed it, "" for the system
	isDefault bool   // found by the name that tasks use
	mayFail   bool   // a failure is expected: no note
}

var pythonName = lazyregexp.New(`^python3(\.\d+)?(\.exe)?$`)

// interpreters lists possible Pythons: on the PATH, and those of pyenv, conda and uv. Several names of one are listed once, as far as
// links reveal that. dropped is how many there are beyond the limit.
func (h *host) interpreters(data string) (found []interpreter, dropped int) {
	seen := map[string]bool{}
	add := func(source, path string) {
		key := h.interpreterKey(path)
		if key == "" || seen[key] || !h.reachable(path) {
			return
		}
		seen[key] = true
		if len(found) == maxPythons {
			dropped++
			return
		}
		found = append(found, interpreter{path: path, source: source})
	}
	name := "python3"
	if h.os == "windows" {
		name = "python"
	}
	if path := h.taskProgram(name); path != "" {
		add(h.installerOf(path), path)
		for i := range found {
			// On Windows the name may open a store, and on macOS offer an installation.
			found[i].isDefault, found[i].mayFail = true, h.os != "linux"
		}
	}
	for _, dir := range filepath.SplitList(h.env("PATH")) {
		if !filepath.IsAbs(dir) || filepath.Base(dir) == "shims" { // those of pyenv run interpreters that are listed below
			continue
		}
		for _, name := range readDirNames(dir) {
			if pythonName.Get().MatchString(name) {
				add(h.installerOf(filepath.Join(dir, name)), filepath.Join(dir, name))
			}
		}
	}
	for _, src := range h.pythonSources(data) {
		for _, dir := range src.dirs {
			add(src.source, pythonPath(dir, h.os))
		}
	}
	return found, dropped
}

// taskProgram returns the program that tasks find on the PATH by a name, "" if there is none.
func (h *host) taskProgram(name string) string {
	path := lookPath(name)
	if path == "" || h.reachable(path) {
		return path
	}
	for _, dir := range filepath.SplitList(h.env("PATH")) {
		if path := filepath.Join(dir, name); filepath.IsAbs(dir) && h.interpreterKey(path) != "" && h.reachable(path) {
			return path
		}
	}
	return ""
}

// reachable reports whether tasks can reach a program and the target of its links.
func (h *host) reachable(path string) bool {
	if h.canReach == nil {
		return true
	}
	target, err := filepath.EvalSymlinks(path)
	return err == nil && h.canReach(filepath.Dir(path)) && h.canReach(filepath.Dir(target))
}

// interpreterKey returns a key that is the same for all names of an interpreter, or "" if path is not a program. A venv has a key of
// its own, though its program is a link.
func (h *host) interpreterKey(path string) string {
	if path == "" {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil || info.IsDir() || h.os != "windows" && info.Mode()&0o111 == 0 {
		return ""
	}
	if dir := filepath.Dir(path); !modTime(filepath.Join(filepath.Dir(dir), "pyvenv.cfg")).IsZero() {
		return dir
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return target
}

// installerOf returns the tool that installed an interpreter, by its path.
func (h *host) installerOf(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	path = filepath.ToSlash(path)
	switch {
	case strings.Contains(path, "/.pyenv/"):
		return "pyenv"
	case strings.Contains(path, "/uv/python/"):
		return "uv"
	case strings.Contains(path, "conda") || strings.Contains(path, "/miniforge") || strings.Contains(path, "/mambaforge"):
		return "conda"
	default:
		return ""
	}
}

// pythonSource is the interpreters of one tool, each in a directory of its own.
type pythonSource struct {
	source string
	dirs   []string
}

func (h *host) pythonSources(data string) []pythonSource {
	roots := h.pythonRoots(data)
	var pyenv, uv []string
	for _, root := range roots.pyenv {
		pyenv = append(pyenv, childPaths(filepath.Join(root, "versions"))...)
	}
	for _, root := range roots.uv {
		uv = append(uv, childPaths(root)...)
	}
	conda := nonEmpty(h.env("CONDA_PREFIX"))
	for _, root := range roots.conda {
		conda = append(append(conda, root), childPaths(filepath.Join(root, "envs"))...)
	}
	return []pythonSource{{"venv", nonEmpty(h.env("VIRTUAL_ENV"))}, {"pyenv", pyenv}, {"uv", uv}, {"conda", conda}}
}

// pythonRoots are the directories of tools that install interpreters.
type pythonRoots struct{ pyenv, uv, conda []string }

func (h *host) pythonRoots(data string) pythonRoots {
	r := pythonRoots{
		pyenv: nonEmpty(h.env("PYENV_ROOT"), under(h.home, ".pyenv")),
		uv: nonEmpty(
			h.env("UV_PYTHON_INSTALL_DIR"), under(h.env("XDG_DATA_HOME"), "uv", "python"),
			under(data, "tools", "python"), // installed by the worker's uv
			under(h.home, ".local", "share", "uv", "python"),
		),
		conda: nonEmpty(h.env("MAMBA_ROOT_PREFIX"), under(h.env("CONDA_EXE"), "..", ".."), "/opt/conda", "/opt/miniconda3", "/opt/anaconda3"),
	}
	for _, name := range []string{"miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"} {
		r.conda = append(r.conda, nonEmpty(under(h.home, name))...)
	}
	if h.os == "windows" {
		r.uv = append(r.uv, nonEmpty(under(h.env("APPDATA"), "uv", "python"))...)
	}
	return r
}

// under returns a path below root, "" if that is "".
func under(root string, parts ...string) string {
	if root == "" {
		return ""
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

func nonEmpty(paths ...string) []string {
	return slices.DeleteFunc(paths, func(p string) bool { return p == "" })
}

// pythonPath returns the path of the interpreter in its directory.
func pythonPath(dir, os string) string {
	if os == "windows" {
		return filepath.Join(dir, "python.exe")
	}
	return filepath.Join(dir, "bin", "python3")
}

func readDirNames(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // those before an error
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func childPaths(dir string) []string {
	all := readDirNames(dir)
	for i := range all {
		all[i] = filepath.Join(dir, all[i])
	}
	return all
}
