package sched_test

import (
	"fmt"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched"
)

func noops(n int) *muster.Spec {
	ts := muster.TaskSpec{Name: "task", Kind: muster.KindNoop}
	if n > 1 {
		ts.Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(n - 1), Step: 1}}}
	}
	return &muster.Spec{Name: "noops", Project: "default", Tasks: []muster.TaskSpec{ts}}
}

func apply(tb testing.TB, s *sched.State, now muster.Time, ev sched.Event) {
	tb.Helper()
	if err := s.Apply(now, ev); err != nil {
		tb.Fatal(err)
	}
}

func joinMany(tb testing.TB, s *sched.State, n, slots int) {
	tb.Helper()
	for i := range n {
		id := muster.WorkerID(fmt.Sprintf("w%05d", i))
		apply(tb, s, 1, sched.Joined{Worker: muster.Worker{
			ID: id, Name: string(id), Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 8, Memory: 32 << 30, Slots: slots},
		}})
	}
}

// BenchmarkPlace measures one decision, with the release that makes room for it,
// at 10,000 workers and 1,000,000 queued tasks.
func BenchmarkPlace(b *testing.B) {
	const queued = 1_000_000
	for _, c := range []struct {
		name string
		jobs int
	}{{"array", 1}, {"jobs", queued}} {
		b.Run(c.name, func(b *testing.B) {
			s := sched.New(sched.Config{})
			joinMany(b, s, 10_000, 4)
			spec := noops(queued / c.jobs)
			for range c.jobs {
				apply(b, s, 1, sched.Submit{ID: s.NextJob(), Spec: spec})
			}
			s.Place(1)
			running := assigned(s.Flush())
			done := 0
			b.ReportAllocs()
			for b.Loop() {
				if len(running) == 0 {
					s.Place(1)
					running = assigned(s.Flush())
				}
				a := running[0]
				running = running[1:]
				apply(b, s, 1, sched.Finished{Worker: a.Worker, Report: muster.Report{Attempt: a.Attempt, Outcome: muster.AttemptSucceeded, FinishedAt: 1}})
				if done++; done == queued-50_000 {
					b.Fatal("the queue is too short for so many rounds: use -benchtime with fewer")
				}
				s.Place(1)
				running = append(running, assigned(s.Flush())...)
			}
		})
	}
}

func assigned(fx sched.Effects) []sched.Assign {
	list := make([]sched.Assign, 0, len(fx.Commands))
	for _, cmd := range fx.Commands {
		if a, ok := cmd.(sched.Assign); ok {
			list = append(list, a)
		}
	}
	return list
}

// BenchmarkTaskLifecycle measures what a no-op task costs from queued to succeeded, in
// batches as the engine makes them.
func BenchmarkTaskLifecycle(b *testing.B) {
	s := sched.New(sched.Config{})
	joinMany(b, s, 1, 64)
	done := 0
	b.ReportAllocs()
	for b.Loop() {
		if done == 0 {
			if !s.Live(s.NextJob() - 1) {
				apply(b, s, 1, sched.Submit{ID: s.NextJob(), Spec: noops(1_000_000)})
			}
			s.Place(1)
			for _, a := range assigned(s.Flush()) {
				apply(b, s, 1, sched.Finished{Worker: a.Worker, Report: muster.Report{
					Attempt: a.Attempt, Outcome: muster.AttemptSucceeded, StartedAt: 1, FinishedAt: 1,
				}})
				done++
			}
		}
		done--
	}
}

