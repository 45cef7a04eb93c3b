package python_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
)

func files(m map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if text, ok := m[name]; ok {
			return []byte(text), nil
		}
		return nil, run.Failf(muster.Dependency, "%s: %w", name, fs.ErrNotExist)
	}
}

func TestReadFollowsIncludes(t *testing.T) {
	got, err := python.ParseSpec(&muster.Python{Version: "3.12", Packages: []string{" rich "}, Requirements: "req/all.txt"}, files(map[string]string{
		"req/all.txt":  "# comment\r\nnumpy>=2 # why\n-r base.txt\n--extra-index-url https://example.org/simple\n-c ../limits.txt\nfoo @ https://example.org/foo#sha256=1 \\\n  ; python_version > '3'\n",
		"req/base.txt": "-r all.txt\nsix\n",
		"limits.txt":   "six<2\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := python.Spec{
		Version:      "3.12",
		Requirements: []string{"rich", "numpy>=2", "six", "foo @ https://example.org/foo#sha256=1    ; python_version > '3'"},
		Constraints:  []string{"six<2"},
		Options:      []string{"--extra-index-url https://example.org/simple"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestReadOfAProject(t *testing.T) {
	for _, c := range []struct {
		version, toml, want string
	}{
		{"", "[project]\nrequires-python = \">=3.11, <3.13\"\n", ">=3.11, <3.13"},
		{"", "[project]\n  requires-python='~=3.12' # why\n", "~=3.12"},
		{"3.10", "[project]\nrequires-python = \">=3.11\"\n", "3.10"},
		{"", "[project]\n# requires-python = \"3.11\"\n", ""},
		{"", "[project]\nrequires-python = \"--help;\"\n", ""},
	} {
		got, err := python.ParseSpec(&muster.Python{Project: "a/", Version: c.version, Extras: []string{"x"}}, files(map[string]string{"a/pyproject.toml": c.toml}))
		if want := (python.Spec{Version: c.want, Source: &python.Source{Folder: "a", Extras: []string{"x"}}}); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%q: %+v %v", c.toml, got, err)
		}
	}
}

func TestReadRefusesWhatCannotBeShared(t *testing.T) {
	for text, wantMsg := range map[string]string{
		"six\n-e .":               "requirements.txt, line 2",
		"./wheels/x.whl":          "PYTHONPATH",
		"x @ file:///tmp/x":       "PYTHONPATH",
		"-r missing.txt":          "missing.txt",
		strings.Repeat("x", 5000): "too long",
	} {
		_, err := python.ParseSpec(&muster.Python{Requirements: "requirements.txt"}, files(map[string]string{"requirements.txt": text}))
		f, ok := errors.AsType[*run.TaskError](err)
		if !ok || f.Reason != muster.Dependency || !strings.Contains(f.Message, wantMsg) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	for _, pkg := range []string{"--index-url=https://example.org", ".", "six\nevil"} {
		if _, err := python.ParseSpec(&muster.Python{Packages: []string{pkg}}, files(nil)); err == nil {
			t.Errorf("%q is taken for a package", pkg)
		}
	}
}

// Whatever a requirements file says, what is read of it has no line that uv would
// take for a file of this machine, and its size is bounded.
func FuzzRead(f *testing.F) {
	f.Add("six\n-r a.txt\n", "-c a.txt\n-e .")
	f.Add("a \\\n b # c", "--requirement=a.txt")
	f.Fuzz(func(t *testing.T, a, b string) {
		w, err := python.ParseSpec(&muster.Python{Requirements: "a.txt"}, files(map[string]string{"a.txt": a, "b.txt": b}))
		if err != nil {
			return
		}
		for _, line := range append(w.Requirements, w.Constraints...) {
			if line == "" || strings.HasPrefix(line, "-") || strings.HasPrefix(line, ".") || strings.HasPrefix(line, "/") || strings.ContainsAny(line, "\n\r\x00") {
				t.Errorf("line %q", line)
			}
		}
	})
}
