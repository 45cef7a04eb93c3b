package workerd

import (
	"context"
	"errors"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/traceparent"
)

// fakeExecutor is an executor that only calls f.
type fakeExecutor struct{ f func(*run.Task) muster.Report }

func (fakeExecutor) Kind() string { return "instant" }

func (x fakeExecutor) Run(_ context.Context, t *run.Task, _ run.Reporter) muster.Report {
	return x.f(t)
}

func succeed(*run.Task) muster.Report { return muster.Report{Outcome: muster.AttemptSucceeded} }

func anAttempt(uid string) *run.Task {
	return &run.Task{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}, Job: uid, Spec: &muster.TaskSpec{Kind: "instant"}}
}

// TestDisabledMetricsCostNothing checks that attempts of a worker without metrics, traces and log allocate nothing more.
func TestDisabledMetricsCostNothing(t *testing.T) {
	ctx, task := t.Context(), anAttempt(traceparent.NewUID(t.Context()))
	x := new(Worker).instrument([]run.Executor{fakeExecutor{succeed}}, "w-1")[0]
	if n := testing.AllocsPerRun(100, func() { x.Run(ctx, task, nil) }); n != 0 {
		t.Errorf("an attempt without metrics allocates %v times", n)
	}
}

func BenchmarkMeasured(b *testing.B) {
	for name, w := range map[string]*Worker{
		"off":     {},
		"metrics": {metrics: obs.NewWorker(obs.NewRegistry(obs.Build{}), nil)},
	} {
		b.Run(name, func(b *testing.B) {
			ctx, task := b.Context(), anAttempt(traceparent.NewUID(b.Context()))
			x := w.instrument([]run.Executor{fakeExecutor{succeed}}, "w-1")[0]
			b.ReportAllocs()
			for b.Loop() {
				x.Run(ctx, task, nil)
			}
		})
	}
}

// TestTraceOfAnAttempt checks what a task finds in TRACEPARENT.
func TestTraceOfAnAttempt(t *testing.T) {
	parent := traceparent.Parent{Trace: [16]byte{1}, Span: [8]byte{2}, Flags: 1}
	within := traceparent.NewUID(traceparent.NewContext(t.Context(), parent))
	for _, tc := range []struct {
		name, uid string
		env       map[string]string
		want      string
	}{
		{"no trace", traceparent.NewUID(t.Context()), nil, ""},
		{"of the submission", within, nil, parent.String()},
		{"of the submission, beside others", within, map[string]string{"A": "1"}, parent.String()},
		{"of the task itself", within, map[string]string{traceparent.EnvVar: "mine"}, "mine"},
		{"an older server", "", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			task := anAttempt(tc.uid)
			shared := task.Spec
			shared.Env = tc.env
			got, other := "", ""
			new(Worker).instrument([]run.Executor{fakeExecutor{func(t *run.Task) muster.Report {
				got, other = t.Spec.Env[traceparent.EnvVar], t.Spec.Env["A"]
				return succeed(t)
			}}}, "w-1")[0].Run(t.Context(), task, nil)
			if got != tc.want || other != tc.env["A"] {
				t.Errorf("the task finds %q, and A=%q", got, other)
			}
			if shared.Env[traceparent.EnvVar] != tc.env[traceparent.EnvVar] {
				t.Error("the stage's own spec was changed, which other attempts share")
			}
		})
	}
}

// TestMeasuredPanics checks that a panic of an executor is counted and propagated to the agent.
func TestMeasuredPanics(t *testing.T) {
	registry := obs.NewRegistry(obs.Build{})
	w := &Worker{metrics: obs.NewWorker(registry, nil)}
	boom := errors.New("boom")
	x := w.instrument([]run.Executor{fakeExecutor{func(*run.Task) muster.Report { panic(boom) }}}, "w-1")[0]
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, boom) {
			t.Errorf("recovered %v", err)
		}
	}()
	x.Run(t.Context(), anAttempt("j1"), nil)
	t.Error("the panic was lost")
}
