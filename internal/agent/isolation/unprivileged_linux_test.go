package isolation

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
)

// TestUnprivileged runs tests as a user without privileges, if it is run by root.
func TestUnprivileged(t *testing.T) {
	requireRoot(t)
	nobody := requireUser(t)
	uid, err := parseID(nobody.Uid)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "limit") //nolint:usetesting // other users have to reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "limit.test")
	err = errors.Join(os.WriteFile(program, self, 0o600), os.Chmod(program, 0o755), os.Chown(dir, int(uid), int(uid)))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"Hide", "NetworkNone", "TasksAccessOnlyTheirFiles", "OtherProcessesAreInaccessible", "TruncateIsDenied", "AllowlistListens", "SpawnerIsNotRestricted", "RlimitsApplyOnlyToTheChild", "TasksCannotMakeRareCalls", "ToolsCannotMakeRareCalls", "ProgramsWorkInTheFilter", "WorkersWithoutSeccomp"}
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run=^Test("+strings.Join(names, "|")+")$")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil || testing.Verbose() {
		t.Logf("%s", out)
	}
	if err != nil {
		t.Error(err)
	}
	for _, name := range names {
		if !strings.Contains(string(out), ": Test"+name+" ") {
			t.Errorf("Test%s was not run", name)
		}
	}
}

// TestHide checks that a process of the same user sees nothing of this one, sandbox or
// not, and that a task without a network can be started all the same.
func TestHide(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("nothing is hidden from root")
	}
	environ := fmt.Sprintf("cat /proc/%d/environ", os.Getpid())
	readEnviron := func() (string, int) {
		p, err := spawnIn(t, &run.IsolationSpec{}, "/", "/bin/sh", "sh", "-c", environ)
		if err != nil {
			t.Fatal(err)
		}
		return p.wait()
	}
	if _, code := readEnviron(); code != 0 {
		t.Skip("this machine hides processes by itself")
	}
	network := tryNetwork()
	if err := DisableDumpable(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		undumpable.Lock()
		defer undumpable.Unlock()
		undumpable.on = false
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			t.Error(err)
		}
	})
	if out, code := readEnviron(); code == 0 || !strings.Contains(out, "ermission denied") {
		t.Errorf("the environment can be read: %q, %d", out, code)
	}
	if err := tryNetwork(); (err == nil) != (network == nil) {
		t.Errorf("a task without a network: before %v, hidden %v", network, err)
	}
	if out, code := readEnviron(); code == 0 {
		t.Errorf("after that the environment can be read: %q", out)
	}
	if got, err := os.ReadFile("/proc/" + strconv.Itoa(os.Getpid()) + "/cgroup"); err != nil || len(got) == 0 {
		t.Errorf("this process does not see its own groups: %v", err)
	}
}
