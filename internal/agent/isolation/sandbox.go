package isolation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/run"
)

// systemPaths lists what programs need of a system to run.
var systemPaths = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys",
	"/nix/store", "/gnu/store", "/snap", "/home/linuxbrew/.linuxbrew",
	"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/nscd", "/run/opengl-driver", // targets of links in /etc, and libraries
	"/var/lib/ca-certificates", "/var/cache/fontconfig",
}

// commonDevices lists the devices that any program may use.
var commonDevices = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm",
}

// gpuDevices are patterns of the devices that only tasks with GPUs may use.
var gpuDevices = []string{
	"/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dri", "/dev/kfd", "/dev/dxg", "/dev/accel", "/dev/infiniband",
}

// etcPatterns lists what tasks that run as root see of /etc: what libraries and languages read. Modes do not protect the rest
// from root, and each rule costs a few microseconds per start.
var etcPatterns = []string{
	"alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "environment", "fonts",
	"gai.conf", "gitconfig", "glvnd", "group", "host.conf", "hostname", "hosts", "java*", "ld.so.c*", "locale.alias",
	"localtime", "machine-id", "magic", "matplotlibrc", "mime.types", "npmrc", "nsswitch.conf", "nvidia*", "OpenCL", "os-release", "passwd", "perl",
	"pip.conf", "pki/ca-trust", "pki/java", "pki/tls/cert*", "pki/tls/openssl.cnf", "profile", "protocols", "python*", "R", "redhat-release",
	"resolv.conf", "rocm*", "services", "ssl/cert*", "ssl/openssl.cnf", "terminfo", "timezone", "vulkan",
}

// paths are the parts that all sandboxes have in common.
type paths struct{ read, write, list []string }

// newPaths returns what tasks of a worker may access. path is the worker's own PATH, on which tasks find their programs
// too. asRoot means that tasks run as root, for whom modes are no limit.
func newPaths(data, path, home string, asRoot bool, read, write []string) *paths {
	data, home = ResolvePath(data), ResolvePath(home)
	p := &paths{list: []string{"/dev"}}
	for _, dir := range systemPaths {
		if dir == "/etc" && asRoot {
			p.list = append(p.list, dir)
			for _, pattern := range etcPatterns {
				p.read = append(p.read, glob(filepath.Join(dir, pattern))...)
			}
		} else if exists(dir) {
			p.read = append(p.read, dir)
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) && !inside(home, ResolvePath(dir)) { // a home on the PATH stays closed
			p.read = append(p.read, installDirs(filepath.Clean(dir), home)...)
		}
	}
	p.read = excludePath(outermost(p.read), data)
	if !inside(home, "/usr") { // as the home of some system users is
		p.read = excludePath(p.read, home)
	}
	p.read = slices.Concat(p.read, read, []string{filepath.Join(data, "sdk")})
	p.write = slices.Concat(slices.DeleteFunc(slices.Clone(commonDevices), func(dev string) bool { return !exists(dev) }), write)
	return p
}

// ResolvePath returns the target of a path, or the target that it would have if it existed.
func ResolvePath(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(ResolvePath(dir), filepath.Base(path))
	}
	return path
}

