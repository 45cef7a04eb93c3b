package packages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/testkit"
)

const (
	serverURL = "http://127.0.0.1:8700"
	program   = "/usr/bin/muster"
)

// machine is the virtual machine, on which an administrator uses packages.
type machine struct{ *testing.T }

// newMachine skips the test outside of the virtual machine. After it the machine is as before, but for the user muster.
func newMachine(t *testing.T) machine {
	t.Helper()
	if os.Getenv("MUSTER_TEST_VM") != "yes" {
		t.Skip("it installs packages on the machine: run make test-packages")
	}
	m := machine{t}
	start := time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("journal:\n%s", m.output("journalctl", "--no-pager", "--output=short-monotonic", "--lines=150", fmt.Sprintf("--since=@%d", start.Unix())))
		}
		m.output("sh", "-c", "systemctl kill --signal=KILL muster-worker muster-server; systemctl disable --now muster-worker muster-server;"+
			"dpkg --purge muster; rpm --erase --nodeps muster; pkill -KILL -x muster; rm -rf /var/lib/muster /etc/muster /root/.config/muster "+
			"/etc/systemd/system/muster-* /usr/local/bin/muster /usr/local/share/release-*; systemctl daemon-reload; systemctl reset-failed")
	})
	return m
}

// output returns what a command prints, whether it fails or not. It ends within two minutes.
func (m machine) output(name string, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	b, _ := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(b)
}

// run returns what a command prints on stdout and stderr; it must succeed.
func (m machine) run(name string, args ...string) string {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), 2*time.Minute)
	defer cancel()
	start := time.Now()
	b, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	m.Logf("%.1f s: %s %s", time.Since(start).Seconds(), name, strings.Join(args, " "))
	if err != nil {
		m.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, b)
	}
	return string(b)
}

// pkg returns the file of a package that scripts/vm brought here.
func (m machine) pkg(version, format string) string {
	m.Helper()
	files, err := filepath.Glob("/src/files/" + version + "/*." + format)
	if err != nil || len(files) != 1 {
		m.Fatalf("packages of version %s: %v, %v", version, files, err)
	}
	return files[0]
}

func (m machine) read(path string) string {
	m.Helper()
	b, err := os.ReadFile(path)
	testkit.NoError(m, err)
	return strings.TrimSpace(string(b))
}

// expectFile checks the mode and the owner of a file.
func (m machine) expectFile(path, want string) {
	m.Helper()
	if got := strings.TrimSpace(m.run("stat", "-c", "%a %U:%G", path)); got != want {
		m.Errorf("%s is %s, not %s", path, got, want)
	}
}

// expectUnit checks properties of a unit of systemd, such as ActiveState=active.
func (m machine) expectUnit(unit string, want ...string) {
	m.Helper()
	args := []string{"show"}
	for _, w := range want {
		name, _, _ := strings.Cut(w, "=")
		args = append(args, "--property="+name)
	}
	got := strings.Fields(m.run("systemctl", append(args, unit)...))
	for _, w := range want {
		if !slices.Contains(got, w) {
			m.Errorf("%s is not %s: %v", unit, w, got)
		}
	}
}

// mainPID returns the process of a service.
func (m machine) mainPID(unit string) int {
	m.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(m.run("systemctl", "show", "--property=MainPID", "--value", unit)))
	testkit.NoError(m, err)
	return pid
}

// expectReady checks that the server answers now: its unit is active only when it does.
func (m machine) expectReady() {
	m.Helper()
	req, err := http.NewRequestWithContext(m.Context(), http.MethodGet, serverURL+"/readyz", http.NoBody)
	testkit.NoError(m, err)
	resp, err := http.DefaultClient.Do(req)
	testkit.NoError(m, err)
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		m.Fatalf("the server is started, but not ready: %s %s", resp.Status, b)
	}
}

// client returns a client with the token that the package made.
func (m machine) client() *client.Client {
	m.Helper()
	c, err := client.New(serverURL, m.read("/etc/muster/admin-token"), client.Options{RetryTimeout: 30 * time.Second})
	testkit.NoError(m, err)
	return c
}

// await waits until try succeeds.
func (m machine) await(what string, try func() error) {
	m.Helper()
	testkit.AwaitNil(m, what, 90*time.Second, try)
}

// awaitWorker waits until the worker of this machine is connected with a version of the program.
func (m machine) awaitWorker(version string) {
	m.Helper()
	m.await("the worker of version "+version+" is connected", func() error {
		w, err := m.client().Worker(m.Context(), "lab")
		if err == nil && (w.State != muster.WorkerActive || w.Version != version) {
			err = fmt.Errorf("it is %s, version %s", w.State, w.Version)
		}
		return err
	})
}

