package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// service is a worker in its own control group, as a service manager starts it.
type service struct {
	*testing.T

	cluster    *mustertest.Cluster
	group      string // of the service
	startGroup string // the group that the worker is started in: group, or one below
	program    string
	data       string
	flags      []string
	worker     *mustertest.Process
}

// requireVM skips a test outside of the virtual machine.
func requireVM(t *testing.T) {
	t.Helper()
	if os.Getenv("MUSTER_TEST_VM") == "" {
		t.Skip("it needs a machine with control groups of version 2 only: run make test-vm")
	}
}

// unit is how a service manager starts a worker.
type unit struct {
	subgroup     string // as DelegateSubgroup= of systemd: the group below the service's that the worker is started in
	unprivileged bool   // as User=nobody
	flags        []string
}

// newService makes the group of a service as systemd does with Delegate=yes, and starts a worker in it.
func newService(t *testing.T, c *mustertest.Cluster, name string, u unit) *service {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	slice := filepath.Dir(strings.TrimSpace(strings.TrimPrefix(string(own), "0::")))
	s := &service{T: t, cluster: c, group: filepath.Join("/sys/fs/cgroup", slice, name+".service"), flags: u.flags}
	s.startGroup = filepath.Join(s.group, u.subgroup)
	if err := os.MkdirAll(s.startGroup, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(s.group, "trusted.delegate", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	dir := newSharedDir(t)
	s.data, s.program = filepath.Join(dir, "data"), filepath.Join(dir, "start")
	worker := mustertest.Program(t)
	if u.unprivileged {
		worker = fmt.Sprintf("setpriv --reuid %d --regid %[1]d --clear-groups --inh-caps -all env HOME=%s MUSTER_CONFIG=%[2]s/context.json %s", nobody, dir, worker)
		s.delegate(s.data)
	}
	// The shell is the worker's process before it becomes the worker.
	s.writeFile(s.program, fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs && exec %s \"$@\"\n", s.startGroup, worker), 0o755)
	s.launch()
	return s
}

// nobody is the id of an ordinary user and its group.
const nobody = 65534

// delegate makes a folder for the ordinary user, and delegates the service's group to it.
func (s *service) delegate(dir string) {
	s.Helper()
	err := os.Mkdir(dir, 0o700)
	for _, path := range []string{dir, s.group, filepath.Join(s.group, "cgroup.procs"), filepath.Join(s.group, "cgroup.threads"), filepath.Join(s.group, "cgroup.subtree_control")} {
		err = errors.Join(err, os.Chown(path, nobody, nobody))
	}
	if err != nil {
		s.Fatal(err)
	}
}

// launch starts the worker in its group, again if it was there before.
func (s *service) launch() {
	s.Helper()
	name := strings.TrimSuffix(filepath.Base(s.group), ".service")
	s.worker = s.cluster.StartWorkerProgram(s.program, name, s.data, append([]string{"--tags", name}, s.flags...)...)
}

// newSharedDir returns a new folder that every user may pass through and read.
func newSharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vm") //nolint:usetesting // other users have to reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *service) writeFile(path, text string, mode fs.FileMode) {
	s.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		s.Fatal(err)
	}
}

// submit submits a shell script for this service's worker.
func (s *service) submit(name, script string, change func(*muster.TaskSpec)) muster.JobID {
	s.Helper()
	spec := mustertest.ShellSpec(name, script)
	spec.Tasks[0].Where.Tags = []string{strings.TrimSuffix(filepath.Base(s.group), ".service")}
	if change != nil {
		change(&spec.Tasks[0])
	}
	return s.cluster.Submit(spec).ID
}

// waitTask waits for the end of a job's only task.
func (s *service) waitTask(job muster.JobID) muster.Task {
	s.Helper()
	s.cluster.Wait(job, 2*time.Minute)
	return s.cluster.Tasks(job)[0]
}

func (s *service) cancel(job muster.JobID) {
	s.Helper()
	if _, err := s.cluster.Client.Cancel(s.Context(), job, nil); err != nil {
		s.Fatal(err)
	}
}

// attempt waits until the only task of a job runs, and returns the group of its attempt.
func (s *service) attempt(job muster.JobID) string {
	s.Helper()
	s.cluster.AwaitRunning(job, 1)
	groups := s.groups(fmt.Sprintf("%d.*", job))
	if len(groups) != 1 {
		s.Fatalf("the attempt of job %d has the groups %v; the worker's log:\n%s", job, groups, s.worker.Log())
	}
	return groups[0]
}

// groups lists the groups of attempts whose names match a pattern. The worker records where it creates them.
func (s *service) groups(pattern string) []string {
	s.Helper()
	record, err := os.ReadFile(filepath.Join(s.data, "cgroups"))
	if err != nil {
		s.Fatal(err)
	}
	var found []string
	for dir := range strings.FieldsSeq(string(record)) {
		paths, err := filepath.Glob(filepath.Join(dir, pattern, "cgroup.procs"))
		if err != nil {
			s.Fatal(err)
		}
		for _, path := range paths {
			found = append(found, filepath.Dir(path))
		}
	}
	return found
}

// read returns the text of a control file.
func (s *service) read(group, file string) string {
	s.Helper()
	b, err := os.ReadFile(filepath.Join(group, file))
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// count reads the number behind a name in a control file of such lines.
func (s *service) count(group, file, name string) int {
	s.Helper()
	for line := range strings.Lines(s.read(group, file)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				s.Fatal(err)
			}
			return n
		}
	}
	s.Fatalf("%s of %s has no %s", file, group, name)
	return 0
}

// awaitGroupRemoved waits until a group has been removed, which the kernel allows when no process is in it.
func (s *service) awaitGroupRemoved(group string) {
	s.Helper()
	s.cluster.Await("the group "+group+" is gone", time.Minute, func() error {
		if _, err := os.Stat(group); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it has the processes %q (%w)", s.read(group, "cgroup.procs"), err)
		}
		return nil
	})
}
