package doctor

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

const isLinux = runtime.GOOS == "linux"

func TestMissingDataDir(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	found := runChecks(t, cfg, "data", "write", "secrets")
	wantFinding(t, found, "data", Note, "mkdir")
	wantNoFinding(t, found, "write")
	if _, err := os.Stat(cfg.Data); err == nil {
		t.Error("the check has made it")
	}
	if err := os.Mkdir(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	found = runChecks(t, cfg, "data", "write")
	wantFinding(t, found, "data", OK)
	wantFinding(t, found, "write", OK)
	entries, err := os.ReadDir(cfg.Data)
	if err != nil || len(entries) > 0 {
		t.Errorf("it is not empty: %v %v", entries, err)
	}
	cfg.Data = filepath.Join(cfg.Data, "file", "worker")
	writeFile(t, filepath.Dir(filepath.Dir(cfg.Data)), "file", "")
	wantFinding(t, runChecks(t, cfg, "data"), "data", Problem, "is not a directory")
}

// TestDataDirInProcFails checks that a directory that cannot be created is a problem, whatever the permissions.
func TestDataDirInProcFails(t *testing.T) {
	if !isLinux {
		t.Skip("skipped: /proc is Linux's")
	}
	t.Parallel()
	cfg := testConfig(t)
	cfg.Data = "/proc/muster"
	found := runChecks(t, cfg, "data", "write", "filesystem")
	wantFinding(t, found, "data", Problem, "cannot be created", "--data")
	wantFinding(t, found, "filesystem", Problem, "proc")
}

func TestOpenSecrets(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Server.Data = t.TempDir()
	writeFile(t, cfg.Data, "identity.json", "{}")
	writeFile(t, cfg.Data, "shim/1/key", "secret")
	writeFile(t, cfg.Server.Data, "muster.db", "")
	wantFinding(t, runChecks(t, cfg, "secrets"), "secrets", OK, "3 files")
	loose := []string{filepath.Join(cfg.Data, "identity.json"), filepath.Join(cfg.Data, "shim", "1", "key"), filepath.Join(cfg.Server.Data, "muster.db")}
	for _, path := range loose {
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(cfg.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	found := runChecks(t, cfg, "data", "secrets")
	wantFinding(t, found, "data", Warning, "chmod")
	wantFinding(t, found, "secrets", Problem, loose...)
	if err := os.Chmod(cfg.Data, 0o711); err != nil { // the user of tasks may have to pass through
		t.Fatal(err)
	}
	wantFinding(t, runChecks(t, cfg, "data"), "data", OK)
}

// exitedPid is a process that has ended, as a shim notes itself.
func exitedPid(t *testing.T) run.Pid {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	return run.Pid{PID: cmd.Process.Pid, BootID: proctree.BootID(), StartTicks: 1}
}

func pidFile(t *testing.T, p run.Pid) string {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLeftovers(t *testing.T) {
	if !isLinux {
		t.Skip("skipped: tasks end with the worker on this system")
	}
	t.Parallel()
	cfg := testConfig(t)
	writeFile(t, cfg.Data, "shim/1/pid", pidFile(t, exitedPid(t)))
	writeFile(t, cfg.Data, "tasks/17.3-1/work/half.bin", "x")
	writeFile(t, cfg.Data, "tasks/.spare/process-1/work/none", "") // which the next worker uses or removes
	writeFile(t, cfg.Data, "cache/kept", "x")
	found := runChecks(t, cfg, "running", "leftovers", "groups")
	wantFinding(t, found, "running", Note)
	wantFinding(t, found, "shims", Note, "start the worker")
	wantFinding(t, found, "task-folders", Warning, "1 folder of tasks", "start the worker")
	for _, path := range []string{"shim/1", "tasks/17.3-1", "tasks/.spare/process-1", "cache/kept"} {
		if _, err := os.Stat(filepath.Join(cfg.Data, path)); err != nil {
			t.Errorf("a check has changed it: %v", err)
		}
	}
}

func TestLivingIsNotLeftOver(t *testing.T) {
	if !isLinux {
		t.Skip("skipped: tasks end with the worker on this system")
	}
	t.Parallel()
	names := []string{"running", "leftovers", "groups"}

	// A running shim, simulated by this process.
	cfg := testConfig(t)
	writeFile(t, cfg.Data, "shim/1/pid", pidFile(t, proctree.New(discardLog).Self()))
	writeFile(t, cfg.Data, "tasks/17.3-1/work/half.bin", "x")
	found := runChecks(t, cfg, names...)
	wantFinding(t, found, "running", Warning, strconv.Itoa(os.Getpid()), "start the worker")
	wantNoFinding(t, found, "shims")
	wantNoFinding(t, found, "task-folders")

	// A running worker: this process holds its lock.
	cfg = testConfig(t)
	writeFile(t, cfg.Data, "shim/1/pid", pidFile(t, exitedPid(t)))
	writeFile(t, cfg.Data, "tasks/17.3-1/work/half.bin", "x")
	store, err := agent.OpenReportStore(cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	found = runChecks(t, cfg, names...)
	wantFinding(t, found, "running", OK, "process "+strconv.Itoa(os.Getpid()))
	wantNoFinding(t, found, "task-folders")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, runChecks(t, cfg, names...), "task-folders", Warning)
}

func TestLeftoverControlGroups(t *testing.T) {
	if len(isolation.Describe(isolation.Config{}).Controllers) == 0 {
		t.Skip("skipped: no control groups can be made here")
	}
	t.Parallel()
	cfg := testConfig(t)
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := isolation.New(isolation.Config{Data: cfg.Data, Log: discardLog})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	found := runChecks(t, cfg, "groups")
	f := wantFinding(t, found, "groups", Warning, "muster-")
	_, list, _ := strings.Cut(f.Found, ": ")
	group, _, _ := strings.Cut(list, ", ")
	if err := os.Mkdir(filepath.Join(group, "17.3-1"), 0o700); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if err := os.WriteFile(filepath.Join(group, "17.3-1", "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, runChecks(t, cfg, "groups"), "groups", Warning, "1 processes", "kills them")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	wantFinding(t, runChecks(t, cfg, "groups"), "groups", Warning, "removes them")
}

func TestHangingChecksTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		d := New(Config{})
		d.checks = []check{
			{Worker, "hangs", func(*inspection, context.Context) []Finding { <-hang; return nil }},
			{System, "well", func(*inspection, context.Context) []Finding { return single("well", OK, "", "it is") }},
		}
		found, err := d.Run(t.Context())
		close(hang)
		if err != nil {
			t.Fatal(err)
		}
		wantFinding(t, found, "hangs", Warning, "within 11s")
		wantFinding(t, found, "well", OK)
		if found[0].Name != "hangs" || found[0].Group != Worker {
			t.Errorf("the order is %v", found)
		}
	})
}

// TestEveryCheckHasAName checks that names are unique and groups are contiguous.
func TestEveryCheckHasAName(t *testing.T) {
	t.Parallel()
	groups := []string{Server, Worker, Containers, GPUs, Python, System}
	at := 0
	seen := map[string]bool{}
	for _, c := range checks() {
		if seen[c.name] {
			t.Errorf("%s is there twice", c.name)
		}
		seen[c.name] = true
		if i := slices.Index(groups, c.group); i < at {
			t.Errorf("%s/%s is out of order", c.group, c.name)
		} else {
			at = i
		}
	}
}
