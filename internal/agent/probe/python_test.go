package probe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

func TestTorchBuild(t *testing.T) {
	for _, tc := range []struct{ file, version, want string }{
		{"version-2.4-cuda.py", "2.4.0", "cuda 12.1"}, // the version of PyPI wheels has no suffix
		{"version-1.8-cuda.py", "1.8.1", "cuda 10.2"},
		{"version-rocm.py", "2.5.1+rocm6.2", "rocm 6.2"},
		{"version-xpu.py", "2.6.0+xpu", "xpu"},
		{"version-cpu.py", "2.4.0+cpu", "cpu"},
		{"", "2.1.0+cu118", "cuda 11.8"},
		{"", "2.3.0+rocm6.0", "rocm 6.0"},
		{"", "2.7.0+cu128", "cuda 12.8"},
		{"", "2.4.0+cpu", "cpu"},
		{"", "2.6.0+xpu", "xpu"},
		{"", "2.4.0", ""}, // unknown
		{"", "2.4.0a0+git1234", ""},
		{"", "2.4.0+cu", ""},
	} {
		text := ""
		if tc.file != "" {
			text = recorded(t, "python/"+tc.file)
		}
		if got := torchBuild(text, tc.version); got != tc.want {
			t.Errorf("%s %s: %q, want %q", tc.file, tc.version, got, tc.want)
		}
	}
}

// TestDescribe asks the real interpreters of this machine about packages that are
// put before them.
func TestDescribe(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on the PATH")
	}
	venv := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Skipf("cannot create a venv: %v: %s", err, out)
	}
	sites, err := filepath.Glob(filepath.Join(venv, "lib", "python3*", "site-packages"))
	if err != nil || len(sites) != 1 {
		t.Fatalf("site-packages: %q, %v", sites, err)
	}
	site := sites[0]
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(site, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	imported := filepath.Join(t.TempDir(), "imported")
	write("torch-2.4.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0\n")
	write("torch/__init__.py", "open("+`"`+imported+`"`+", 'w')\n")
	write("torch/version.py", recorded(t, "python/version-2.4-cuda.py"))
	write("scikit_learn-1.5.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: scikit-learn\nVersion: 1.5.1\n")
	write("broken-1.dist-info/METADATA", "\x00\xff")

	h := fakeHost(nil)
	h.env = func(name string) string { return map[string]string{"VIRTUAL_ENV": venv}[name] }
	var p pythonCache
	h.toolTimeout = time.Minute // all of them are to answer, also where all is slow
	find := func() *Python {
		t.Helper()
		found, notes := p.discover(t.Context(), h, "")
		i := slices.IndexFunc(found, func(o Python) bool { return strings.HasPrefix(o.Path, venv) })
		if i < 0 {
			t.Fatalf("the venv is not among %+v; notes %q", found, notes)
		}
		if !found[0].Default || slices.ContainsFunc(found[1:], func(o Python) bool { return o.Default }) {
			t.Errorf("the first one is the default, and no other: %+v", found)
		}
		return &found[i]
	}
	one := find()
	if d := cmp.Diff(map[string]string{"torch": "2.4.0", "scikit-learn": "1.5.1"}, one.Packages); d != "" {
		t.Error(d)
	}
	if one.Torch != "cuda 12.1" || one.Source != "venv" || !pythonVersion.Get().MatchString(one.Version) {
		t.Errorf("%+v", one)
	}
	if _, err := os.Stat(imported); err == nil {
		t.Error("torch was imported")
	}
	write("vllm-0.5.4.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.5.4\n")
	if one = find(); one.Packages["vllm"] != "0.5.4" {
		t.Errorf("a package that was installed since is not seen: %q", one.Packages)
	}
}

// TestSlowInterpreterKeepsItsReport checks that an interpreter that does not answer in time keeps its last report, also the default one.
func TestSlowInterpreterKeepsItsReport(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the interpreter is a shell script")
	}
	path := filepath.Join(t.TempDir(), "python3")
	program := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	program(`echo '{"version": "3.12.1"}'`)
	h := fakeHost(nil)
	h.toolTimeout = 10 * time.Second
	var p pythonCache
	c := interpreter{path: path, isDefault: true}
	if r, err := p.query(t.Context(), h, c); err != nil || r.Version != "3.12.1" {
		t.Fatalf("%+v, %v", r, err)
	}
	program("exec sleep 60")
	h.toolTimeout = 50 * time.Millisecond
	if r, err := p.query(t.Context(), h, c); err != nil || r.Version != "3.12.1" {
		t.Errorf("an interpreter that is slow: %+v, %v", r, err)
	}
	if _, err := new(pythonCache).query(t.Context(), h, c); !errors.Is(err, tool.ErrTimeout) || !strings.Contains(err.Error(), "did not answer within 200ms and was killed") {
		t.Errorf("one that never answered: %v", err)
	}
	program("exit 1")
	if _, err := p.query(t.Context(), h, c); err == nil {
		t.Error("one that fails keeps its report")
	}
}

