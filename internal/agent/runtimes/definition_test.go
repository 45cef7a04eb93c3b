package runtimes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEmbeddedRuntimes holds that each runtime that comes with Muster can be made: what it needs is in its lock,
// every package in one version for each case, with the hashes of its files.
func TestEmbeddedRuntimes(t *testing.T) {
	r, err := New(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	names := r.Names()
	if !slices.Contains(names, "torch") {
		t.Fatalf("there are %q", names)
	}
	line := regexp.MustCompile(`^[a-z0-9.-]+==[a-zA-Z0-9.+!]+( ; [^-]*(?:[^-]|-[^-])*?)?( --hash=sha256:[0-9a-f]{64})+$`)
	for _, name := range names {
		d, err := r.definition(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var locked []string
		for _, l := range d.lock {
			if !line.MatchString(l) {
				t.Errorf("%s: the line %.120q of its lock is not as scripts/lock writes it", name, l)
			}
			locked = append(locked, requirementName(l))
		}
		for _, need := range d.needs {
			if !slices.Contains(locked, requirementName(need)) {
				t.Errorf("%s: its lock has no %s: run scripts/lock", name, need)
			}
		}
	}
}

// TestBuildsOfPyTorch holds that its own index is asked for what fits this machine, with everything else as it is locked.
func TestBuildsOfPyTorch(t *testing.T) {
	d := &definition{name: "x", python: ">=3.11", needs: []string{"torch>=2"}, lock: []string{
		"numpy==2.4.6 ; python_full_version < '3.12' --hash=sha256:aa --hash=sha256:bb", "nvidia-cublas==13 --hash=sha256:cc", "cuda-bindings==13",
		"torch==2.15.0 --hash=sha256:dd", "triton==3.9.0 --hash=sha256:ee",
	}}
	if w := d.pythonSpec("", "/wheels"); !slices.Equal(w.Requirements, d.lock) || w.Constraints != nil || w.Wheels != "/wheels" || !w.Prebuilt {
		t.Errorf("from the package index it is made of %+v", w)
	}
	w := d.pythonSpec("auto", "")
	if !slices.Equal(w.Requirements, d.needs) || !slices.Equal(w.Constraints, []string{d.lock[0], "torch==2.15.0"}) || w.TorchBackend != "auto" {
		t.Errorf("from PyTorch's index it is made of %+v", w)
	}
	if (&definition{needs: []string{"vllm>=0.20"}}).usesTorch() || !d.usesTorch() {
		t.Error("the index is asked for the wrong ones")
	}
}

// TestWhetherAnIndexAnswers checks that an unreachable index is not a failure, and that the wait for it is short.
func TestWhetherAnIndexAnswers(t *testing.T) {
	for status, want := range map[int]bool{200: true, 403: true, 503: false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		if err := checkReachable(t.Context(), s.URL); (err == nil) != want {
			t.Errorf("with status %d: %v", status, err)
		}
		s.Close()
	}
	const away = "http://127.0.0.1:1/"
	if checkReachable(t.Context(), away) == nil {
		t.Error("one that is away answers")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if checkReachable(ctx, away) == nil {
		t.Error("a cancelled check succeeds")
	}
}

func TestVersionsWithinBounds(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("skipped: this machine has no python3")
	}
	for _, c := range []struct {
		version, bounds string
		want            bool
	}{
		{"3.11.2", ">=3.11", true},
		{"3.9.18", ">=3.11", false},
		{"1.13.0a0+gitunknown", ">=1.13", true}, // Debian's
		{"2.15.0+cpu", ">=2.4,<3", true},
		{"3.0", ">=2.4,<3", false},
		{"1.24.2", ">=1.24", true},
		{"1.2.1", "==1.2.1", true},
		{"1.2.1", "!=1.2.1", false},
		{"1.2.1", "> 1.2, <= 1.2.1", true},
		{"1.4.5", "~=1.4.2", true},
		{"1.5", "~=1.4.2", false},
		{"10.0", ">9", true},
		{"2", "==2.0.0", true},
		{"1", "", true},
	} {
		cmd := exec.CommandContext(t.Context(), "python3", "-I", "-c", "import sys\nscript = {}\nexec(sys.argv[1], script)\nprint(script['satisfies'](*sys.argv[2:]))", inspectScript, c.version, c.bounds)
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)) == "True"; err != nil || got != c.want {
			t.Errorf("%s within %q is %s (%v)", c.version, c.bounds, out, err)
		}
	}
}

func TestProjectFiles(t *testing.T) {
	python, needs, err := parseProject("[project]\nrequires-python = \">=3.11\"\ndependencies = [\n    \"a>=1\",\n    \"b\",\n]\n\n[tool.x]\ndependencies = []\n")
	if err != nil || python != ">=3.11" || strings.Join(needs, " ") != "a>=1 b" {
		t.Errorf("%q %q %v", python, needs, err)
	}
	for _, text := range []string{"", "[project]\nrequires-python = \">=3.11\"\n", "[project]\ndependencies = []\n", "[project]\nrequires-python = \"3\"\ndependencies = [\n\"a\",\n"} {
		if _, _, err := parseProject(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
