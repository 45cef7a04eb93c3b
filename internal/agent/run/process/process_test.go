//go:build unix

package process_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/runtest"
	"github.com/muster-dev/muster/internal/agent/shim"
	"github.com/muster-dev/muster/internal/tasklog"
)

func newExecutor(env *process.Deps) (run.Executor, error) { return process.New(env) }

// shimArg is the first argument by which this program is a shim.
const shimArg = "be-the-shim"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == shimArg {
		if err := shim.Main(os.Args[2:]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestContract(t *testing.T) { runtest.Run(t, newExecutor) }

// TestContractOverAShim is TestContract with processes that continue without the worker.
func TestContractOverAShim(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are shims on Linux only")
	}
	if testing.Short() {
		t.Skip("TestContract is enough for -short")
	}
	runtest.Run(t, newExecutor, os.Args[0], shimArg)
}

func TestPythonIsForScripts(t *testing.T) {
	w := runtest.NewEnv(t)
	x, err := process.New(w.Deps)
	if err != nil {
		t.Fatal(err)
	}
	r := x.Run(t.Context(), &run.Task{
		Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1},
		Spec:    &muster.TaskSpec{Run: &muster.Command{Shell: "true"}, Python: &muster.Python{}},
	}, &runtest.Recorder{})
	if r.Reason != muster.TaskInvalid {
		t.Errorf("%+v", r)
	}
}

// TestTasksCannotReplaceWorkerFiles checks that tasks do not inherit files that the worker's parent left open.
func TestTasksCannotReplaceWorkerFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux shows the open files of a process")
	}
	secret, err := os.Create(filepath.Join(t.TempDir(), "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	fd, err := unix.Dup(int(secret.Fd())) // without close-on-exec, as it would be inherited
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	w := runtest.NewEnv(t)
	x, err := process.New(w.Deps)
	if err != nil {
		t.Fatal(err)
	}
	task := &run.Task{
		Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1},
		Spec:    &muster.TaskSpec{Run: &muster.Command{Argv: []string{"/bin/ls", "-l", "/proc/self/fd"}}},
	}
	r := x.Run(t.Context(), task, &runtest.Recorder{})
	got := w.Output(t, task.Attempt, tasklog.Stdout)
	// Standard input and output, and the folder that ls lists.
	if r.Outcome != muster.AttemptSucceeded || strings.Contains(got, secret.Name()) || strings.Count(got, "->") != 4 {
		t.Errorf("%s; the task has:\n%s", r.Message, got)
	}
}

// discardReporter is a sink that costs nothing.
type discardReporter struct{}

func (discardReporter) Started(muster.Time)      {}
func (discardReporter) Process(run.Pid)          {}
func (discardReporter) Progress(muster.Progress) {}
func (discardReporter) LogGrew(int64)            {}

// BenchmarkProcess is to be compared with BenchmarkBareExec in the same run. The
// shim is a part of the measured process, so that its time counts.
func BenchmarkProcess(b *testing.B) { benchmark(b) }

// BenchmarkProcessOverAShim counts the time of the worker's side only.
func BenchmarkProcessOverAShim(b *testing.B) { benchmark(b, os.Args[0], shimArg) }

func benchmark(b *testing.B, command ...string) {
	b.Helper()
	for name, argv := range map[string][]string{"true": {"/bin/true"}, "echo": {"/bin/echo", "hello"}} {
		w := runtest.NewEnv(b, command...)
		x, err := process.New(w.Deps)
		if err != nil {
			b.Fatal(err)
		}
		spec := &muster.TaskSpec{Run: &muster.Command{Argv: argv}}
		var n atomic.Int64
		each(b, name, func(ctx context.Context) error {
			id := muster.AttemptID{Task: muster.TaskID{Job: 1, Num: int(n.Add(1))}, N: 1}
			if r := x.Run(ctx, &run.Task{Attempt: id, Spec: spec}, discardReporter{}); r.Outcome != muster.AttemptSucceeded {
				return errors.New(r.Message)
			}
			return nil
		})
	}
}

func BenchmarkBareExec(b *testing.B) {
	each(b, "true", func(ctx context.Context) error { return exec.CommandContext(ctx, "/bin/true").Run() })
}

// each measures f one after the other, and by several at once.
func each(b *testing.B, name string, f func(context.Context) error) {
	b.Helper()
	b.Run(name+"/serial", func(b *testing.B) {
		n, before := 0, cpuTime(b)
		for b.Loop() {
			n++
			if err := f(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((cpuTime(b)-before)*1e3/float64(n), "cpu-ms/op")
	})
	b.Run(name+"/parallel", func(b *testing.B) {
		before := cpuTime(b)
		b.SetParallelism(2)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := f(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric((cpuTime(b)-before)*1e3/float64(b.N), "cpu-ms/op")
	})
}

// cpuTime is what this process and its children have used so far, in seconds.
func cpuTime(b *testing.B) float64 {
	b.Helper()
	total := 0.0
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var ru unix.Rusage
		if err := unix.Getrusage(who, &ru); err != nil {
			b.Fatal(err)
		}
		total += float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
	}
	return total
}
