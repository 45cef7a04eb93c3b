//go:build unix

// Package mustertest runs the real program as real processes: a server and its
// workers, for tests and benchmarks.
package mustertest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/certs"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/testkit"
)

// The tokens of every cluster.
const (
	AdminToken = "e2e-admin-token-0123456789"
	JoinToken  = "e2e-join-token-0123456789"
)

// binary builds the program under test, once for each test process. MUSTER_TEST_PROGRAM names one that is built
// already, for machines without Go.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("MUSTER_TEST_PROGRAM"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "muster-under-test")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "muster")
	build := exec.Command("go", "build", "-o", path, "github.com/muster-dev/muster/cmd/muster")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

// Process is one process of the program.
type Process struct {
	tb   testing.TB
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// Program returns the path of the program under test.
func Program(tb testing.TB) string {
	tb.Helper()
	program, err := binary()
	testkit.NoError(tb, err)
	return program
}

// StartProgram runs a program with args, and variables of the form NAME=VALUE beside those of the test. Its log is shown if the test
// fails.
func StartProgram(tb testing.TB, program, name string, env []string, args ...string) *Process {
	tb.Helper()
	p := &Process{tb: tb, name: name, cmd: exec.Command(program, args...), log: filepath.Join(tb.TempDir(), name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	testkit.NoError(tb, err)
	p.cmd.Env = append(append(os.Environ(), "MUSTER_CONFIG="+filepath.Join(tb.TempDir(), "context.json")), env...)
	p.cmd.Stderr = log
	stdout, err := p.cmd.StdoutPipe()
	testkit.NoError(tb, err)
	testkit.NoError(tb, p.cmd.Start())
	lines := bufio.NewReader(stdout)
	go func() {
		defer close(p.done)
		defer log.Close()
		_, _ = lines.WriteTo(log)
		_ = p.cmd.Wait()
	}()
	tb.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		p.Kill()
		if tb.Failed() {
			if b, err := os.ReadFile(p.log); err == nil {
				tb.Logf("log of %s:\n%s", name, b[max(0, len(b)-6000):])
			}
		}
	})
	return p
}

// StartMuster is StartProgram with the program under test.
func StartMuster(tb testing.TB, name string, env []string, args ...string) *Process {
	tb.Helper()
	return StartProgram(tb, Program(tb), name, env, args...)
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log returns what the process has logged so far.
func (p *Process) Log() string {
	p.tb.Helper()
	b, err := os.ReadFile(p.log)
	testkit.NoError(p.tb, err)
	return string(b)
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill is kill -9; it returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Signal sends a signal, such as SIGSTOP.
func (p *Process) Signal(sig os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.tb.Fatalf("signal %v to %s: %v", sig, p.name, err)
	}
}

// Cluster is one server and its workers.
type Cluster struct {
	tb      testing.TB
	mode    string // of the program: server or up
	opts    Options
	DataDir string
	Addr    string
	URL     string
	// The tokens as the server prints them.
	AdminToken, JoinToken string
	WorkerEnv             []string // variables of workers that are started from now on, of the form NAME=VALUE

	Server *Process
	Client *client.Client
}

// New starts a server with its data in dir, on a port of its own that
// stays the same over restarts.
func New(tb testing.TB, data string) *Cluster {
	tb.Helper()
	return NewWith(tb, data, Options{})
}

// Options are the settings of a server beyond the defaults of tests.
type Options struct {
	Program     string        // another copy of the program to run as the server
	Descriptors int           // that it may open; 0 means as many as the test
	Heartbeat   time.Duration // of its workers; 0 means a second
	Flags       []string      // more of them
	Up          bool          // muster up: with a worker in the server's process
	TLS         bool          // with its own certificate authority, which the test's client and workers know from their tokens only
}

// NewWith is New with options.
func NewWith(tb testing.TB, data string, o Options) *Cluster {
	tb.Helper()
	mode := "server"
	if o.Up {
		mode = "up"
	}
	if testing.Short() {
		tb.Skip("real processes are not for -short")
	}
	killLeftovers(tb, filepath.Join(data, "worker"))
	testkit.NoError(tb, os.Chmod(filepath.Dir(tb.TempDir()), 0o711)) // tasks, which are other users, enter the test's folders
	c := &Cluster{tb: tb, mode: mode, opts: o, DataDir: data, Addr: ReservePort(tb), URL: "http://"}
	pin := ""
	if o.TLS {
		c.URL = "https://"
		own, err := certs.Open(certs.Config{Own: true}, filepath.Join(data, "tls"), slog.New(slog.DiscardHandler)) // the server finds it
		testkit.NoError(tb, err)
		pin = own.Pin()
		c.opts.Flags = append([]string{"--tls"}, o.Flags...)
	}
	c.URL += c.Addr
	c.AdminToken, c.JoinToken = auth.WithPin(AdminToken, pin), auth.WithPin(JoinToken, pin)
	var err error
	c.Client, err = client.New(c.URL, c.AdminToken, client.Options{RetryTimeout: 30 * time.Second})
	testkit.NoError(tb, err)
	c.StartServer()
	return c
}

// StartServer starts the server and waits until it answers, for the first time or
// after Server.Kill.
func (c *Cluster) StartServer() {
	c.tb.Helper()
	c.LaunchServer()
	c.Await("the server answers", time.Minute, func() error {
		_, err := c.Client.Whoami(c.tb.Context())
		return err
	})
}

// LaunchServer starts the server with more flags and does not wait for it.
func (c *Cluster) LaunchServer(flags ...string) {
	c.tb.Helper()
	program, args := c.opts.Program, append([]string{c.mode, "--listen", c.Addr, "--data", c.DataDir, "--heartbeat", cmp.Or(c.opts.Heartbeat, time.Second).String(), "-o", "json"}, append(slices.Clone(c.opts.Flags), flags...)...)
	if program == "" {
		program = Program(c.tb)
	}
	if c.opts.Descriptors > 0 {
		program, args = "/bin/sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, c.opts.Descriptors), program}, args...)
	}
	c.Server = StartProgram(c.tb, program, c.mode, []string{"MUSTER_ADMIN_TOKEN=" + AdminToken, "MUSTER_JOIN_TOKEN=" + JoinToken}, args...)
}

// WaitExit waits until the process has ended and returns its exit code, -1 after a signal.
func (p *Process) WaitExit(limit time.Duration) int {
	p.tb.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.tb.Fatalf("%s has not ended after %v", p.name, limit)
	}
	return p.cmd.ProcessState.ExitCode()
}

// StartWorker starts a worker with its data in dir and waits until it is connected.
func (c *Cluster) StartWorker(name, dir string, flags ...string) *Process {
	c.tb.Helper()
	return c.StartWorkerProgram(Program(c.tb), name, dir, flags...)
}

// StartWorkerProgram does the same with another copy of the program.
func (c *Cluster) StartWorkerProgram(program, name, dir string, flags ...string) *Process {
	c.tb.Helper()
	p := c.LaunchWorkerProgram(program, name, dir, flags...)
	c.Await("worker "+name+" is connected", time.Minute, func() error {
		if !strings.Contains(p.Log(), "msg=connected") {
			return errors.New("it is not")
		}
		return nil
	})
	c.AwaitWorkerState(name, muster.WorkerActive)
	return p
}

// LaunchWorkerProgram starts a worker and does not wait for it.
func (c *Cluster) LaunchWorkerProgram(program, name, dir string, flags ...string) *Process {
	c.tb.Helper()
	return c.LaunchWorkerWith(nil, program, name, dir, flags...)
}

// LaunchWorkerWith is LaunchWorkerProgram with variables of the form NAME=VALUE.
func (c *Cluster) LaunchWorkerWith(env []string, program, name, dir string, flags ...string) *Process {
	c.tb.Helper()
	killLeftovers(c.tb, dir)
	allowWrites(c.tb, flags)
	args := append([]string{"worker", "--server", c.URL, "--name", name, "--data", dir}, flags...)
	return StartProgram(c.tb, program, name, slices.Concat([]string{"MUSTER_JOIN_TOKEN=" + c.JoinToken}, c.WorkerEnv, env), args...)
}

// SharedDir makes a folder that tasks come to, and may change if their worker lets them: they are other users than this one.
func SharedDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "muster-shared") //nolint:usetesting // a folder of the test is in one that other users cannot enter
	if err == nil {
		tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // remaining files do no harm
		err = os.Chmod(dir, 0o777)
	}
	testkit.NoError(tb, err)
	return dir
}

