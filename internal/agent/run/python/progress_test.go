package python

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// TestStepsOfABuild checks the steps for the output of uv 0.13.
func TestStepsOfABuild(t *testing.T) {
	var mu sync.Mutex
	var steps, logged []string
	lib := t.TempDir()
	p := &progress{
		title: "runtime x", quiet: true, venv: lib, packages: "2 packages", fetched: map[string]muster.Size{},
		observer: run.Observer{
			Step:    func(s string) { mu.Lock(); steps = append(steps, s); mu.Unlock() },
			LogLine: func(s string) { logged = append(logged, s) },
		},
	}
	for _, line := range []string{
		"Using Python 3.11.2 environment at: env", "Downloading source (1.5MiB)", " Downloaded source", "Resolved 3 packages in 53ms", "Downloading nvidia-nccl-cu13 (191.6MiB)", "Downloading pillow (6.8MiB)",
		" Downloaded pillow", " Downloaded nvidia-nccl-cu13", "Prepared 3 packages in 1.03s",
	} {
		p.onLine(line)
	}
	for name, text := range map[string]string{"a.py": "", "b.py": "", "deep/c.py": "", "deep/readme.txt": "", "deep/__pycache__/c.cpython-311.pyc": ""} {
		path := filepath.Join(lib, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.onLine("Installed 3 packages in 5ms")
	p.onLine("Bytecode compiled 3 files in 9ms")
	p.ticker.stop()
	if len(logged) > 0 {
		t.Errorf("the log of a successful build is %q", logged)
	}
	for _, want := range []string{
		"runtime x: installing 3 packages", "runtime x: fetching 3 packages, ", "runtime x: compiling 1 of 3 files",
	} {
		if !slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no step is %q: %q", want, steps)
		}
	}
	if last := p.lastOutput(); !strings.HasSuffix(last, "Prepared 3 packages in 1.03s / Installed 3 packages in 5ms / Bytecode compiled 3 files in 9ms") {
		t.Errorf("its last words are %q", last)
	}
	if len(logged) != 10 || logged[2] != "uv: Resolved 3 packages in 53ms" {
		t.Errorf("the log of a failed build is %q", logged)
	}
}

// TestCompiledFilesAreCounted holds that what is there of each folder counts, and no more than it has modules.
func TestCompiledFilesAreCounted(t *testing.T) {
	dir := t.TempDir()
	put := func(name string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.py", "p/b.py", "p/c.py", "p/data.json", "p/__pycache__/stale.py"} {
		put(name)
	}
	n := newCompileCounter(dir)
	if n.total != 3 || n.compiled() != 0 {
		t.Errorf("of 3 files it knows %d, %d compiled", n.total, n.compiled())
	}
	put("p/__pycache__/b.cpython-311.pyc")
	put("p/__pycache__/c.cpython-311.pyc.140")
	if n.compiled() != 1 {
		t.Errorf("of 1 it sees %d", n.compiled())
	}
	put("p/__pycache__/c.cpython-311.pyc")
	put("p/__pycache__/b.cpython-314.pyc")
	if n.compiled() != 2 {
		t.Errorf("of 2 it sees %d", n.compiled())
	}
	put("__pycache__/a.cpython-311.pyc")
	if n.compiled() != 3 || len(n.pending) != 0 {
		t.Errorf("of 3 it sees %d, %v left", n.compiled(), n.pending)
	}
	for number, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := formatThousands(number); got != want {
			t.Errorf("%d is %s", number, got)
		}
	}
}
