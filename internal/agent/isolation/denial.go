package isolation

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/run"
)

// ExplainDenial returns a sentence for a task's log if a line that it printed, in which
// permission was denied, names what its sandbox keeps it from: what would help. It
// goes by the names alone, and returns "" for what is not the sandbox's doing.
func ExplainDenial(b *run.Sandbox, line string) string {
	if b == nil {
		return ""
	}
	const hint = "the worker's owner can let tasks in with "
	paths := pathsIn(line)
	for _, path := range paths {
		switch {
		case insideAny(path, b.Read) || insideAny(path, b.Write) || isSystemPath(path):
			continue
		case inside(path, "/tmp") || inside(path, "/var/tmp"):
			return "the worker's sandbox keeps tasks from " + path + ": write to $TMPDIR, which is the task's own; " + hint + "--allow-write"
		case isGPUPath(path):
			return "the worker's sandbox keeps tasks without GPUs from " + path + ": ask for them with resources.gpus"
		}
		return "the worker's sandbox keeps tasks from " + path + ": bring what is read along by files or inputs, and write to the task's own folder; " +
			hint + "--allow-read or --allow-write"
	}
	for _, path := range paths {
		if strings.HasPrefix(line, path) || insideAny(path, b.Write) {
			continue // the first word is the program that complains
		}
		if strings.Contains(path, "/site-packages") || strings.Contains(path, "/dist-packages") {
			return "the worker's sandbox lets tasks read " + path + ", not change it: name packages in python.packages instead of installing them"
		}
		return "the worker's sandbox lets tasks read " + path + " if its mode does, not change it: write to the task's own folder, $MUSTER_OUT or $TMPDIR; " + hint + "--allow-write"
	}
	return ""
}

// pathsIn returns the absolute paths in a line, as programs write them: bare, in quotes, with
// a colon after them.
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

// isPathByte reports whether what follows a byte is not the beginning of an absolute path.
func isPathByte(c byte) bool {
	return c == '/' || c == '.' || c == ':' || c == '_' || c == '-' || c == '~' || c == '*' || c == '$' || c == '}' ||
		'0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// isSystemPath reports whether path is one that tasks may read by another name, such as
// /bin where it leads into /usr. Not so of all of /etc.
func isSystemPath(path string) bool {
	return slices.ContainsFunc(systemPaths, func(dir string) bool { return dir != "/etc" && inside(path, dir) })
}

func isGPUPath(path string) bool {
	return slices.ContainsFunc(gpuDevices, func(pattern string) bool { return strings.HasPrefix(path, strings.TrimRight(pattern, "/*")) })
}
