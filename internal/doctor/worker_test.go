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
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/kin"
)

const isLinux = runtime.GOOS == "linux"

// mended mends what was found, holds that it is announced and then well, and that a second time
// changes nothing.
func mended(t *testing.T, cfg Config, found []Finding, names ...string) []Finding {
	t.Helper()
	d := asks(cfg, "saved", "data", "write", "secrets", "running", "leftovers", "groups", "leftover-containers")
	var announced []string
	only := slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return !slices.Contains(names, f.Name) })
	again, err := d.Mend(t.Context(), only, func(does string) { announced = append(announced, does) })
	if err != nil {
		t.Fatal(err)
	}
	if len(announced) != len(names) {
		t.Errorf("announced %q for %q", announced, names)
	}
	for _, f := range again {
		if slices.Contains(names, f.Name) && f.mend != nil {
			t.Errorf("%s is as it was: %s", f.Name, f.Found)
		}
	}
	return again
}

func TestDataDirIsMade(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	found := look(t, cfg, "data", "write", "secrets")
	want(t, found, "data", Note, "mkdir")
	none(t, found, "write")
	again := mended(t, cfg, found, "data")
	if f := want(t, again, "data", OK); !f.Fixed {
		t.Error("it is not told that it was fixed")
	}
	want(t, again, "write", OK)
	if info, err := os.Stat(cfg.Data); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	entries, err := os.ReadDir(cfg.Data)
	if err != nil || len(entries) > 0 {
		t.Errorf("it is not empty: %v %v", entries, err)
	}
	cfg.Data = filepath.Join(cfg.Data, "file", "worker")
	put(t, filepath.Dir(filepath.Dir(cfg.Data)), "file", "")
	want(t, look(t, cfg, "data"), "data", Problem, "no folder")
}

// TestNoDataInProc holds that a folder which nobody can make is a problem, whatever the rights are.
func TestNoDataInProc(t *testing.T) {
	if !isLinux {
		t.Skip("skipped: /proc is Linux's")
	}
	t.Parallel()
	cfg := config(t)
	cfg.Data = "/proc/muster"
	found := look(t, cfg, "data", "write", "filesystem")
	want(t, found, "data", Problem, "cannot be made", "--data")
	want(t, found, "filesystem", Problem, "proc")
}

