package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestUnified checks that a worker keeps its tasks to what they were granted by control groups of version 2.
func TestUnified(t *testing.T) {
	requireVM(t)
	c := mustertest.New(t, newSharedDir(t))
	s := newService(t, c, "worker", unit{flags: []string{"--slots", "8"}})
	bystander := s.submit("bystander", "while [ ! -e stop ]; do sleep 0.1; done", nil)
	beside := s.attempt(bystander)

	t.Run("memory", func(t *testing.T) {
		job := s.submit("memory", `x=0123456789; while :; do x=$x$x; done`, func(spec *muster.TaskSpec) { spec.Resources.Memory = 32 << 20 })
		if task := s.waitTask(job); task.State != muster.Failed || task.Reason != muster.OutOfMemory {
			t.Errorf("it ends as %s, %s: %s", task.State, task.Reason, task.Message)
		}
	})
	t.Run("processes", func(t *testing.T) {
		job := s.submit("bomb", `(bomb() { bomb | bomb & }; bomb) & exec sleep 1000`, func(spec *muster.TaskSpec) { spec.Resources.PIDs = 30 })
		group := s.attempt(job)
		c.Await("the bomb is held", time.Minute, func() error {
			if n := s.count(group, "pids.events", "max"); n == 0 {
				return fmt.Errorf("no fork was denied")
			}
			return nil
		})
		if n, err := strconv.Atoi(s.read(group, "pids.current")); err != nil || n > 30 {
			t.Errorf("%d processes are in the group (%v)", n, err)
		}
		if task := s.waitTask(s.submit("next", "echo works", nil)); task.State != muster.Succeeded {
			t.Errorf("a task next to the bomb ended as %s: %s", task.State, task.Message)
		}
		s.cancel(job)
		s.waitTask(job)
		s.awaitGroupRemoved(group)
	})
	t.Run("processors", func(t *testing.T) {
		job := s.submit("busy", `(while :; do :; done) & while :; do :; done`, func(spec *muster.TaskSpec) { spec.Resources.CPUs = 0.25 })
		group := s.attempt(job)
		if got := s.read(group, "cpu.max"); got != "25000 100000" {
			t.Errorf("its quota is %q", got)
		}
		c.Await("it is throttled", time.Minute, func() error {
			if n := s.count(group, "cpu.stat", "nr_throttled"); n < 3 {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
		s.cancel(job)
		s.waitTask(job)
		s.awaitGroupRemoved(group)
	})
	t.Run("tree", func(t *testing.T) {
		// Processes that left the task's session, lost their parent and changed what they look like.
		job := s.submit("tree", `for i in 1 2 3; do (setsid sh -c 'trap "" TERM INT HUP; env -i sleep 1000 & env -i sleep 1000' &) ; done; echo grown; sleep 1000`,
			func(spec *muster.TaskSpec) { spec.Kill.Grace = muster.Duration(time.Second) })
		group := s.attempt(job)
		c.Await("the tree is grown", time.Minute, func() error {
			if n := len(strings.Fields(s.read(group, "cgroup.procs"))); n < 8 {
				return fmt.Errorf("it has %d processes", n)
			}
			return nil
		})
		s.cancel(job)
		if task := s.waitTask(job); task.State != muster.Cancelled {
			t.Errorf("it ends as %s", task.State)
		}
		s.awaitGroupRemoved(group)
	})
	t.Run("files", func(t *testing.T) {
		secret := filepath.Join(newSharedDir(t), "secret")
		s.writeFile(secret, "another's", 0o644)
		unsandboxed := newService(t, c, "loose", unit{flags: []string{"--sandbox", "off"}})
		if job := unsandboxed.submit("read", "cat "+secret, nil); unsandboxed.waitTask(job).State != muster.Succeeded {
			t.Errorf("without a sandbox it cannot be read: %s", c.Output(c.Tasks(job)[0].ID))
		}
		job := s.submit("read", "cat "+secret+" 2>&1", nil)
		if task := s.waitTask(job); task.State != muster.Failed || !strings.Contains(c.Output(task.ID), "Permission denied") {
			t.Errorf("it is %s, and prints %q", task.State, c.Output(task.ID))
		}
	})
	if n := len(strings.Fields(s.read(beside, "cgroup.procs"))); n == 0 {
		t.Error("the task beside all these has ended")
	}
	s.cancel(bystander)
	s.waitTask(bystander)
	s.worker.Signal(syscall.SIGTERM)
	<-s.worker.Done()
	c.Await("no process is left", time.Minute, func() error { // the shim ends after the worker
		if procs := s.read(s.group, "cgroup.procs"); procs != "" {
			return fmt.Errorf("the service has the processes %q", procs)
		}
		return nil
	})
	if left := append(s.groups(""), s.groups("*")...); len(left) > 0 {
		t.Errorf("the worker leaves the groups %s", left)
	}
}

// TestOrdinaryUser checks that a worker without privileges, in a group that was delegated to its user, keeps its tasks to
// their limits and ends all that they started.
func TestOrdinaryUser(t *testing.T) {
	requireVM(t)
	c := mustertest.New(t, newSharedDir(t))
	s := newService(t, c, "ordinary", unit{unprivileged: true})
	job := s.submit("memory", `x=0123456789; while :; do x=$x$x; done`, func(spec *muster.TaskSpec) { spec.Resources.Memory = 32 << 20 })
	if task := s.waitTask(job); task.State != muster.Failed || task.Reason != muster.OutOfMemory {
		t.Errorf("it ends as %s, %s: %s", task.State, task.Reason, task.Message)
	}
	job = s.submit("tree", `(setsid sh -c 'trap "" TERM INT HUP; env -i sleep 1000 & env -i sleep 1000' &) ; sleep 1000`, func(spec *muster.TaskSpec) {
		spec.Resources.CPUs, spec.Resources.PIDs, spec.Kill.Grace = 0.25, 20, muster.Duration(time.Second)
	})
	group := s.attempt(job)
	if cpus, pids := s.read(group, "cpu.max"), s.read(group, "pids.max"); cpus != "25000 100000" || pids != "20" {
		t.Errorf("its quota is %q, and it may have %s processes", cpus, pids)
	}
	c.Await("the tree is grown", time.Minute, func() error {
		if n := len(strings.Fields(s.read(group, "cgroup.procs"))); n < 4 {
			return fmt.Errorf("it has %d processes", n)
		}
		return nil
	})
	s.cancel(job)
	s.waitTask(job)
	s.awaitGroupRemoved(group)
}

// TestServiceRestarts checks that a killed worker is restarted in the group of its service while its tasks run: those keep their limits, and
// new ones have limits, too.
func TestServiceRestarts(t *testing.T) {
	requireVM(t)
	c := mustertest.New(t, newSharedDir(t))
	for name, u := range map[string]unit{"again": {}, "below": {subgroup: "main"}} {
		t.Run(name, func(t *testing.T) { checkRestarts(t, newService(t, c, name, u)) })
	}
}

func checkRestarts(t *testing.T, s *service) {
	t.Helper()
	job := s.submit("long", `while [ ! -e stop ]; do sleep 0.1; done`, func(spec *muster.TaskSpec) { spec.Resources.Memory = 64 << 20 })
	group := s.attempt(job)
	first, _, _ := strings.Cut(s.read(group, "cgroup.procs"), "\n")
	for range 2 {
		s.worker.Kill()
		s.launch() // the kernel would refuse its process in a group whose subgroups have controllers
		if got := s.attempt(job); got != group {
			t.Errorf("its group was %s, and is %s", group, got)
		}
		if got := s.read(group, "memory.max"); got != strconv.Itoa(64<<20) {
			t.Errorf("its limit is %s", got)
		}
		if !slices.Contains(strings.Fields(s.read(group, "cgroup.procs")), first) {
			t.Errorf("its first process was %s, and it has %q", first, s.read(group, "cgroup.procs"))
		}
		next := s.submit("next", `sleep 1000`, func(spec *muster.TaskSpec) { spec.Resources.Memory = 32 << 20 })
		if got := s.read(s.attempt(next), "memory.max"); got != strconv.Itoa(32<<20) {
			t.Errorf("the limit of a new task is %s", got)
		}
		s.cancel(next)
		s.waitTask(next)
	}
	work, err := filepath.Glob(filepath.Join(s.data, "tasks", fmt.Sprintf("%d.*", job), "work"))
	if err != nil || len(work) != 1 {
		t.Fatalf("its folders are %v (%v)", work, err)
	}
	if err := os.WriteFile(filepath.Join(work[0], "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if task := s.waitTask(job); task.State != muster.Succeeded {
		t.Errorf("it ends as %s: %s", task.State, task.Message)
	}
	s.awaitGroupRemoved(group)
}
