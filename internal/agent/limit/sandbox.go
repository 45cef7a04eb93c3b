package limit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/run"
)

// system lists what programs need of a machine to run at all.
var system = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys",
	"/nix/store", "/gnu/store", "/snap", "/home/linuxbrew/.linuxbrew",
	"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/nscd", "/run/opengl-driver", // where links in /etc lead, and libraries
	"/var/lib/ca-certificates", "/var/cache/fontconfig",
}

// devices lists those that any program may use.
var devices = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm",
}

// gpuDevices are patterns of those that only tasks with GPUs may use.
var gpuDevices = []string{
	"/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dri", "/dev/kfd", "/dev/dxg", "/dev/accel", "/dev/infiniband",
}

// secrets lists what is kept in /etc for the superuser alone.
var secrets = []string{"shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "krb5.keytab", "ssl", "ssh", "security"}

// paths are what every sandbox has, found once.
type paths struct {
	read, write, list []string
	data              string
}

// newPaths finds what tasks of a worker may see. path is the worker's own PATH: what
// it finds its programs in, tasks find them in, too. super says that tasks run as
// root, for whom the modes of files are no limit.
func newPaths(data, path, home string, super bool, read, write []string) *paths {
	p := &paths{data: data, list: []string{"/dev"}}
	for _, dir := range system {
		if dir == "/etc" && super {
			p.read = append(p.read, openToAll(dir)...)
			p.list = append(p.list, dir)
		} else if exists(dir) {
			p.read = append(p.read, dir)
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) {
			p.read = append(p.read, installation(filepath.Clean(dir), home)...)
		}
	}
	p.read = slices.DeleteFunc(p.read, func(dir string) bool { return inside(home, dir) })
	p.read = around(p.read, data)
	p.read = append(p.read, read...)
	p.read = append(p.read, filepath.Join(data, "sdk"))
	p.write = slices.Concat(slices.DeleteFunc(slices.Clone(devices), func(dev string) bool { return !exists(dev) }), write)
	p.read = outermost(p.read)
	return p
}

// around replaces the folders in which hidden lies by all else that is in them.
func around(dirs []string, hidden string) []string {
	var list []string
	for _, dir := range dirs {
		if !inside(hidden, dir) {
			list = append(list, dir)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil || dir == hidden {
			continue
		}
		var inner []string
		for _, e := range entries {
			inner = append(inner, filepath.Join(dir, e.Name()))
		}
		list = append(list, around(inner, hidden)...)
	}
	return list
}

// sandbox returns that of an attempt.
func (p *paths) sandbox(f run.Folders, gpus bool) *run.Sandbox {
	s := &run.Sandbox{Read: p.read, Write: slices.Clone(p.write), List: p.list}
	for _, dir := range []string{f.Base, f.Checkpoint} {
		if dir != "" {
			s.Write = append(s.Write, dir)
		}
	}
	if f.Runtime != "" {
		s.Read = append(slices.Clip(s.Read), f.Runtime)
		if prefix := interpreter(f.Runtime); prefix != "" {
			s.Read = append(s.Read, prefix)
		}
	}
	if gpus {
		for _, pattern := range gpuDevices {
			found, _ := filepath.Glob(pattern) // the patterns are right
			s.Write = append(s.Write, found...)
		}
	}
	return s
}

// openToAll lists what in a folder all users may read, and what is known to be of
// that kind: links, and folders.
func openToAll(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o004 == 0 {
			continue
		}
		if slices.Contains(secrets, e.Name()) {
			if info.IsDir() {
				list = append(list, openToAll(path)...)
			}
			continue
		}
		list = append(list, path)
	}
	return list
}

// installation returns what has to be readable so that the programs in a folder
// of the PATH run: the folder, what it was installed with, and where links in it lead.
func installation(dir, home string) []string {
	list := []string{dir}
	if prefix := prefixOf(dir); prefix != "" && prefix != home {
		if filepath.Base(prefix) == ".local" {
			list = append(list, filepath.Join(prefix, "lib")) // beside it are the owner's data
		} else {
			list = append(list, prefix)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || within(dir, system) {
		return list
	}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		target, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil || within(target, list) || within(target, system) {
			continue
		}
		if prefix := prefixOf(filepath.Dir(target)); prefix != "" && prefix != home {
			list = append(list, prefix)
		} else {
			list = append(list, target)
		}
	}
	return list
}

// prefixOf returns the folder into which the programs in dir were installed, if it
// has the marks of one: its bin, beside a lib; or the shims of pyenv and its like.
func prefixOf(dir string) string {
	prefix := filepath.Dir(dir)
	switch filepath.Base(dir) {
	case "bin", "sbin":
		if exists(filepath.Join(prefix, "lib")) && prefix != "/" {
			return prefix
		}
	case "shims":
		if exists(filepath.Join(prefix, "versions")) || exists(filepath.Join(prefix, "installs")) {
			return prefix
		}
	}
	return ""
}

// interpreter returns the installation that a Python environment was made of.
func interpreter(env string) string {
	target, err := filepath.EvalSymlinks(filepath.Join(env, "bin", "python"))
	if err != nil || inside(target, env) || within(target, system) {
		return ""
	}
	return prefixOf(filepath.Dir(target))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// inside reports whether path is dir or lies in it.
func inside(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func within(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return inside(path, dir) })
}

// outermost drops the folders that lie in others, and those named twice. It keeps links,
// which may lead elsewhere.
func outermost(dirs []string) []string {
	var list []string
	for _, dir := range dirs {
		if slices.Contains(list, dir) {
			continue
		}
		if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir || !slices.ContainsFunc(dirs, func(d string) bool { return d != dir && inside(dir, d) }) {
			list = append(list, dir)
		}
	}
	return list
}