// excludePath replaces the folders that contain excluded by everything else in them.
func excludePath(dirs []string, excluded string) []string {
	var list []string
	for _, dir := range dirs {
		if !inside(excluded, dir) {
			list = append(list, dir)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil || dir == excluded {
			continue
		}
		var inner []string
		for _, e := range entries {
			inner = append(inner, filepath.Join(dir, e.Name()))
		}
		list = append(list, excludePath(inner, excluded)...)
	}
	return list
}

func (p *paths) sandbox(f run.Folders, gpus bool) *run.Sandbox {
	s := &run.Sandbox{Read: p.read, Write: slices.Clone(p.write), List: p.list}
	for _, dir := range []string{f.Base, f.Checkpoint} {
		if dir != "" {
			s.Write = append(s.Write, dir)
		}
	}
	if f.Runtime != "" {
		s.Read = append(slices.Clip(s.Read), f.Runtime)
		if prefix := interpreterPrefix(f.Runtime); prefix != "" {
			s.Read = append(s.Read, prefix)
		}
	}
	s.Read, s.Write = append(slices.Clip(s.Read), f.Read...), append(s.Write, f.Write...)
	if gpus {
		for _, pattern := range gpuDevices {
			s.Write = append(s.Write, glob(pattern)...)
		}
	}
	return s
}

// glob lists the files that match a valid pattern.
func glob(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

// installDirs returns what must be readable so that the programs in a folder of the PATH run: the folder, its installation, and
// the targets of links in it.
func installDirs(dir, home string) []string {
	list := []string{dir}
	if prefix := installPrefix(dir); prefix != "" && prefix != home {
		if filepath.Base(prefix) == ".local" {
			list = append(list, filepath.Join(prefix, "lib")) // the rest is the owner's data
		} else {
			list = append(list, prefix)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || insideAny(dir, systemPaths) {
		return list
	}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		target, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil || insideAny(target, list) || insideAny(target, systemPaths) {
			continue
		}
		if prefix := installPrefix(filepath.Dir(target)); prefix != "" && prefix != home {
			list = append(list, prefix)
		} else {
			list = append(list, target)
		}
	}
	return list
}

// installPrefix returns the folder of the installation with the programs in dir, if it looks like one: it has a lib beside its bin,
// or shims like pyenv's.
func installPrefix(dir string) string {
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

// interpreterPrefix returns the Python installation of an environment.
func interpreterPrefix(env string) string {
	target, err := filepath.EvalSymlinks(filepath.Join(env, "bin", "python"))
	if err != nil || inside(target, env) || insideAny(target, systemPaths) {
		return ""
	}
	return installPrefix(filepath.Dir(target))
}

func exists(path string) bool {
	_, err := os.Stat(path) //nolint:gosec // the worker's PATH is its owner's
	return err == nil
}

// inside reports whether path is dir or in it.
func inside(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func insideAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return inside(path, dir) })
}

// outermost drops paths that are in others, such as /bin where it is a link into /usr, and duplicates: rules apply to files,
// whatever their name.
func outermost(dirs []string) []string {
	var list []string
	for _, dir := range dirs {
		target, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue // tasks cannot reach it either
		}
		if insideAny(target, list) {
			continue
		}
		list = append(slices.DeleteFunc(list, func(d string) bool { return inside(d, target) }), target)
	}
	return list
}

// ExplainDenial returns a hint for a task's log if a line that it printed about a denied permission names a path to which the
// sandbox denies access. It decides by the paths in the line alone, and returns "" if the sandbox is not the cause.
func ExplainDenial(b *run.Sandbox, line string) string {
	if b == nil {
		return ""
	}
	const hint = "the worker's owner can give tasks access with "
	paths := pathsIn(line)
	for _, path := range paths {
		switch {
		case insideAny(path, b.Read) || insideAny(path, b.Write) || isSystemPath(path):
			continue
		case inside(path, "/tmp") || inside(path, "/var/tmp"):
			return "the worker's sandbox denies tasks access to " + path + ": write to $TMPDIR, which is the task's own; " + hint + "--allow-write"
		case isGPUPath(path):
			return "the worker's sandbox denies tasks without GPUs access to " + path + ": request GPUs with resources.gpus"
		}
		return "the worker's sandbox denies tasks access to " + path + ": bring files along with files or inputs, and write to the task's own folder; " +
			hint + "--allow-read or --allow-write"
	}
	for _, path := range paths {
		if strings.HasPrefix(line, path) || insideAny(path, b.Write) {
			continue // a path at the beginning is the program that reports the error
		}
		if strings.Contains(path, "/site-packages") || strings.Contains(path, "/dist-packages") {
			return "the worker's sandbox makes " + path + " read-only for tasks: name packages in python.packages instead of installing them"
		}
		return "the worker's sandbox makes " + path + " read-only for tasks, or its mode denies access: write to the task's own folder, $MUSTER_OUT or $TMPDIR; " + hint + "--allow-write"
	}
	return ""
}

// pathsIn returns the absolute paths in a line as programs write them: plain, in quotes, or followed by a colon.
func pathsIn(line string) []string {
	var list []string
	for at := 0; at < len(line); {
		i := strings.IndexByte(line[at:], '/')
		if i < 0 {
			break
		}
		at += i
		rest := line[at:]
		if end := strings.IndexAny(rest, " \t\r\n'\"`’»)],;"); end >= 0 {
			rest = rest[:end]
		}
		if at == 0 || !isPathByte(line[at-1]) {
			if path := strings.TrimRight(rest, ":."); len(path) > 1 && !strings.HasPrefix(path, "//") {
				list = append(list, path)
			}
		}
		at += len(rest)
	}
	return list
}

// isPathByte reports whether a slash after this byte does not begin an absolute path.
func isPathByte(c byte) bool {
	return c == '/' || c == '.' || c == ':' || c == '_' || c == '-' || c == '~' || c == '*' || c == '$' || c == '}' ||
		'0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// isSystemPath reports whether tasks may read path, perhaps by another name such as /bin for /usr/bin. /etc is not included:
// tasks may not read all of it.
func isSystemPath(path string) bool {
	return slices.ContainsFunc(systemPaths, func(dir string) bool { return dir != "/etc" && inside(path, dir) })
}

func isGPUPath(path string) bool {
	return slices.ContainsFunc(gpuDevices, func(pattern string) bool { return strings.HasPrefix(path, strings.TrimRight(pattern, "/*")) })
}
