package python_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
)

// recordingObserver records the calls of a run.Observer.
type recordingObserver struct {
	mu    sync.Mutex
	steps []string
	lines []string
}

func (h *recordingObserver) observer() run.Observer {
	return run.Observer{
		Step:    func(s string) { h.mu.Lock(); h.steps = append(h.steps, s); h.mu.Unlock() },
		LogLine: func(s string) { h.mu.Lock(); h.lines = append(h.lines, s); h.mu.Unlock() },
	}
}

func (h *recordingObserver) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.steps, "\n") + "\n" + strings.Join(h.lines, "\n")
}

func newEnvs(t *testing.T) (*python.Envs, string) {
	t.Helper()
	dir := t.TempDir()
	return python.New(&run.Deps{Dir: dir, Log: slog.New(slog.DiscardHandler)}), dir
}

// needIndex skips the test if packages cannot be fetched here.
func needIndex(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("skipped: this machine has no python3")
	}
	index := os.Getenv("PIP_INDEX_URL")
	if index == "" {
		index = "https://pypi.org/simple"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(index, "/")+"/six/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Skipf("skipped: no package index can be reached: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Skipf("skipped: the package index answers %s", resp.Status)
	}
}

func get(t *testing.T, e *python.Envs, w python.Spec, h *recordingObserver) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir, err := e.GetSpec(ctx, w, h.observer())
	if err != nil {
		t.Fatalf("%v\n%s", err, h.all())
	}
	return dir
}

func TestEnvironmentIsBuiltOnceAndSharedAndMended(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: it downloads packages")
	}
	needIndex(t)
	e, dir := newEnvs(t)
	want := python.Spec{Requirements: []string{"six==1.17.0"}}
	observers := []*recordingObserver{{}, {}, {}}
	var dirs [3]string
	var wg sync.WaitGroup
	for i, h := range observers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			d, err := e.GetSpec(ctx, want, h.observer())
			if err != nil {
				t.Errorf("%v\n%s", err, h.all())
			}
			dirs[i] = d
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if dirs[0] != dirs[1] || dirs[1] != dirs[2] {
		t.Errorf("three places for one thing: %v", dirs)
	}
	built := 0
	for _, h := range observers {
		built += strings.Count(h.all(), "python environment: 1 package, ")
	}
	if built != 1 {
		t.Errorf("it was built %d times", built)
	}
	works := func() {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(dirs[0], "bin", "python"), "-c", "import six, sys; print(six.__version__, sys.prefix != sys.base_prefix)")
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "1.17.0 True" {
			t.Errorf("%v %s", err, out)
		}
	}
	works()
	entries, err := os.ReadDir(filepath.Join(dir, "envs"))
	if err != nil || len(entries) != 1 {
		t.Errorf("builds are left: %v %v", entries, err)
	}

	// A damaged environment is rebuilt from uv's cache.
	if err := os.RemoveAll(filepath.Join(dirs[0], "bin")); err != nil {
		t.Fatal(err)
	}
	h := &recordingObserver{}
	if again := get(t, e, want, h); again != dirs[0] || !strings.Contains(h.all(), "rebuilding") {
		t.Errorf("%s: %s", again, h.all())
	}
	works()

	// An environment with a missing file, or one truncated also in uv's cache, is rebuilt too.
	six := filepath.Join(dirs[0], "lib", pythonFolder(t, dirs[0]), "site-packages", "six.py")
	untilRebuilt(t, e, want, "six.py of six 1.17.0 is missing", func() error { return os.Remove(six) })
	works()
	untilRebuilt(t, e, want, "the cached packages are also damaged", func() error { return os.Truncate(six, 10) })
	works()

	// A build that fails returns uv's message and leaves nothing.
	h = &recordingObserver{}
	_, err = e.GetSpec(t.Context(), python.Spec{Requirements: []string{"six==0.0.0.1"}}, h.observer())
	f, ok := errors.AsType[*run.TaskError](err)
	if !ok || f.Reason != muster.Dependency || !strings.Contains(f.Message, "six==0.0.0.1") {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "envs")); err != nil || len(entries) != 1 {
		t.Errorf("a failed build is left: %v %v", entries, err)
	}

	// A stopped task's build stops.
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := &run.Stopped{Outcome: muster.AttemptCancelled}
	cancel(stopped)
	if _, err := e.GetSpec(ctx, python.Spec{Requirements: []string{"attrs"}}, (&recordingObserver{}).observer()); err == nil {
		t.Error("a stopped build succeeds")
	}
}

// pythonFolder is the name of the folder below lib that has the packages.
func pythonFolder(t *testing.T, env string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(env, "lib", "python*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	return filepath.Base(found[0])
}

// untilRebuilt damages an environment, and uses it until the damage is found: it is not looked for each time.
func untilRebuilt(t *testing.T, e *python.Envs, w python.Spec, found string, damage func() error) {
	t.Helper()
	if err := damage(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		h := &recordingObserver{}
		get(t, e, w, h)
		if strings.Contains(h.all(), "rebuilding") {
			if !strings.Contains(h.all(), found) {
				t.Errorf("%q is not in %s", found, h.all())
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the damage %q is not found", found)
		}
	}
}

func TestMissingUVSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("MUSTER_UV", "")
	e, _ := newEnvs(t)
	_, err := e.GetSpec(t.Context(), python.Spec{}, (&recordingObserver{}).observer())
	f, ok := errors.AsType[*run.TaskError](err)
	if !ok || f.Reason != muster.Dependency || !strings.Contains(f.Message, "install uv on the worker") {
		t.Errorf("%v", err)
	}
	t.Setenv("MUSTER_UV", "/no/such/uv")
	_, err = e.GetSpec(t.Context(), python.Spec{}, (&recordingObserver{}).observer())
	if f, ok = errors.AsType[*run.TaskError](err); !ok || f.Reason != muster.Dependency || !strings.Contains(f.Message, "/no/such/uv") {
		t.Errorf("%v", err)
	}
}
