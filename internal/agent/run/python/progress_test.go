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

// TestStepsOfABuild are made of what uv says; the words are those of uv 0.13.
func TestStepsOfABuild(t *testing.T) {
	var mu sync.Mutex
	var steps, said []string
	lib := t.TempDir()
	p := &progress{
		title: "runtime x", quiet: true, env: lib, packages: "2 packages", fetched: map[string]muster.Size{},
		watch: run.Watch{
			Step: func(s string) { mu.Lock(); steps = append(steps, s); mu.Unlock() },
			Say:  func(s string) { said = append(said, s) },
		},
	}
	for _, line := range []string{
		"Using Python 3.11.2 environment at: env", "Downloading source (1.5MiB)", " Downloaded source", "Resolved 3 packages in 53ms", "Downloading nvidia-nccl-cu13 (191.6MiB)", "Downloading pillow (6.8MiB)",
		" Downloaded pillow", " Downloaded nvidia-nccl-cu13", "Prepared 3 packages in 1.03s",
	} {
		p.line(line)
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
	p.line("Installed 3 packages in 5ms")
	p.line("Bytecode compiled 3 files in 9ms")
	p.telling.end()
	if len(said) > 0 {
		t.Errorf("the log of a build that goes well says %q", said)
	}
	for _, want := range []string{
		"runtime x: installing 3 packages", "runtime x: fetching 3 packages, ", "runtime x: compiling 1 of 3 files",
	} {
		if !slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no step is %q: %q", want, steps)
		}
	}
	if last := p.failed(); !strings.HasSuffix(last, "Prepared 3 packages in 1.03s / Installed 3 packages in 5ms / Bytecode compiled 3 files in 9ms") {
		t.Errorf("its last words are %q", last)
	}
	if len(said) != 10 || said[2] != "uv: Resolved 3 packages in 53ms" {
		t.Errorf("the log of one that fails says %q", said)
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
	n := newCount(dir)
	if n.all != 3 || n.done() != 0 {
		t.Errorf("of 3 files it knows %d, %d compiled", n.all, n.done())
	}
	put("p/__pycache__/b.cpython-311.pyc")
	put("p/__pycache__/c.cpython-311.pyc.140")
	if n.done() != 1 {
		t.Errorf("of 1 it sees %d", n.done())
	}
	put("p/__pycache__/c.cpython-311.pyc")
	put("p/__pycache__/b.cpython-314.pyc")
	if n.done() != 2 {
		t.Errorf("of 2 it sees %d", n.done())
	}
	put("__pycache__/a.cpython-311.pyc")
	if n.done() != 3 || len(n.left) != 0 {
		t.Errorf("of 3 it sees %d, %v left", n.done(), n.left)
	}
	for number, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(number); got != want {
			t.Errorf("%d is %s", number, got)
		}
	}
}
