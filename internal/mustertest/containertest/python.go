package containertest

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/testkit"
)

// PythonImage is ShellImage with the Python of this machine in /usr/bin/python3, and the shared libraries of it and of programs, which are
// paths on this machine. Without a Debian-like /usr/bin/python3 the test skips.
func PythonImage(tb testing.TB, programs ...string) ImageSpec {
	tb.Helper()
	b := ShellImage(tb)
	python, err := filepath.EvalSymlinks("/usr/bin/python3")
	if err != nil {
		tb.Skip("no /usr/bin/python3 for images: scripts/need python3 installs it")
	}
	lib := filepath.Join("/usr/lib", filepath.Base(python))
	b.Files[python] = python
	b.Links["/usr/bin/python3"] = filepath.Base(python)
	if err := filepath.WalkDir(lib, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			tb.Skip("no " + lib + " for images: scripts/need python3 installs it")
		case d.IsDir() && slices.Contains([]string{"__pycache__", "test", "idlelib", "lib2to3", "pydoc_data", "dist-packages"}, d.Name()), d.IsDir() && strings.HasPrefix(d.Name(), "config-"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			b.Files[path] = path
		}
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	for _, program := range append(programs, python) {
		out, err := exec.CommandContext(tb.Context(), "ldd", program).Output()
		testkit.NoError(tb, err)
		for field := range strings.FieldsSeq(string(out)) { // such as libm.so.6 => /lib/libm.so.6 (0x7f…)
			if filepath.IsAbs(field) {
				b.Files[field] = field
			}
		}
	}
	return b
}
