//go:build linux

package process_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/runtest"
	"github.com/muster-dev/muster/internal/mustertest/engines"
	"github.com/muster-dev/muster/internal/tasklog"
)

// boxed runs the tasks of another executor in containers.
type boxed struct {
	run.Executor

	image string
	aside string // a folder that they can look into
}

// Run implements run.Executor.
func (b *boxed) Run(ctx context.Context, t *run.Task, sink run.Sink) muster.Report {
	if t.Held == nil {
		task, spec := *t, *t.Spec
		spec.Image, spec.Isolation = b.image, muster.IsolationContainer
		spec.Container = &muster.Container{Mounts: []muster.Mount{{Source: b.aside, Target: b.aside, ReadOnly: true}}}
		task.Spec = &spec
		t = &task
	}
	return b.Executor.Run(ctx, t, sink)
}

var workers atomic.Int64

// contained gives an environment real containers and limits.
func contained(t *testing.T, env *run.Env) {
	t.Helper()
	engine, err := docker.Open(engines.Shared(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	boxes, err := container.New(container.Config{
		Engine: engine, Worker: fmt.Sprintf("c%d%d", os.Getpid(), workers.Add(1)), Dir: env.Dir,
		Allow: &muster.Allow{Mounts: []string{runtest.Aside(env)}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	runtest.Await(t, "the engine is ready", func() bool { return boxes.Ask(t.Context()) == nil })
	env.Containers = boxes
	if env.Limits == nil && env.Meter == nil { // a test that has its own wants no other figures
		limits, err := limit.New(limit.Config{Data: env.Dir, Log: env.Log})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(limits.Close)
		env.Limits = limits
	}
}

// shellImage is an image with a shell, and programs where machines have them.
func shellImage(t *testing.T) string {
	t.Helper()
	b := engines.Shell(t)
	b.Links["/usr/bin"] = "/bin"
	return engines.Image(t, engines.Shared(t), fmt.Sprintf("muster-test/process:%d-%d", os.Getpid(), workers.Add(1)), b)
}

// inContainers opens executors whose tasks run in containers.
func inContainers(t *testing.T) runtest.Open {
	t.Helper()
	image := shellImage(t)
	return func(env *run.Env) (run.Executor, error) {
		if env.Containers == nil {
			contained(t, env)
		}
		x, err := process.NewKind(env, muster.KindContainer, process.Extras{})
		return &boxed{x, image, runtest.Aside(env)}, err
	}
}

// left are the cases that make no sense in a container.
var left = map[string]string{
	"what cannot be started says why":                                 "programs are looked for in the image: see TestWhatAnImageCannotStart",
	"a task sees its own environment only":                            "that of a container is another: see TestWhatAContainerSees",
	"although it would join the worker's own group":                   "processes of a container are in a session of its own, and the image has no perl",
	"what the kernel counted explains a failure":                      "a container's groups are counted, not what a Limiter makes up: see TestAContainerThatNeedsMore",
	"devices are lent and taken back, and their fault is the failure": "an engine shows devices, and has none here",
}

func TestContractInContainers(t *testing.T) { runtest.RunBut(t, inContainers(t), left) }

// TestContractInContainersOverAShim is the same with containers that outlive the worker.
func TestContractInContainersOverAShim(t *testing.T) {
	runtest.RunBut(t, inContainers(t), left, os.Args[0], shimWord)
}

// one runs a task of a world with containers, and returns its report and what it printed.
func one(t *testing.T, w *runtest.World, kind string, task *run.Task) (r muster.Report, stdout, said string) {
	t.Helper()
	x, err := process.NewKind(w.Env, kind, process.Extras{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runtest.Patience)
	defer cancel()
	task.Attempt = muster.AttemptID{Task: muster.TaskID{Job: 21, Num: int(workers.Add(1))}, N: 1}
	r = x.Run(ctx, task, runtest.NewSink())
	return r, w.Output(t, task.Attempt, tasklog.Stdout), w.Output(t, task.Attempt, tasklog.System)
}

// boxedTask is a task in a container.
func boxedTask(image, shell string) *run.Task {
	spec := &muster.TaskSpec{Kind: muster.KindContainer, Isolation: muster.IsolationContainer, Image: image}
	if shell != "" {
		spec.Run = &muster.Command{Shell: shell}
	}
	return &run.Task{Spec: spec}
}

func TestWhatAContainerSees(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	w := runtest.NewWorld(t)
	contained(t, w.Env)
	task := boxedTask(shellImage(t), "env; pwd; ls -A; ls /muster/sdk; cat in.txt; touch /muster/sdk/x 2>/dev/null && echo writable; true")
	task.Spec.Env = map[string]string{"SEED": "1", "MUSTER_TASK": "forged", "PYTHONPATH": "lib"}
	task.Spec.Checkpoint = &muster.Checkpoint{Path: "state"}
	task.Inputs = []run.Input{{Path: "in.txt", SHA256: w.Blob("data\n"), Size: 5}}
	r, out, _ := one(t, w, muster.KindContainer, task)
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
	for _, word := range []string{"hunter2", "writable", "USER=", "LANG=", os.Getenv("PATH"), w.Env.Dir} {
		if strings.Contains(out, word) {
			t.Errorf("%s is there:\n%s", word, out)
		}
	}
}

// TestAnImagesOwnCommand runs in the image's own folder, as its own user.
func TestAnImagesOwnCommand(t *testing.T) {
	w := runtest.NewWorld(t)
	contained(t, w.Env)
	b := engines.Shell(t)
	b.User, b.Workdir, b.Cmd = "user", "/home", []string{"sh", "-c", "pwd; id -u; echo 1 > $MUSTER_OUT/o.txt; echo 2 > $MUSTER_CHECKPOINT/n; echo 3 > $TMPDIR/t; echo '{\"step\": \"x\"}' >> $MUSTER_EVENTS; cat /muster/sdk/muster.py | wc -l"}
	image := engines.Image(t, engines.Shared(t), fmt.Sprintf("muster-test/own:%d", os.Getpid()), b)
	r, out, _ := one(t, w, muster.KindContainer, boxedTask(image, ""))
	if r.Outcome != muster.AttemptSucceeded || len(r.Artifacts) != 1 || !strings.HasPrefix(out, "/home\n1000\n") || strings.HasSuffix(out, "\n0\n") {
		t.Errorf("%+v printed %q", r, out)
	}
	task := boxedTask(image, "cat work.sh; ./work.sh && echo more >> in/deep.txt && cp in/deep.txt out.txt")
	task.Spec.Files = w.Tree(map[string]string{"work.sh": "#!/bin/sh\nid -u\n", "in/deep.txt": "x"})
	task.Spec.Outputs = []string{"out.txt"}
	if r, out, _ = one(t, w, muster.KindContainer, task); r.Outcome != muster.AttemptSucceeded || len(r.Artifacts) != 1 || !strings.HasSuffix(out, "\n1000\n") {
		t.Errorf("%+v printed %q", r, out)
	}
}

func TestWhatAnImageCannotStart(t *testing.T) {
	w := runtest.NewWorld(t)
	contained(t, w.Env)
	image := shellImage(t)
	for _, c := range []struct {
		change func(*muster.TaskSpec)
		reason muster.Reason
		says   string
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
		task := boxedTask(image, "true")
		c.change(task.Spec)
		r, _, _ := one(t, w, muster.KindContainer, task)
		if r.Outcome != muster.AttemptFailed || r.Reason != c.reason || !strings.Contains(r.Message, c.says) {
			t.Errorf("got %s, %q; want %s, %q", r.Reason, r.Message, c.reason, c.says)
		}
	}
}

// TestAContainerThatNeedsMore is told from one that fails.
func TestAContainerThatNeedsMore(t *testing.T) {
	w := runtest.NewWorld(t)
	contained(t, w.Env)
	image := shellImage(t)
	const eats = "tail -c 400000000 /dev/zero | wc -c; "
	for _, c := range []struct {
		shell  string
		reason muster.Reason
		says   string
	}{
		{eats + "exit 4", muster.OutOfMemory, "may have 64MiB"},
		{"exec tail -c 400000000 /dev/zero", muster.OutOfMemory, "resources.memory"},
		{eats + "exit 0", muster.NoReason, ""},
		{"for i in $(seq 40); do sleep 5 & done; exit 3", muster.PIDLimit, "resources.pids"},
		{"exit 3", muster.ExitCode, "exit code 3"},
	} {
		task := boxedTask(image, c.shell)
		task.Grant = muster.Grant{Memory: 64 << 20, PIDs: 24, CPUs: 1}
		r, _, _ := one(t, w, muster.KindContainer, task)
		if r.Reason != c.reason || !strings.Contains(r.Message, c.says) {
			t.Errorf("%s: got %s, %q; want %s, %q", c.shell, r.Reason, r.Message, c.reason, c.says)
		}
		if r.Usage == nil || r.Usage.CPUSeconds <= 0 || c.reason == muster.OutOfMemory && r.Usage.MemoryPeak < 60<<20 {
			t.Errorf("%s: usage %+v", c.shell, r.Usage)
		}
	}
}

// down is a container engine that does not answer, or that cannot do what is asked of it.
type down struct {
	ready, made error
}

func (d down) Ready() error { return d.ready }

func (d down) Make(context.Context, *run.Box, func(string), func(string)) (*run.Container, error) {
	return nil, d.made
}

func (down) Remove(context.Context, *run.Container) error { return nil }

func TestATaskThatMayRunEitherWay(t *testing.T) {
	away := errors.New("the container engine does not answer")
	for name, c := range map[string]struct {
		boxes  run.Containers // nil for the real one
		kind   string
		change func(*muster.TaskSpec)
		reason muster.Reason
		said   string // in the log, or as the message
		pwd    string
	}{
		"in a container":              {said: "runs in a container of ", pwd: "/muster/work"},
		"without an engine":           {boxes: none{}, said: "runs as a process: this worker has no container engine"},
		"while it is down":            {boxes: down{ready: away}, said: "runs as a process: the container engine does not answer"},
		"without what it needs":       {boxes: down{made: run.Failf(muster.Dependency, "no toolkit for GPUs")}, said: "runs as a process: no toolkit"},
		"but the image is missing":    {boxes: down{made: run.Failf(muster.ImageMissing, "no image a")}, reason: muster.ImageMissing, said: "no image a"},
		"but has to be in one":        {boxes: down{ready: away}, change: func(s *muster.TaskSpec) { s.Isolation = muster.IsolationContainer }, reason: muster.EngineFailed, said: "does not answer"},
		"but has no command":          {boxes: down{ready: away}, change: func(s *muster.TaskSpec) { s.Run = nil }, reason: muster.EngineFailed, said: "does not answer"},
		"but is of kind container":    {boxes: down{ready: away}, kind: muster.KindContainer, reason: muster.EngineFailed, said: "does not answer"},
		"with an image and no word":   {change: func(s *muster.TaskSpec) { s.Isolation = "" }, pwd: "/muster/work"},
		"as a process that was asked": {change: func(s *muster.TaskSpec) { s.Isolation = muster.IsolationProcess }},
	} {
		t.Run(name, func(t *testing.T) {
			w := runtest.NewWorld(t)
			contained(t, w.Env)
			switch c.boxes.(type) {
			case nil:
			case none:
				w.Env.Containers = nil
			default:
				w.Env.Containers = c.boxes
			}
			task := boxedTask(shellImage(t), "pwd; test -L state && echo 1 > state/n")
			task.Spec.Isolation = muster.IsolationAuto
			task.Spec.Checkpoint = &muster.Checkpoint{Path: "state"}
			if c.change != nil {
				c.change(task.Spec)
			}
			r, out, said := one(t, w, cmp.Or(c.kind, muster.KindProcess), task)
			if r.Reason != c.reason || !strings.Contains(said+r.Message, c.said) {
				t.Errorf("got %s, %q, the log says %q", r.Reason, r.Message, said)
			}
			if c.said == "" && said != "" {
				t.Errorf("the log says %q", said)
			}
			if r.Outcome == muster.AttemptSucceeded && (c.pwd != "" && out != c.pwd+"\n" || c.pwd == "" && !strings.HasPrefix(out, w.Env.Dir)) {
				t.Errorf("it ran in %s", out)
			}
		})
	}
}

// none stands for a worker without an engine.
type none struct{ run.Containers }

// TestAContainerThatIsLeftBeforeItsStart does not stay.
func TestAContainerThatIsLeftBeforeItsStart(t *testing.T) {
	w := runtest.NewWorld(t)
	contained(t, w.Env)
	before := engines.Census(t, engines.Shared(t), w.Env.Dir)
	ctx, leave := context.WithCancelCause(t.Context())
	w.Env.Containers = leaving{w.Env.Containers, func() { leave(run.ErrLeave) }}
	x, err := process.NewKind(w.Env, muster.KindContainer, process.Extras{})
	if err != nil {
		t.Fatal(err)
	}
	task := boxedTask(shellImage(t), "true")
	task.Attempt = muster.AttemptID{Task: muster.TaskID{Job: 22, Num: os.Getpid()}, N: 1}
	if r := x.Run(ctx, task, runtest.NewSink()); r.Outcome != muster.AttemptOpen || len(w.Env.Supervisor.Held()) != 0 {
		t.Errorf("%+v", r)
	}
	engines.NothingLeft(t, engines.Shared(t), w.Env.Dir, before)
}

// leaving has the worker leave its tasks once a container is made.
type leaving struct {
	run.Containers

	leave func()
}

func (l leaving) Make(ctx context.Context, b *run.Box, say, step func(string)) (*run.Container, error) {
	c, err := l.Containers.Make(ctx, b, say, step)
	l.leave()
	return c, err
}
