package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// TestRootInContainersIsNotRootOfTheMachine states that root in a container of Podman, whose worker is root's, is on the machine a user without privileges whom no other
// task has: files of the machine's root that it gets hold of, here by a mount that its worker's owner allows, on a file system that knows no map of users, it
// can neither read nor change. Its outputs are collected as usual.
func TestRootInContainersIsNotRootOfTheMachine(t *testing.T) {
	t.Parallel()
	if !containertest.WithSubordinateIDs(t, "containers:1000000:655360") {
		return
	}
	host := containertest.StartPodman(t)
	shared := mustertest.SharedDir(t)
	if err := unix.Mount("muster", shared, "ramfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(shared, unix.MNT_DETACH) })
	secret, config := filepath.Join(shared, "shadow"), filepath.Join(shared, "passwd")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.WriteFile(config, []byte("root"), 0o644)); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t)
	e.StartWorker("w", mustertest.SharedDir(t), "--engine", host, "--allow-mounts", shared)
	e.AwaitKind("w", muster.KindContainer)
	spec := mustertest.ShellSpec("root", `exec 2>&1; id -u; cat /data/shadow; echo evil >>/data/passwd; touch /data/new && echo made a file; chown 0 /data/passwd && echo took a file
		echo done >$MUSTER_OUT/done; sleep 600; : $MUSTER_TASK`)
	spec.Tasks[0].Image = containertest.LoadBusybox(t, host)
	spec.Tasks[0].Network = muster.NetworkNone
	spec.Tasks[0].Container = &muster.Container{Mounts: []muster.Mount{{Source: shared, Target: "/data"}}}
	spec.Tasks[0].Timeout = muster.Duration(30 * time.Second)
	first, second := e.Submit(spec), e.Submit(spec)
	users := map[uint32]bool{}
	for _, job := range []muster.JobID{first.ID, second.ID} {
		task := muster.TaskID{Job: job}
		e.Await("the container sleeps", 2*awaitTimeout, func() error {
			pids := mustertest.ProcessesMatching(t, "MUSTER_TASK="+task.String()+"\x00", "sleep\x00600\x00")
			if len(pids) == 0 {
				return errors.New("it has not come to its end")
			}
			info, err := os.Stat(fmt.Sprintf("/proc/%d", pids[0]))
			if err == nil {
				users[info.Sys().(*syscall.Stat_t).Uid] = true
			}
			return err
		})
	}
	if len(users) != 2 {
		t.Errorf("two containers run as the users %v of the machine", users)
	}
	for user := range users {
		if user < 1000000 || user >= 1000000+655360 {
			t.Errorf("root in a container is the user %d of the machine", user)
		}
	}
	for _, job := range []muster.JobID{first.ID, second.ID} {
		e.Wait(job, 2*awaitTimeout)
		task := e.Tasks(job)[0]
		if log := e.Output(task.ID); !strings.HasPrefix(log, "0\n") || strings.Count(log, "ermission denied")+strings.Count(log, "not permitted") < 3 || strings.Contains(log, "secret") || strings.Contains(log, " a file") {
			t.Errorf("%s: %s\n%s", task.State, task.Message, log)
		}
		if len(task.Artifacts) != 1 || task.Artifacts[0].Name != "done" {
			t.Errorf("its outputs are %+v", task.Artifacts)
		}
	}
	if text, err := os.ReadFile(config); string(text) != "root" {
		t.Errorf("the file is %q: %v", text, err)
	}
}