// allowWrites lets tasks write where flags say that they may.
func allowWrites(tb testing.TB, flags []string) {
	tb.Helper()
	for i, flag := range flags {
		if flag == "--allow-write" {
			testkit.NoError(tb, os.Chmod(flags[i+1], 0o777)) // they are other users than this one
		}
	}
}

// AwaitWorkerState waits until a worker is in a state.
func (c *Cluster) AwaitWorkerState(name string, want muster.WorkerState) {
	c.tb.Helper()
	c.Await(fmt.Sprintf("worker %s is %s", name, want), time.Minute, func() error {
		w, err := c.Client.Worker(c.tb.Context(), name)
		if err == nil && w.State != want {
			err = fmt.Errorf("it is %s", w.State)
		}
		return err
	})
}

// AwaitKind waits until a worker offers a kind. Engines take long to answer on a busy machine.
func (c *Cluster) AwaitKind(name, kind string) {
	c.tb.Helper()
	c.Await(fmt.Sprintf("worker %s offers %s", name, kind), 3*time.Minute, func() error {
		w, err := c.Client.Worker(c.tb.Context(), name)
		if err == nil && !slices.Contains(w.Kinds, kind) {
			err = fmt.Errorf("it offers %v", w.Kinds)
		}
		return err
	})
}

