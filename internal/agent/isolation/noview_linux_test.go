package isolation

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/isolation/netns"
)

// withoutSysAdmin is set for a process that root starts without the capability to make views.
const withoutSysAdmin = "LIMIT_TEST_WITHOUT_SYS_ADMIN"

// TestWorkersWithoutSysAdmin checks that a worker of root without CAP_SYS_ADMIN, as in a container, runs tasks with their own users, without a
// private /proc, and logs this; if other users cannot enter its data dir, tasks run as root, and it logs why.
func TestWorkersWithoutSysAdmin(t *testing.T) {
	requireRoot(t)
	requireUser(t)
	if os.Getenv(withoutSysAdmin) == "" {
		rerun(t)
		return
	}
	if capable(unix.CAP_SYS_ADMIN) {
		t.Fatal("the test has the capability")
	}
	var log bytes.Buffer
	var seen Description
	describe := func(c *Config) {
		log.Reset()
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		seen = Describe(*c)
	}
	w := newEnv(t, describe)
	if p := seen.Processes; p.By != ByNothing || !strings.Contains(p.Why, "unshare: operation not permitted") || seen.User != DynamicUser {
		t.Errorf("it describes itself as %+v, with tasks of the user %q", p, seen.User)
	}
	if !strings.Contains(log.String(), "tasks see the command lines of all processes: unshare: operation not permitted") {
		t.Errorf("it does not say that tasks have no view: %s", &log)
	}
	task := w.task(nil)
	if uid, _ := task.ids(); uid < firstNarrowUID || task.spec.View != nil {
		t.Errorf("the task is user %d, with the view %+v", uid, task.spec.View)
	}
	task.expect("test -d /proc/1 && echo x >../out/y && cat ../out/y", "x", 0)
	task.expectDenied("cat " + filepath.Join(w.data, "identity"))

	w = newEnv(t, func(c *Config) {
		if err := os.Chmod(filepath.Dir(c.Data), 0o700); err != nil {
			t.Fatal(err)
		}
		describe(c)
	})
	if seen.User != RootUser || !strings.Contains(log.String(), "cannot reach the data dir "+w.data) || !strings.Contains(log.String(), "unshare: operation not permitted") {
		t.Errorf("it describes the user of tasks as %q, and prints %s", seen.User, &log)
	}
	if uid, _ := w.task(nil).ids(); uid != 0 {
		t.Errorf("the task is user %d", uid)
	}
	if _, err := New(Config{Data: w.data, Sandbox: Strict, Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a worker that is to be strict runs tasks as root")
	}
}

// rerun runs the test in a process without the capability.
func rerun(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), withoutSysAdmin+"=1")
	var out []byte
	err := error(unix.EPERM)
	netns.OnThread(func() { // which ends with what it lacks
		if err = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0); err == nil {
			out, err = cmd.CombinedOutput()
		}
	})
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("without the capability: %v\n%s", err, out)
	}
}