func TestInterpreters(t *testing.T) {
	home := t.TempDir()
	program := func(parts ...string) string {
		path := filepath.Join(append([]string{home}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	usual := program("bin", "python3.11")
	if err := os.Symlink(usual, filepath.Join(home, "bin", "python3")); err != nil {
		t.Skip("no symbolic links here")
	}
	program("bin", "python3.11-config")
	program("bin", "python2.7")
	program("bin", "python3-pip")
	program("shims", "python3.9") // pyenv's
	pyenv := program(".pyenv", "versions", "3.12.1", "bin", "python3")
	uv := program(".local", "share", "uv", "python", "cpython-3.13.0-linux-x86_64-gnu", "bin", "python3")
	conda := program("miniconda3", "envs", "train", "bin", "python3")
	own := program("data", "tools", "python", "cpython-3.10", "bin", "python3")
	t.Setenv("PATH", filepath.Join(home, "bin")+":"+filepath.Join(home, "shims"))
	h := &host{env: os.Getenv, home: home, os: "linux", fs: os.DirFS("/")}
	t.Setenv("PYENV_ROOT", "")
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_EXE", "MAMBA_ROOT_PREFIX", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"} {
		t.Setenv(name, "")
	}
	found, dropped := h.interpreters(filepath.Join(home, "data"))
	var got []string
	for _, c := range found {
		if path, ok := strings.CutPrefix(c.path, home); ok { // and not /opt/conda, where there is one
			got = append(got, c.source+" "+path)
		}
	}
	want := []string{" /bin/python3"}
	for of, path := range map[string]string{"pyenv": pyenv, "uv": uv, "conda": conda} {
		want = append(want, of+" "+strings.TrimPrefix(path, home))
	}
	want = append(want, "uv "+strings.TrimPrefix(own, home))
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" || dropped != 0 || !found[0].isDefault {
		t.Errorf("%d dropped, %+v: %s", dropped, found[0], d)
	}

	// Tasks come to conda's only, so that it is theirs by the usual name if the PATH leads there.
	theirs := filepath.Dir(conda)
	t.Setenv("PATH", os.Getenv("PATH")+":"+theirs)
	h.canReach = func(dir string) bool { return dir == theirs }
	if found, _ = h.interpreters(filepath.Join(home, "data")); len(found) != 1 || found[0].path != conda || !found[0].isDefault {
		t.Errorf("if tasks can reach only %s: got %+v", theirs, found)
	}
}

func TestSelfReported(t *testing.T) {
	for _, tc := range []struct{ out, version, bad string }{
		{`{"version": "3.11.7", "executable": "/usr/bin/python3"}`, "3.11.7", ""},
		{"Welcome!\n\n" + `{"version": "3.8.18"}` + "\n", "3.8.18", ""},
		{"", "", "does not answer like Python 3"},
		{"Python was not found; run without arguments to install from the Microsoft Store", "", "does not answer like Python 3"},
		{`{"version": "2.7.18"}`, "", `the version "2.7.18"`},
		{`{"version": "3.11.7; rm -rf"}`, "", "the version"},
	} {
		report, err := parseReport([]byte(tc.out))
		if report.Version != tc.version || (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%q: %+v, %v", tc.out, report, err)
		}
	}
}

// FuzzPython checks that the report of an interpreter leads only to valid tags that may be
// tags, and to a build of torch of a known sort.
func FuzzPython(f *testing.F) {
	f.Add([]byte(`{"version": "3.11.7", "packages": {"torch": "2.4.0+cu121", "vllm": "0.5.4"}}`), "cuda = '12.1'")
	f.Add([]byte(`{"version": "3.9.1", "packages": {"torch": "x", "jax": ":"}}`), recorded(f, "python/version-rocm.py"))
	f.Fuzz(func(t *testing.T, out []byte, version string) {
		report, err := parseReport(out)
		if err != nil {
			return
		}
		report.TorchVersion = version
		one := describePython(interpreter{path: "/x", isDefault: true}, report)
		if kind, _, _ := strings.Cut(one.Torch, " "); !slices.Contains([]string{"", "cpu", "cuda", "rocm", "xpu"}, kind) {
			t.Errorf("torch %q", one.Torch)
		}
		for _, tag := range tags(&Facts{Python: []Python{one}}) {
			if !validTag(tag) {
				t.Errorf("tag %q", tag)
			}
		}
	})
}