// Await waits until try succeeds, and ends the test with its last error at the limit.
func (c *Cluster) Await(desc string, limit time.Duration, try func() error) {
	c.tb.Helper()
	testkit.AwaitNil(c.tb, desc, limit, try)
}

// Submit submits a spec that must be accepted.
func (c *Cluster) Submit(s *muster.Spec) muster.Job {
	c.tb.Helper()
	job, err := c.Client.Submit(c.tb.Context(), s, client.SubmitOptions{})
	if err != nil {
		c.tb.Fatalf("submit: %v", err)
	}
	return job
}

// Wait waits for the end of a job.
func (c *Cluster) Wait(id muster.JobID, limit time.Duration) muster.Job {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), limit)
	defer cancel()
	job, err := c.Client.Wait(ctx, id)
	if err != nil {
		latest, _ := c.Client.Job(c.tb.Context(), id)
		state, _ := json.Marshal(latest)
		c.tb.Fatalf("job %d did not end in %v: %v; it is %s", id, limit, err, state)
	}
	return job
}

// Tasks lists all tasks of a job.
func (c *Cluster) Tasks(id muster.JobID) []muster.Task {
	c.tb.Helper()
	var tasks []muster.Task
	for task, err := range c.Client.Tasks(c.tb.Context(), id, client.TaskQuery{Page: 1000}) {
		if err != nil {
			c.tb.Fatalf("tasks of job %d: %v", id, err)
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// Output reads what a task wrote to stdout. The task ends within two minutes, with all of its log.
func (c *Cluster) Output(id muster.TaskID) string {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), 2*time.Minute)
	defer cancel()
	var out []byte
	for line, err := range c.Client.Logs(ctx, id, client.LogOptions{Stream: client.Stdout, Follow: true}) {
		if err != nil {
			c.tb.Fatalf("logs of %s: %v", id, err)
		}
		out = append(out, line.Data...)
	}
	return string(out)
}

// AwaitRunning waits until n tasks of a job run.
func (c *Cluster) AwaitRunning(id muster.JobID, n int64) {
	c.tb.Helper()
	c.Await(fmt.Sprintf("%d tasks of job %d run", n, id), time.Minute, func() error {
		job, err := c.Client.Job(c.tb.Context(), id)
		if err == nil && job.Counts[muster.Running] < n {
			err = fmt.Errorf("%d run", job.Counts[muster.Running])
		}
		return err
	})
}

// ShellSpec is a spec of one process stage.
func ShellSpec(name, script string) *muster.Spec {
	return &muster.Spec{Name: name, Tasks: []muster.TaskSpec{{Kind: muster.KindProcess, Run: &muster.Command{Shell: script}}}}
}
