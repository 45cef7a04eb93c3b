//go:build linux

package process_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/runtest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// containerized runs the tasks of another executor in containers.
type containerized struct {
	run.Executor

	image     string
	sharedDir string // a folder that they can look into
}

// Run implements run.Executor.
func (b *containerized) Run(ctx context.Context, t *run.Task, reporter run.Reporter) muster.Report {
	if t.Recovered == nil {
		task, spec := *t, *t.Spec
		spec.Image, spec.Isolation = b.image, muster.IsolationContainer
		spec.Container = &muster.Container{Mounts: []muster.Mount{{Source: b.sharedDir, Target: b.sharedDir, ReadOnly: true}}}
		task.Spec = &spec
		t = &task
	}
	return b.Executor.Run(ctx, t, reporter)
}

var workers atomic.Int64

// useContainers adds real containers and limits to an environment.
func useContainers(t *testing.T, deps *process.Deps) {
	t.Helper()
	engine, err := docker.Open(containertest.SharedEngine(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	containers, err := container.New(container.Config{
		Engine: engine, Worker: fmt.Sprintf("c%d%d", os.Getpid(), workers.Add(1)), Dir: deps.Dir,
		Allow: &muster.Allow{Mounts: []string{runtest.SharedDir(deps)}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the engine is ready", func() bool { return containers.Check(t.Context()) == nil })
	deps.Containers = containers
	if deps.Isolator == nil && deps.Meter == nil { // a test that has its own wants no other figures
		isolator, err := isolation.New(isolation.Config{Data: deps.Dir, Log: deps.Log})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(isolator.Close)
		deps.Isolator = isolator
	}
}

// shellImage is an image with a shell, and programs where machines have them.
func shellImage(t *testing.T) string {
	t.Helper()
	b := containertest.ShellImage(t)
	b.Links["/usr/bin"] = "/bin"
	return containertest.LoadImage(t, containertest.SharedEngine(t), fmt.Sprintf("muster-test/process:%d-%d", os.Getpid(), workers.Add(1)), b)
}

// openInContainers opens executors whose tasks run in containers.
func openInContainers(t *testing.T) runtest.OpenFunc {
	t.Helper()
	image := shellImage(t)
	return func(deps *process.Deps) (run.Executor, error) {
		if deps.Containers == nil {
			useContainers(t, deps)
		}
		x, err := process.NewKind(deps, muster.KindContainer, process.KindHooks{})
		return &containerized{x, image, runtest.SharedDir(deps)}, err
	}
}

// skipped are the cases that make no sense in a container.
var skipped = map[string]string{
	"what cannot be started says why":                                   "programs are looked for in the image: see TestImageThatCannotStart",
	"a task sees its own environment only":                              "that of a container is another: see TestContainerView",
	"although it would join the worker's own group":                     "processes of a container are in a session of its own, and the image has no perl",
	"what the kernel counted explains a failure":                        "a container's groups are counted, not what a Limiter makes up: see TestContainerOverItsLimits",
	"devices are acquired and released, and their fault is the failure": "an engine shows devices, and has none here",
}

func TestContractInContainers(t *testing.T) { runtest.RunExcept(t, openInContainers(t), skipped) }

// TestContractInContainersOverAShim is TestContractInContainers with containers that continue without the worker.
func TestContractInContainersOverAShim(t *testing.T) {
	runtest.RunExcept(t, openInContainers(t), skipped, os.Args[0], shimArg)
}

// runTask runs a task of a world with containers, and returns its report and what it printed.
func runTask(t *testing.T, w *runtest.Env, kind string, task *run.Task) (r muster.Report, stdout, logged string) {
	t.Helper()
	x, err := process.NewKind(w.Deps, kind, process.KindHooks{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runtest.Timeout)
	defer cancel()
	task.Attempt = muster.AttemptID{Task: muster.TaskID{Job: 21, Num: int(workers.Add(1))}, N: 1}
	r = x.Run(ctx, task, &runtest.Recorder{})
	return r, w.Output(t, task.Attempt, tasklog.Stdout), w.Output(t, task.Attempt, tasklog.System)
}

// containerTask is a task in a container.
func containerTask(image, shell string) *run.Task {
	spec := &muster.TaskSpec{Kind: muster.KindContainer, Isolation: muster.IsolationContainer, Image: image}
	if shell != "" {
		spec.Run = &muster.Command{Shell: shell}
	}
	return &run.Task{Spec: spec}
}

func TestContainerView(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	w := runtest.NewEnv(t)
	useContainers(t, w.Deps)
	task := containerTask(shellImage(t), "env; pwd; ls -A; ls /muster/sdk; cat in.txt; touch /muster/sdk/x 2>/dev/null && echo writable; true")
	task.Spec.Env = map[string]string{"SEED": "1", "MUSTER_TASK": "forged", "PYTHONPATH": "lib"}
	task.Spec.Checkpoint = &muster.Checkpoint{Path: "state"}
	task.Inputs = []muster.InputFile{{Path: "in.txt", SHA256: w.Blob("data\n"), Size: 5}}
	r, out, _ := runTask(t, w, muster.KindContainer, task)
	if r.Outcome != muster.AttemptSucceeded || !strings.Contains(r.Image, "sha256:") {
		t.Fatalf("%+v", r)
	}
	for _, line := range []string{
		"MUSTER_OUT=/muster/out", "MUSTER_CHECKPOINT=/muster/checkpoint", "MUSTER_EVENTS=/muster/events", "TMPDIR=/muster/tmp",
		"MUSTER_TASK=" + task.Attempt.Task.String(), "SEED=1", "PYTHONPATH=lib:/muster/sdk", "/muster/work", "in.txt", "state", "muster.py", "data",
	} {
		if !strings.Contains("\n"+out, "\n"+line+"\n") {
			t.Errorf("%s is not there:\n%s", line, out)
		}
	}
	if !regexp.MustCompile(`(?m)^MUSTER_MARK=[0-9a-f]{32}$`).MatchString(out) {
		t.Errorf("its processes have no mark:\n%s", out)
	}
	for _, word := range []string{"hunter2", "writable", "USER=", "LANG=", os.Getenv("PATH"), w.Deps.Dir} {
		if strings.Contains(out, word) {
			t.Errorf("%s is there:\n%s", word, out)
		}
	}
}

// TestAnImagesOwnCommand checks that the image's command runs in the image's folder, as its user.
func TestAnImagesOwnCommand(t *testing.T) {
	w := runtest.NewEnv(t)
	useContainers(t, w.Deps)
	b := containertest.ShellImage(t)
	b.User, b.Workdir, b.Cmd = "user", "/home", []string{"sh", "-c", "pwd; id -u; echo 1 > $MUSTER_OUT/o.txt; echo 2 > $MUSTER_CHECKPOINT/n; echo 3 > $TMPDIR/t; echo '{\"step\": \"x\"}' >> $MUSTER_EVENTS; cat /muster/sdk/muster.py | wc -l"}
	image := containertest.LoadImage(t, containertest.SharedEngine(t), fmt.Sprintf("muster-test/own:%d", os.Getpid()), b)
	r, out, _ := runTask(t, w, muster.KindContainer, containerTask(image, ""))
	if r.Outcome != muster.AttemptSucceeded || len(r.Artifacts) != 1 || !strings.HasPrefix(out, "/home\n1000\n") || strings.HasSuffix(out, "\n0\n") {
		t.Errorf("%+v printed %q", r, out)
	}
	task := containerTask(image, "cat work.sh; ./work.sh && echo more >> in/deep.txt && cp in/deep.txt out.txt")
	task.Spec.Files = w.Tree(map[string]string{"work.sh": "#!/bin/sh\nid -u\n", "in/deep.txt": "x"})
	task.Spec.Outputs = []string{"out.txt"}
	if r, out, _ = runTask(t, w, muster.KindContainer, task); r.Outcome != muster.AttemptSucceeded || len(r.Artifacts) != 1 || !strings.HasSuffix(out, "\n1000\n") {
		t.Errorf("%+v printed %q", r, out)
	}
}

func TestImageThatCannotStart(t *testing.T) {
	w := runtest.NewEnv(t)
	useContainers(t, w.Deps)
	image := shellImage(t)
	for _, c := range []struct {
		change  func(*muster.TaskSpec)
		reason  muster.Reason
		wantMsg string
	}{
		{func(s *muster.TaskSpec) {
			s.Image = "muster-test/none:1"
			s.Container = &muster.Container{Pull: muster.PullNever}
		}, muster.ImageMissing, "muster-test/none:1"},
		{func(s *muster.TaskSpec) { s.Container = &muster.Container{User: "nobody-knows"} }, muster.StartFailed, "nobody-knows"},
		{func(s *muster.TaskSpec) { s.Run = &muster.Command{Argv: []string{"no-such-command"}} }, muster.StartFailed, "no such command"},
		{func(s *muster.TaskSpec) { s.Python = &muster.Python{} }, muster.TaskInvalid, "python"},
		{func(s *muster.TaskSpec) { s.Launcher, s.Run = muster.LauncherTorchrun, nil }, muster.TaskInvalid, "set run"},
		{func(s *muster.TaskSpec) { s.Image = "" }, muster.TaskInvalid, "set image"},
	} {
		task := containerTask(image, "true")
		c.change(task.Spec)
		r, _, _ := runTask(t, w, muster.KindContainer, task)
		if r.Outcome != muster.AttemptFailed || r.Reason != c.reason || !strings.Contains(r.Message, c.wantMsg) {
			t.Errorf("got %s, %q; want %s, %q", r.Reason, r.Message, c.reason, c.wantMsg)
		}
	}
}

// TestContainerOverItsLimits distinguishes a container without resources from one that fails.
func TestContainerOverItsLimits(t *testing.T) {
	w := runtest.NewEnv(t)
	useContainers(t, w.Deps)
	image := shellImage(t)
	const eats = "tail -c 400000000 /dev/zero | wc -c; "
	for _, c := range []struct {
		shell   string
		reason  muster.Reason
		wantMsg string
	}{
		{eats + "exit 4", muster.OutOfMemory, "may use 64MiB"},
		{"exec tail -c 400000000 /dev/zero", muster.OutOfMemory, "resources.memory"},
		{eats + "exit 0", muster.NoReason, ""},
		{"for i in $(seq 40); do sleep 5 & done; exit 3", muster.PIDLimit, "resources.pids"},
		{"exit 3", muster.ExitCode, "exit code 3"},
	} {
		task := containerTask(image, c.shell)
		task.Grant = muster.Grant{Memory: 64 << 20, PIDs: 24, CPUs: 1}
		r, _, _ := runTask(t, w, muster.KindContainer, task)
		if r.Reason != c.reason || !strings.Contains(r.Message, c.wantMsg) {
			t.Errorf("%s: got %s, %q; want %s, %q", c.shell, r.Reason, r.Message, c.reason, c.wantMsg)
		}
		if r.Usage == nil || r.Usage.CPUSeconds <= 0 || c.reason == muster.OutOfMemory && r.Usage.MemoryPeak < 60<<20 {
			t.Errorf("%s: usage %+v", c.shell, r.Usage)
		}
	}
}

// fakeContainers is a container engine that does not answer, or that cannot do what is asked of it.
type fakeContainers struct {
	readyErr, createErr error
}

func (d fakeContainers) Ready() error { return d.readyErr }

func (d fakeContainers) Create(context.Context, *run.ContainerSpec, func(string), func(string)) (*run.Container, error) {
	return nil, d.createErr
}

func (fakeContainers) Exec(context.Context, *run.Container, *run.ExecSpec) (run.ExecProc, error) {
	return nil, &run.ExecError{Message: "no container runs"}
}

func (d fakeContainers) Image(context.Context, *run.Task, func(string), func(string)) (id, name string, err error) {
	return "", "", d.createErr
}

func (d fakeContainers) RunTool(context.Context, *run.ContainerSpec, io.Writer) (int, error) {
	return 0, d.createErr
}

func (fakeContainers) Started(*run.Container) {}

func (fakeContainers) Remove(context.Context, *run.Container) error { return nil }

func TestAutoIsolation(t *testing.T) {
	errDown := errors.New("the container engine does not answer")
	for name, c := range map[string]struct {
		containers process.Containers // nil for the real one
		kind       string
		change     func(*muster.TaskSpec)
		reason     muster.Reason
		logged     string // in the log, or as the message
		pwd        string
	}{
		"in a container":              {logged: "runs in a container of ", pwd: "/muster/work"},
		"without an engine":           {containers: noEngine{}, logged: "runs as a process: this worker has no container engine"},
		"while it is down":            {containers: fakeContainers{readyErr: errDown}, logged: "runs as a process: the container engine does not answer"},
		"without what it needs":       {containers: fakeContainers{createErr: run.Failf(muster.Dependency, "no toolkit for GPUs")}, logged: "runs as a process: no toolkit"},
		"but the image is missing":    {containers: fakeContainers{createErr: run.Failf(muster.ImageMissing, "no image a")}, reason: muster.ImageMissing, logged: "no image a"},
		"but has to be in one":        {containers: fakeContainers{readyErr: errDown}, change: func(s *muster.TaskSpec) { s.Isolation = muster.IsolationContainer }, reason: muster.EngineFailed, logged: "does not answer"},
		"but has no command":          {containers: fakeContainers{readyErr: errDown}, change: func(s *muster.TaskSpec) { s.Run = nil }, reason: muster.EngineFailed, logged: "does not answer"},
		"but is of kind container":    {containers: fakeContainers{readyErr: errDown}, kind: muster.KindContainer, reason: muster.EngineFailed, logged: "does not answer"},
		"with an image and no word":   {change: func(s *muster.TaskSpec) { s.Isolation = "" }, pwd: "/muster/work"},
		"as a process that was asked": {change: func(s *muster.TaskSpec) { s.Isolation = muster.IsolationProcess }},
	} {
		t.Run(name, func(t *testing.T) {
			w := runtest.NewEnv(t)
			useContainers(t, w.Deps)
			switch c.containers.(type) {
			case nil:
			case noEngine:
				w.Deps.Containers = nil
			default:
				w.Deps.Containers = c.containers
			}
			task := containerTask(shellImage(t), "pwd; test -L state && echo 1 > state/n")
			task.Spec.Isolation = muster.IsolationAuto
			task.Spec.Checkpoint = &muster.Checkpoint{Path: "state"}
			if c.change != nil {
				c.change(task.Spec)
			}
			r, out, logged := runTask(t, w, cmp.Or(c.kind, muster.KindProcess), task)
			if r.Reason != c.reason || !strings.Contains(logged+r.Message, c.logged) {
				t.Errorf("got %s, %q, the log is %q", r.Reason, r.Message, logged)
			}
			if c.logged == "" && logged != "" {
				t.Errorf("the log is %q", logged)
			}
			if r.Outcome == muster.AttemptSucceeded && (c.pwd != "" && out != c.pwd+"\n" || c.pwd == "" && !strings.HasPrefix(out, w.Deps.Dir)) {
				t.Errorf("it ran in %s", out)
			}
		})
	}
}

// noEngine represents a worker without an engine.
type noEngine struct{ process.Containers }

// TestContainerLeftBeforeItsStartIsRemoved does not stay.
func TestContainerLeftBeforeItsStartIsRemoved(t *testing.T) {
	w := runtest.NewEnv(t)
	useContainers(t, w.Deps)
	before := containertest.ListResources(t, containertest.SharedEngine(t), w.Deps.Dir)
	ctx, detach := context.WithCancelCause(t.Context())
	w.Deps.Containers = detachAfterCreate{w.Deps.Containers, func() { detach(run.ErrDetach) }}
	x, err := process.NewKind(w.Deps, muster.KindContainer, process.KindHooks{})
	if err != nil {
		t.Fatal(err)
	}
	task := containerTask(shellImage(t), "true")
	task.Attempt = muster.AttemptID{Task: muster.TaskID{Job: 22, Num: os.Getpid()}, N: 1}
	if r := x.Run(ctx, task, &runtest.Recorder{}); r.Outcome != muster.AttemptOpen || len(w.Deps.Supervisor.Recovered()) != 0 {
		t.Errorf("%+v", r)
	}
	containertest.AwaitCleanup(t, containertest.SharedEngine(t), w.Deps.Dir, before)
}

// detachAfterCreate detaches the worker from its tasks once a container is created.
type detachAfterCreate struct {
	process.Containers

	detach func()
}

func (l detachAfterCreate) Create(ctx context.Context, b *run.ContainerSpec, logLine, step func(string)) (*run.Container, error) {
	c, err := l.Containers.Create(ctx, b, logLine, step)
	l.detach()
	return c, err
}
