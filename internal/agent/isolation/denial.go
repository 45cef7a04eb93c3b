package isolation

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/run"
)

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
