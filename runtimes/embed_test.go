package runtimes_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// system is the interpreter of Debian's packages; another one with that name may be earlier in the PATH.
const system = "/usr/bin/python3"

// TestPython runs the tests that work with the packages of a distribution; make test-ml runs those that need the runtimes.
func TestPython(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped: it loads big libraries")
	}
	for name, modules := range map[string][]string{
		"core":  {"pytest"},
		"torch": {"pytest", "torch", "sklearn", "pandas", "matplotlib", "PIL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := exec.CommandContext(t.Context(), system, append([]string{"-I", "-c", "import importlib.util, sys\nsys.exit(' '.join(m for m in sys.argv[1:] if not importlib.util.find_spec(m)) or 0)"}, modules...)...)
			if out, err := have.CombinedOutput(); err != nil {
				t.Skipf("skipped: %s does not have %s (%v): scripts/need torch installs what Debian has", system, bytes.TrimSpace(out), err)
			}
			path := []string{absolute(t, "../sdk/python")}
			for _, dir := range []string{"core", "torch"} {
				path = append(path, absolute(t, filepath.Join("python", dir)))
			}
			cmd := exec.CommandContext(t.Context(), system, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", filepath.Join("python", name, "tests"))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.Join(path, string(os.PathListSeparator)), "OMP_NUM_THREADS=2")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}