// BenchmarkRebuild measures a restart with 1,000,000 live tasks: as one array, and
// as rows of their own.
func BenchmarkRebuild(b *testing.B) {
	const n = 1_000_000
	for _, c := range []struct {
		name string
		rows bool
	}{{"rest", false}, {"rows", true}} {
		b.Run(c.name, func(b *testing.B) {
			s := sched.New(sched.Config{})
			apply(b, s, 1, sched.Submit{ID: 1, Spec: noops(n)})
			snap := s.Snapshot()
			if c.rows {
				g := &snap.Groups[0]
				g.Materialized = n
				for i := range n {
					snap.Tasks = append(snap.Tasks, muster.Task{ID: muster.TaskID{Job: 1, Num: i}, Job: 1, Index: i, State: muster.Queued, QueuedAt: 1})
				}
			}
			for b.Loop() {
				if _, err := sched.Rebuild(sched.Config{}, 2, snap); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPlaceManyNeeds measures a batch of one finish while tasks of 500
// different needs do not fit.
func BenchmarkPlaceManyNeeds(b *testing.B) {
	s := sched.New(sched.Config{})
	joinMany(b, s, 1000, 64)
	for i := range 500 {
		spec := noops(100)
		spec.Tasks[0].Resources.Memory = muster.Size(64+i) << 30
		apply(b, s, 1, sched.Submit{ID: s.NextJob(), Spec: spec})
	}
	apply(b, s, 1, sched.Submit{ID: s.NextJob(), Spec: noops(10_000_000)})
	s.Place(1)
	running := assigned(s.Flush())
	b.ReportAllocs()
	for b.Loop() {
		a := running[0]
		running = running[1:]
		apply(b, s, 1, sched.Finished{Worker: a.Worker, Report: muster.Report{Attempt: a.Attempt, Outcome: muster.AttemptSucceeded, FinishedAt: 1}})
		s.Place(1)
		running = append(running, assigned(s.Flush())...)
	}
}

// BenchmarkPlaceStarving measures a batch of one finish while tasks of 500
// different needs starve, each of which some workers could run if they were empty.
func BenchmarkPlaceStarving(b *testing.B) {
	s := sched.New(sched.Config{})
	joinMany(b, s, 1000, 64)
	apply(b, s, 1, sched.Submit{ID: s.NextJob(), Spec: noops(10_000_000)})
	s.Place(1)
	running := assigned(s.Flush())
	for i := range 500 {
		spec := noops(100)
		spec.Tasks[0].Resources.CPUs = 8
		spec.Tasks[0].Resources.Memory = muster.Size(32<<30 - i)
		apply(b, s, 1, sched.Submit{ID: s.NextJob(), Spec: spec})
	}
	s.Place(1)
	now := muster.Time(100_000)
	b.ReportAllocs()
	for b.Loop() {
		a := running[0]
		running = running[1:]
		apply(b, s, now, sched.Finished{Worker: a.Worker, Report: muster.Report{Attempt: a.Attempt, Outcome: muster.AttemptSucceeded, FinishedAt: now}})
		s.Place(now)
		running = append(running, assigned(s.Flush())...)
	}
}

// BenchmarkExplain measures an explanation of the last of many one-task jobs.
func BenchmarkExplain(b *testing.B) {
	for _, c := range []struct{ workers, jobs int }{{2_000, 100_000}, {10_000, 1_000_000}} {
		b.Run(fmt.Sprintf("%d workers", c.workers), func(b *testing.B) {
			s := sched.New(sched.Config{})
			joinMany(b, s, c.workers, 1)
			spec := noops(1)
			for range c.jobs {
				apply(b, s, 1, sched.Submit{ID: s.NextJob(), Spec: spec})
			}
			s.Place(1)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Explain(1, muster.TaskID{Job: s.NextJob() - 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// heartbeat returns a scheduler with a worker that has this number of tasks, and its heartbeat with all of them.
func heartbeat(tb testing.TB, held int) (*sched.State, sched.Renewed) {
	tb.Helper()
	s := sched.New(sched.Config{})
	joinMany(tb, s, 1, held)
	apply(tb, s, 1, sched.Submit{ID: s.NextJob(), Spec: noops(held)})
	s.Place(1)
	s.Flush()
	renewed := sched.Renewed{Worker: "w00000"}
	for num := range held {
		renewed.Held = append(renewed.Held, muster.AttemptID{Task: muster.TaskID{Job: 1, Num: num}, N: 1})
	}
	return s, renewed
}

// BenchmarkHeartbeat measures the heartbeat of a worker with a thousand tasks that the scheduler knows.
func BenchmarkHeartbeat(b *testing.B) {
	s, renewed := heartbeat(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		apply(b, s, 1, renewed)
	}
}

// TestFullHeartbeatIsCheap checks that nothing is copied, sorted or indexed for it.
func TestFullHeartbeatIsCheap(t *testing.T) {
	s, renewed := heartbeat(t, 1000)
	if n := testing.AllocsPerRun(100, func() { apply(t, s, 1, renewed) }); n > 5 {
		t.Errorf("it makes %.0f allocations", n)
	}
}

// pipeline returns a normalized job of n no-op stages. Each needs the five before it.
func pipeline(n int) *muster.Spec {
	s := &muster.Spec{}
	for i := range n {
		t := muster.TaskSpec{Name: fmt.Sprintf("s%x", i), Kind: muster.KindNoop}
		for k := range min(i, 5) {
			t.Needs = append(t.Needs, s.Tasks[i-k-1].Name)
		}
		s.Tasks = append(s.Tasks, t)
	}
	return s.Normalize()
}

// BenchmarkStages measures what a stage with five needs costs: the checks of its place in the graph when the job is submitted, and, when
// the job runs, to find out that its needs have ended, to resolve it, to queue it, and to end it.
func BenchmarkStages(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		spec := pipeline(n)
		perStage := func(b *testing.B) {
			b.Helper()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n)/1e3, "µs/stage")
		}
		b.Run(fmt.Sprintf("check/%d", n), func(b *testing.B) {
			for b.Loop() {
				if wrong := dag.Check(spec); len(wrong) > 0 {
					b.Fatal(wrong)
				}
			}
			perStage(b)
		})
		b.Run(fmt.Sprintf("submit/%d", n), func(b *testing.B) {
			for b.Loop() {
				s := sched.New(sched.Config{})
				apply(b, s, 1, sched.Submit{ID: 1, Spec: spec})
			}
			perStage(b)
		})
		b.Run(fmt.Sprintf("run/%d", n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := sched.New(sched.Config{})
				joinMany(b, s, 1, 1)
				apply(b, s, 1, sched.Submit{ID: 1, Spec: spec})
				b.StartTimer()
				for range n {
					s.Place(1)
					for _, a := range assigned(s.Flush()) {
						apply(b, s, 1, sched.Finished{Worker: a.Worker, Report: muster.Report{Attempt: a.Attempt, Outcome: muster.AttemptSucceeded, StartedAt: 1, FinishedAt: 1}})
					}
				}
				if s.Live(1) {
					b.Fatal("the job has not ended")
				}
			}
			perStage(b)
		})
	}
}
