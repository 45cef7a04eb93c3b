package attack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// systemV is a program that creates or finds System V objects that everybody may use. Its arguments are what to do and a key.
const systemV = `
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
def result(r):
    return "found" if r >= 0 else errno.errorcode[ctypes.get_errno()]
create = 0o1000 if sys.argv[1] == "create" else 0
print("segment", result(libc.shmget(int(sys.argv[2]), 4096, create | 0o666)))
print("semaphores", result(libc.semget(int(sys.argv[2]), 1, create | 0o666)))
`

// holdSharedMemory starts a task that holds shared memory of every sort, open to all users, by names with this key.
func holdSharedMemory(t *testing.T, c *mustertest.Cluster, key string) muster.Job {
	t.Helper()
	job := c.Submit(mustertest.ShellSpec("victim", "umask 0; echo secret >/dev/shm/attack"+key+"; cat >v.py <<'END'\n"+systemV+"\nEND\n"+python+" v.py create "+key+"; echo held; exec sleep 600"))
	c.AwaitRunning(job.ID, 1)
	c.Await("the victim holds its memory", time.Minute, func() error {
		cmd := exec.CommandContext(t.Context(), mustertest.Program(t), "logs", "--server", "http://"+c.Addr, job.ID.String())
		cmd.Env = []string{"HOME=" + t.TempDir(), "MUSTER_TOKEN=" + mustertest.AdminToken}
		if out, err := cmd.CombinedOutput(); err != nil || strings.Count(string(out), "found") != 2 || !strings.Contains(string(out), "held") {
			return fmt.Errorf("the task printed %q (%w)", out, err)
		}
		return nil
	})
	return job
}

// TestTaskCannotReadSharedMemoryOfOthers checks that neither another task nor another process of the machine finds a task's files in /dev/shm, its System V
// segments and semaphores, whatever their modes; and that its own commands do.
func TestTaskCannotReadSharedMemoryOfOthers(t *testing.T) {
	t.Parallel()
	for _, sandbox := range []string{"auto", "off"} {
		c, w := startRootWorker(t, "--sandbox", sandbox)
		key := strconv.Itoa(w.PID())
		victim := holdSharedMemory(t, c, key)
		find := "ls -A /dev/shm; cat >v.py <<'END'\n" + systemV + "\nEND\n" + python + " v.py find " + key
		const nothing = "segment ENOENT\nsemaphores ENOENT\n"
		if out := runScript(t, c, find); out != nothing {
			t.Errorf("--sandbox %s: another task finds:\n%s", sandbox, out)
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "ls /dev/shm/attack"+key+" 2>/dev/null; cd $DIR; "+find[strings.Index(find, "cat"):])
		cmd.Env = []string{"DIR=" + t.TempDir()}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != nothing {
			t.Errorf("--sandbox %s: the machine finds: %v\n%s", sandbox, err, out)
		}
		cmd = exec.CommandContext(t.Context(), mustertest.Program(t), "exec", "--server", "http://"+c.Addr, victim.ID.String(), "--",
			"sh", "-c", "cat /dev/shm/attack"+key+"; "+python+" v.py find "+key+"; unshare -U true 2>&1 || echo refused")
		cmd.Env = []string{"HOME=" + t.TempDir(), "MUSTER_TOKEN=" + mustertest.AdminToken, "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "secret\nsegment found\nsemaphores found\n") || sandbox == "auto" && !strings.HasSuffix(string(out), "refused\n") {
			t.Errorf("--sandbox %s: a command in the task finds: %v\n%s", sandbox, err, out)
		}
	}
}

// TestTaskLeavesNothingInSharedMemory checks that what a task wrote to /dev/shm counts as its memory, and is gone when it is killed for that.
func TestTaskLeavesNothingInSharedMemory(t *testing.T) {
	t.Parallel()
	c, w := startRootWorker(t)
	name := "/dev/shm/attack" + strconv.Itoa(w.PID())
	spec := mustertest.ShellSpec("greedy", "df -k --output=size /dev/shm | tail -1; head -c 90M /dev/zero >"+name+" && echo wrote 90 MB; "+python+" -c 'b = bytearray(20 << 20); print(\"used 20 MB more\")'")
	spec.Tasks[0].Resources = muster.Request{Memory: 100 << 20}
	job := c.Submit(spec)
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobFailed {
		t.Errorf("the job ended as %s", got.State)
	}
	task, out := c.Tasks(job.ID)[0], c.Output(muster.TaskID{Job: job.ID})
	if task.Reason != muster.OutOfMemory || !strings.Contains(out, "102400\n") || !strings.Contains(out, "wrote 90 MB") || strings.Contains(out, "20 MB more") {
		t.Errorf("the task ended as %s (%s): %s", task.State, task.Reason, out)
	}
	if _, err := os.Stat(name); err == nil {
		t.Errorf("%s is left", name)
	}
}

// TestOwnerSharesTheMachinesMemory checks that tasks use the machine's /dev/shm if the owner says so.
func TestOwnerSharesTheMachinesMemory(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/dev/shm", "attack") //nolint:usetesting // it has to be there
	if err != nil {
		t.Skip("this machine has no /dev/shm: " + err.Error())
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c, _ := startRootWorker(t, "--allow-write", dir)
	runScript(t, c, "echo given >"+dir+"/x")
	if text, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(text) != "given\n" {
		t.Errorf("%q %v", text, err)
	}
}
