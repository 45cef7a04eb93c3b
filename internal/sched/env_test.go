package sched_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

const gib = muster.Size(1) << 30

// env drives one scheduler with scripted events.
type env struct {
	t        *testing.T
	s        *sched.State
	now      muster.Time
	store    *memStore
	commands []sched.Command // of the last turn
	last     sched.Effects
}

func newEnv(t *testing.T) *env {
	t.Helper()
	return &env{t: t, s: sched.New(sched.Config{}), now: 1_000_000, store: newMemStore()}
}

// do applies events that must succeed, and ends the batch.
func (d *env) do(events ...sched.Event) {
	d.t.Helper()
	for _, ev := range events {
		if err := d.s.Apply(d.now, ev); err != nil {
			d.t.Fatalf("%#v: %v", ev, err)
		}
	}
	d.flush()
}

// refuse applies an event that must be refused with that code.
func (d *env) refuse(code muster.Code, ev sched.Event) {
	d.t.Helper()
	if err := d.s.Apply(d.now, ev); err == nil || muster.CodeOf(err) != code {
		d.t.Fatalf("%#v: %v, want a refusal with %s", ev, err, code)
	}
	d.flush()
}

func (d *env) flush() {
	d.t.Helper()
	d.s.Place(d.now)
	d.last = d.s.Flush()
	d.commands = d.last.Commands
	if err := d.store.commit(d.last.Rows); err != nil {
		d.t.Fatal(err)
	}
	if err := d.s.Check(); err != nil {
		d.t.Fatal(err)
	}
}

// advance advances the time, with the ticks that NextTick asks for.
func (d *env) advance(by muster.Duration) {
	d.t.Helper()
	end := d.now.Add(by)
	var commands []sched.Command
	for at := d.s.NextTick(); at != 0 && at <= end; at = d.s.NextTick() {
		d.now = max(d.now, at)
		d.do(sched.Tick{})
		commands = append(commands, d.commands...)
	}
	d.now, d.commands = end, commands
}

func (d *env) join(name string, change ...func(*muster.Worker)) muster.WorkerID {
	d.t.Helper()
	d.do(sched.Joined{Worker: offer(name, change...)})
	return muster.WorkerID(name)
}

func offer(name string, change ...func(*muster.Worker)) muster.Worker {
	w := muster.Worker{ID: muster.WorkerID(name), Name: name, Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 4, Memory: 16 * gib, Slots: 2}}
	for _, c := range change {
		c(&w)
	}
	return w
}

// submit submits stages; a name such as "a*3" makes an array, "b<a" needs a.
func (d *env) submit(stages ...muster.TaskSpec) muster.JobID {
	d.t.Helper()
	return d.submitAs("default", muster.DefaultPriority, stages...)
}

func (d *env) submitAs(project string, priority int, stages ...muster.TaskSpec) muster.JobID {
	d.t.Helper()
	id := d.s.NextJob()
	d.do(sched.Submit{ID: id, Spec: &muster.Spec{Name: "job", Project: project, Priority: &priority, Tasks: stages}})
	return id
}

func stage(text string, change ...func(*muster.TaskSpec)) muster.TaskSpec {
	name, needs, _ := strings.Cut(text, "<")
	name, size, array := strings.Cut(name, "*")
	t := muster.TaskSpec{Name: name, Kind: muster.KindNoop}
	if needs != "" {
		t.Needs = strings.Split(needs, ",")
	}
	if array {
		var n int64
		if _, err := fmt.Sscan(size, &n); err != nil {
			panic(err)
		}
		t.Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: n - 1, Step: 1}}}
	}
	for _, c := range change {
		c(&t)
	}
	return t
}

func (d *env) task(job muster.JobID, num int) muster.Task {
	return d.store.allTasks(job)[num]
}

func (d *env) attempt(job muster.JobID, num int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: job, Num: num}, N: d.task(job, num).Attempt}
}

// wantTask checks that a task is in that state, with that reason.
func (d *env) wantTask(job muster.JobID, num int, state muster.TaskState, reason muster.Reason) {
	d.t.Helper()
	if t := d.task(job, num); t.State != state || t.Reason != reason {
		d.t.Fatalf("task %s is %s (%s: %s), want %s (%s)", t.ID, t.State, t.Reason, t.Message, state, reason)
	}
}

func (d *env) start(job muster.JobID, num int) {
	d.t.Helper()
	d.do(sched.Started{Worker: d.task(job, num).Worker, Attempt: d.attempt(job, num), At: d.now})
}

func (d *env) finish(job muster.JobID, num int, outcome muster.Outcome, change ...func(*muster.Report)) {
	d.t.Helper()
	r := muster.Report{Attempt: d.attempt(job, num), Outcome: outcome, FinishedAt: d.now}
	for _, c := range change {
		c(&r)
	}
	d.do(sched.Finished{Worker: d.task(job, num).Worker, Report: r})
}

func withReason(reason muster.Reason) func(*muster.Report) {
	return func(r *muster.Report) { r.Reason = reason }
}

func withExitCode(code int) func(*muster.Report) {
	return func(r *muster.Report) { r.ExitCode = &code }
}

func (d *env) job(id muster.JobID) muster.JobState { return d.store.jobs[id].State }

// wantSent checks that exactly these commands were sent in the last batch, each written as
// "assign w 1.0#1", "stop w 1.0#1 lost", "leave w" or "heal w GPU-1".
func (d *env) wantSent(want ...string) {
	d.t.Helper()
	var got []string
	for _, cmd := range d.commands {
		switch w := cmd.(type) {
		case sched.Assign:
			got = append(got, fmt.Sprintf("assign %s %s", w.Worker, w.Attempt))
		case sched.Stop:
			got = append(got, fmt.Sprintf("stop %s %s %s", w.Worker, w.Attempt, w.Outcome))
		case sched.Drained:
			got = append(got, "leave "+string(w.Worker))
		case sched.HealGPUs:
			got = append(got, "heal "+string(w.Worker)+" "+strings.Join(w.GPUs, ","))
		}
	}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		d.t.Fatalf("sent %q, want %q", got, want)
	}
}