func TestSecretsAreClosed(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Server.Data = t.TempDir()
	put(t, cfg.Data, "identity.json", "{}")
	put(t, cfg.Data, "shim/1/key", "secret")
	put(t, cfg.Server.Data, "muster.db", "")
	want(t, look(t, cfg, "secrets"), "secrets", OK, "3 files")
	loose := []string{filepath.Join(cfg.Data, "identity.json"), filepath.Join(cfg.Data, "shim", "1", "key"), filepath.Join(cfg.Server.Data, "muster.db")}
	for _, path := range loose {
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(cfg.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	found := look(t, cfg, "data", "secrets")
	want(t, found, "data", Warning, "chmod")
	want(t, found, "secrets", Problem, loose...)
	again := mended(t, cfg, found, "data", "secrets")
	want(t, again, "secrets", OK)
	info, err := os.Stat(cfg.Data)
	if err != nil || info.Mode().Perm() != 0o711 { // the user of tasks may have to pass through
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// over is a process that has ended, as a shim notes itself.
func over(t *testing.T) run.Pid {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	return run.Pid{PID: cmd.Process.Pid, BootID: kin.BootID(), StartTicks: 1}
}

func pidFile(t *testing.T, p run.Pid) string {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLeftoversOfTheDeadAreRemoved(t *testing.T) {
	if !isLinux {
		t.Skip("skipped: here nothing outlives a worker")
	}
	t.Parallel()
	cfg := config(t)
	put(t, cfg.Data, "shim/1/pid", pidFile(t, over(t)))
	put(t, cfg.Data, "tasks/17.3-1/work/half.bin", "x")
	put(t, cfg.Data, "tasks/.spare/process-1/work/none", "") // which the next worker uses or removes
	put(t, cfg.Data, "cache/kept", "x")
	names := []string{"running", "leftovers", "groups"}
	found := look(t, cfg, names...)
	want(t, found, "running", Note)
	want(t, found, "shims", Note, "--fix")
	want(t, found, "task-folders", Warning, "1 folder of tasks", "--fix")
	again := mended(t, cfg, found, "shims", "task-folders")
	for _, name := range []string{"shims", "task-folders"} {
		if f := want(t, again, name, OK, "nothing is left"); !f.Fixed {
			t.Errorf("%s is not told as fixed", name)
		}
	}
	for path, there := range map[string]bool{"shim/1": false, "tasks/17.3-1": false, "tasks/.spare/process-1": true, "cache/kept": true} {
		if _, err := os.Stat(filepath.Join(cfg.Data, path)); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	calm, err := asks(cfg, names...).Mend(t.Context(), look(t, cfg, names...), func(does string) { t.Errorf("the second time it would %s", does) })
	if err != nil || len(calm) == 0 {
		t.Errorf("%v %v", calm, err)
	}
}

func TestNothingOfTheLivingIsRemoved(t *testing.T) {
	if !isLinux {
		t.Skip("skipped: here nothing outlives a worker")
	}
	t.Parallel()
	names := []string{"running", "leftovers", "groups"}

	// A shim that lives: this process stands for it.
	cfg := config(t)
	put(t, cfg.Data, "shim/1/pid", pidFile(t, kin.New(quiet).Self()))
	put(t, cfg.Data, "tasks/17.3-1/work/half.bin", "x")
	found := look(t, cfg, names...)
	want(t, found, "running", Warning, strconv.Itoa(os.Getpid()), "start the worker")
	none(t, found, "shims")
	none(t, found, "task-folders")

	// A worker that lives: this process holds its lock.
	cfg = config(t)
	put(t, cfg.Data, "shim/1/pid", pidFile(t, over(t)))
	put(t, cfg.Data, "tasks/17.3-1/work/half.bin", "x")
	before := look(t, cfg, "running", "leftovers")
	before = before[len(before)-1:] // each mend waits for the lock
	want(t, before, "task-folders", Warning)
	keep, err := agent.OpenReportStore(cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	found = look(t, cfg, names...)
	want(t, found, "running", OK, "process "+strconv.Itoa(os.Getpid()))
	none(t, found, "task-folders")
	after, err := asks(cfg, names...).Mend(t.Context(), before, func(string) {}) // it came since that was found
	if err != nil {
		t.Fatal(err)
	}
	want(t, after, "running", OK)
	if _, err := os.Stat(filepath.Join(cfg.Data, "tasks", "17.3-1")); err != nil {
		t.Errorf("a living worker's folder was removed: %v", err)
	}
	if err := keep.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, look(t, cfg, names...), "task-folders", Warning)
}

func TestControlGroupsOfTheDeadAreRemoved(t *testing.T) {
	if len(limit.Describe(limit.Config{}).Controllers) == 0 {
		t.Skip("skipped: no control groups can be made here")
	}
	t.Parallel()
	cfg := config(t)
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := limit.New(limit.Config{Data: cfg.Data, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	found := look(t, cfg, "groups")
	f := want(t, found, "groups", Warning, "muster-")
	_, list, _ := strings.Cut(f.Found, ": ")
	group, _, _ := strings.Cut(list, ", ")
	if err := os.Mkdir(filepath.Join(group, "17.3-1"), 0o700); err != nil {
		t.Fatal(err)
	}

	// While a process is in it, it is not touched.
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if err := os.WriteFile(filepath.Join(group, "17.3-1", "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	busy := look(t, cfg, "groups")
	if f := want(t, busy, "groups", Warning, "start the worker"); f.mend != nil {
		t.Error("a group with a process in it would be removed")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	mended(t, cfg, look(t, cfg, "groups"), "groups")
	none(t, look(t, cfg, "groups"), "groups")
	if _, err := os.Stat(group); err == nil {
		t.Errorf("%s is there still", group)
	}
}

func TestChecksThatHangAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		d := New(Config{})
		d.checks = []check{
			{Worker, "hangs", func(*round, context.Context) []Finding { <-hang; return nil }},
			{System, "well", func(*round, context.Context) []Finding { return one("well", OK, "", "it is") }},
		}
		found, err := d.Look(t.Context())
		close(hang)
		if err != nil {
			t.Fatal(err)
		}
		want(t, found, "hangs", Warning, "more than 11s")
		want(t, found, "well", OK)
		if found[0].Name != "hangs" || found[0].Group != Worker {
			t.Errorf("the order is %v", found)
		}
	})
}

// TestEveryCheckHasItsName holds that names are not told by two checks, and groups come one after the
// other.
func TestEveryCheckHasItsName(t *testing.T) {
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
