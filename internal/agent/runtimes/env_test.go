//go:build unix

package runtimes_test

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/internal/agent/runtimes"
)

var discardObserver = run.Observer{Step: func(string) {}, LogLine: func(string) {}}

// fetched is the folder of the fetched uv, "" before the fetch.
var fetched string

func TestMain(m *testing.M) {
	code := m.Run()
	if fetched != "" {
		_ = os.RemoveAll(fetched) // it is in the folder for such things
	}
	os.Exit(code)
}

// uv is found or fetched once for all tests, as a worker does.
var uv = sync.OnceValues(func() (path string, err error) {
	if path, err = exec.LookPath(cmp.Or(os.Getenv("MUSTER_UV"), "uv")); err == nil {
		return path, nil
	}
	if fetched, err = os.MkdirTemp("", "uv-for-tests"); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// An environment without packages fetches only uv.
	_, err = python.New(&run.Deps{Dir: fetched, Log: slog.New(slog.DiscardHandler)}).GetSpec(ctx, python.Spec{}, discardObserver)
	return filepath.Join(fetched, "tools", "uv", "bin", "uv"), err
})

// testEnv is a data dir, a folder of wheels and a runtime, tiny, that needs one of them.
type testEnv struct {
	t      *testing.T
	files  fstest.MapFS
	data   string
	wheels string
	uv     string
	log    strings.Builder
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: it makes environments")
	}
	path, err := uv()
	if err != nil {
		t.Skipf("skipped: uv is not available: %v", err)
	}
	t.Setenv("UV_CACHE_DIR", "") // one that others share would keep what is freed
	w := &testEnv{t: t, data: t.TempDir(), wheels: t.TempDir(), uv: path, files: fstest.MapFS{}}
	w.wheel("nugget", "1.5")
	w.define("tiny", "nugget")
	w.files["python/core/muster_core/__init__.py"] = &fstest.MapFile{Data: []byte("core = 1\n")}
	return w
}

// define adds a runtime with these packages, and wheels of their version 1.5.
func (w *testEnv) define(name string, packages ...string) {
	w.t.Helper()
	var project, lock strings.Builder
	project.WriteString("[project]\nname = \"x\"\nrequires-python = \">=3.11\"\ndependencies = [\n")
	for _, pkg := range packages {
		fmt.Fprintf(&project, "    \"%s>=1\",\n", pkg)
		fmt.Fprintf(&lock, "%s==1.5", pkg)
		if b, err := os.ReadFile(filepath.Join(w.wheels, pkg+"-1.5-py3-none-any.whl")); err == nil {
			fmt.Fprintf(&lock, " \\\n    --hash=sha256:%x", sha256.Sum256(b))
		}
		lock.WriteString("\n")
	}
	project.WriteString("]\n")
	dir := "python/" + name + "/"
	w.files[dir+"pyproject.toml"] = &fstest.MapFile{Data: []byte(project.String())}
	w.files[dir+"requirements.lock"] = &fstest.MapFile{Data: []byte(lock.String())}
	w.files[dir+"muster_"+name+"/__init__.py"] = &fstest.MapFile{Data: []byte("import muster_core\n")}
}

// wheel makes a package with one module of half a MiB.
func (w *testEnv) wheel(name, version string) {
	w.t.Helper()
	info := name + "-" + version + ".dist-info/"
	noise := sha256.Sum256([]byte(name))
	module := "version = \"" + version + "\"\n# " + strings.Repeat(hex.EncodeToString(noise[:]), 8192) + "\n"
	files := [][2]string{
		{name + "/__init__.py", module},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	var record strings.Builder
	for _, f := range files {
		fmt.Fprintf(&record, "%s,,%d\n", f[0], len(f[1]))
	}
	files = append(files, [2]string{info + "RECORD", record.String() + info + "RECORD,,\n"})
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		out, err := z.Create(f[0])
		if err == nil {
			_, err = out.Write([]byte(f[1]))
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.wheels, name+"-"+version+"-py3-none-any.whl"), b.Bytes(), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// open returns the Runtimes of a new incarnation of the worker.
func (w *testEnv) open(change ...func(*runtimes.Config)) *runtimes.Runtimes {
	w.t.Helper()
	cfg := runtimes.Config{Dir: w.data, Wheels: w.wheels, UV: w.uv, Files: w.files, Log: slog.New(slog.NewTextHandler(&w.log, nil))}
	for _, f := range change {
		f(&cfg)
	}
	r, err := runtimes.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// recordingObserver records the calls of a run.Observer.
type recordingObserver struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *recordingObserver) observer() run.Observer {
	add := func(s string) { h.mu.Lock(); h.text.WriteString(s + "\n"); h.mu.Unlock() }
	return run.Observer{Step: add, LogLine: add}
}

func (h *recordingObserver) String() string { h.mu.Lock(); defer h.mu.Unlock(); return h.text.String() }

// get returns a runtime, which must succeed, and the log.
func (w *testEnv) get(r *runtimes.Runtimes, name string) (*run.Runtime, string) {
	w.t.Helper()
	h := &recordingObserver{}
	rt, err := r.Get(w.t.Context(), name, h.observer())
	if err != nil {
		w.t.Fatalf("%v\n%s", err, h)
	}
	return rt, h.String()
}

// state is that of one runtime.
func (w *testEnv) state(r *runtimes.Runtimes, name string) runtimes.Entry {
	w.t.Helper()
	list, err := r.List(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return list[0]
}

// wantMissing fails the test unless err is a TaskError for a missing dependency with these words.
func wantMissing(t *testing.T, err error, parts ...string) {
	t.Helper()
	f, ok := errors.AsType[*run.TaskError](err)
	if !ok || f.Reason != muster.Dependency {
		t.Fatalf("it ended with %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(f.Message, part) {
			t.Errorf("%q is not in %q", part, f.Message)
		}
	}
}

// unfinished lists what is left of builds and removals.
func (w *testEnv) unfinished() []string {
	w.t.Helper()
	leftovers, err := filepath.Glob(filepath.Join(w.data, "runtimes", "envs", ".*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return leftovers
}