// awaitNoProcess waits until no process of a program is left: the shim ends after its worker.
func (m machine) awaitNoProcess(program string) {
	m.Helper()
	m.await("all processes end", func() error {
		paths, err := filepath.Glob("/proc/[0-9]*/exe")
		for _, path := range paths {
			if exe, _ := os.Readlink(path); strings.TrimSuffix(exe, " (deleted)") == program { // it may have ended
				return errors.Join(err, fmt.Errorf("%s runs %s", filepath.Dir(path), exe))
			}
		}
		return err
	})
}

// task is a task that runs until it is released.
type task struct {
	machine

	job   muster.JobID
	id    muster.TaskID
	pid   int
	group string
}

// memory is the limit of each task.
const memory = 64 << 20

// startTask starts a task and checks that its memory is limited.
func (m machine) startTask() *task {
	m.Helper()
	spec := &muster.Spec{Name: "loop", Tasks: []muster.TaskSpec{{
		Kind: muster.KindProcess, Resources: muster.Request{Memory: memory, CPUs: 0.1},
		Run: &muster.Command{Shell: `echo "process $$"; until [ -e /usr/local/share/release-$MUSTER_TASK ]; do sleep 0.2; done; echo released`},
	}}}
	job, err := m.client().Submit(m.Context(), spec, client.SubmitOptions{})
	testkit.NoError(m, err)
	t := &task{machine: m, job: job.ID}
	m.await("the task runs", func() error {
		for task, err := range m.client().Tasks(m.Context(), job.ID, client.TaskQuery{Page: 10}) {
			if err != nil {
				return err
			}
			t.id = task.ID
		}
		return t.findProcess()
	})
	t.expectLimit()
	return t
}

// findProcess finds the task's process and its control group.
func (t *task) findProcess() error {
	groups, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return err
	}
	for _, path := range groups {
		env, _ := os.ReadFile(path) // it may have ended
		if !strings.Contains("\x00"+string(env), "\x00MUSTER_TASK="+t.id.String()+"\x00") {
			continue
		}
		dir := filepath.Dir(path)
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if !strings.Contains(string(args), "echo released") {
			continue
		}
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			return err
		}
		t.pid, err = strconv.Atoi(filepath.Base(dir))
		t.group = filepath.Join("/sys/fs/cgroup", strings.TrimSpace(strings.TrimPrefix(string(group), "0::")))
		return err
	}
	return errors.New("no process has its variables")
}

// expectLimit checks that the process is in a group with the task's limit, or below one.
func (t *task) expectLimit() {
	t.Helper()
	for dir := t.group; dir != "/sys/fs/cgroup" && dir != "/"; dir = filepath.Dir(dir) {
		if b, err := os.ReadFile(filepath.Join(dir, "memory.max")); err == nil && strings.TrimSpace(string(b)) == strconv.Itoa(memory) {
			return
		}
	}
	t.Errorf("no group of the task limits its memory: %s", t.group)
}

// expectSame checks that the first attempt runs in the process that it had.
func (t *task) expectSame() {
	t.Helper()
	pid := t.pid
	if err := t.findProcess(); err != nil || t.pid != pid {
		t.Fatalf("the task's process %d is %d (%v)", pid, t.pid, err)
	}
	t.expectLimit()
}

// expectEnded checks that the task's process has ended.
func (t *task) expectEnded() {
	t.Helper()
	if err := syscall.Kill(t.pid, 0); err == nil {
		t.Errorf("the task's process %d remains", t.pid)
	}
}

// release lets the task end, and checks that its first attempt succeeds.
func (t *task) release() {
	t.Helper()
	testkit.NoError(t, os.MkdirAll("/usr/local/share", 0o755))
	testkit.NoError(t, os.WriteFile("/usr/local/share/release-"+t.id.String(), nil, 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := t.client().Wait(ctx, t.job); err != nil {
		t.Fatalf("wait for job %d: %v", t.job, err)
	}
	got, err := t.client().Task(t.Context(), t.id)
	testkit.NoError(t, err)
	if got.State != muster.Succeeded || got.Attempt != 1 {
		attempts, err := t.client().Attempts(t.Context(), t.id)
		t.Errorf("the task is %s after %d attempts: %+v (%v)", got.State, got.Attempt, attempts, err)
	}
}
