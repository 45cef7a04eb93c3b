package sched_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// TestFleetSnapshot brings a fleet to where each kind of fact has something to show.
func TestFleetSnapshot(t *testing.T) {
	t.Parallel()
	s := sched.New(sched.Config{})
	gpus := []muster.GPU{{UUID: "a", Memory: 40, Vendor: "nvidia"}, {UUID: "b", Memory: 20, Vendor: "nvidia"}}
	join := func(id muster.WorkerID, gpus ...muster.GPU) {
		apply(t, s, 1_000, sched.Joined{Worker: muster.Worker{
			ID: id, Name: string(id), Kinds: []string{muster.KindNoop}, Price: 3, Resources: muster.Resources{CPUs: 8, Memory: 100, Slots: 2, GPUs: gpus},
		}})
	}
	join("w1", gpus...)
	join("w2")
	join("w3")
	submit := func(at muster.Time, name, project string, ask muster.Request, n int) {
		spec := noops(n)
		spec.Name, spec.Project, spec.Tasks[0].Resources = name, project, ask
		spec.Tasks[0].Retries = muster.Retries{Max: 5}
		apply(t, s, at, sched.Submit{ID: s.NextJob(), Spec: spec})
	}
	submit(2_000, "whole", "red", muster.Request{CPUs: 2, Memory: 10, GPUs: muster.GPURequest{Count: 1, Memory: 30}}, 1)
	submit(2_000, "parts", "red", muster.Request{CPUs: 1, GPUs: muster.GPURequest{Count: 1, Memory: 5, Share: true}}, 2)
	submit(2_500, "never", "blue", muster.Request{Memory: 1_000}, 3)
	submit(3_000, "huge", "red", muster.Request{Memory: 1_000}, 4)
	s.Place(3_000)
	for _, a := range assigned(s.Flush()) {
		apply(t, s, 3_000, sched.Started{Worker: a.Worker, Attempt: a.Attempt, At: 3_000})
	}
	apply(t, s, 3_500, sched.ShutDown{Worker: "w2"})
	apply(t, s, 3_500, sched.Disconnected{Worker: "w3"})
	apply(t, s, 3_600, sched.Ready{Worker: "w1", Constrained: "the disk is full"})
	load := &muster.Load{CPU: 0.5}
	apply(t, s, 4_000, sched.Renewed{Worker: "w1", Load: load, Held: []muster.AttemptID{
		{Task: muster.TaskID{Job: 1}, N: 1}, {Task: muster.TaskID{Job: 2}, N: 1}, {Task: muster.TaskID{Job: 2, Num: 1}, N: 1},
	}})
	p := s.FleetSnapshot(5_000)
	want := sched.FleetSnapshot{
		At: 5_000, Failing: []sched.FailingJob{},
		Workers: []sched.WorkerSnapshot{
			{
				ID: "w1", Name: "w1", State: muster.WorkerActive, Price: 3, Offers: &muster.Resources{CPUs: 8, Memory: 100, Slots: 2, GPUs: gpus},
				Reserved: sched.FleetResources{CPUs: 4, Memory: 10, GPUs: 2, GPUMemory: 50}, GPUTasks: []int{1, 2}, Running: 3, Load: load,
				Constrained: "the disk is full", SeenAt: 4_000,
			},
			{ID: "w2", Name: "w2", State: muster.WorkerGone, Price: 3, Offers: &muster.Resources{CPUs: 8, Memory: 100, Slots: 2}, CleanShutdown: true, SeenAt: 3_500},
			{ID: "w3", Name: "w3", State: muster.WorkerUnreachable, Price: 3, Offers: &muster.Resources{CPUs: 8, Memory: 100, Slots: 2}, SeenAt: 1_000},
		},
		All: sched.Workload{
			Counts: muster.Counts{muster.Queued: 7, muster.Running: 3}, Rate: sched.Rate{Started: 3.0 / 60}, Total: sched.Total{Started: 3},
			Oldest: &sched.OldestTask{Task: muster.TaskID{Job: 3}, Name: "never", QueuedAt: 2_500},
		},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	red := s.Workload(5_000, "red")
	if red.Counts != (muster.Counts{muster.Queued: 4, muster.Running: 3}) || red.Oldest == nil || red.Oldest.Task.Job != 4 {
		t.Errorf("the usage of one project: %+v, %+v", red, red.Oldest)
	}
	if none := s.Workload(5_000, "green"); none != (sched.Workload{}) {
		t.Errorf("the usage of a project without jobs: %+v", none)
	}
}

// TestFailingJobsAreListed checks that a live job with three failed attempts is listed, also after a restart, and not once it has ended.
func TestFailingJobsAreListed(t *testing.T) {
	t.Parallel()
	s := sched.New(sched.Config{})
	joinMany(t, s, 1, 10)
	m := newMemStore()
	spec := noops(3)
	spec.Tasks[0].Retries = muster.Retries{Max: 5}
	apply(t, s, 1, sched.Submit{ID: 1, Spec: spec})
	now := muster.Time(1)
	fail := func() {
		t.Helper()
		for range 1_000 {
			s.Place(now)
			fx := s.Flush()
			if err := m.commit(fx.Rows); err != nil {
				t.Fatal(err)
			}
			for _, a := range assigned(fx) {
				if a.Attempt.Task.Num != 0 {
					continue
				}
				apply(t, s, now, sched.Finished{Worker: a.Worker, Report: muster.Report{
					Attempt: a.Attempt, Outcome: muster.AttemptFailed, Reason: muster.ExitCode, StartedAt: now, FinishedAt: now,
				}})
				return
			}
			now = max(now+1, s.NextTick())
			apply(t, s, now, sched.Renewed{Worker: "w00000"})
			apply(t, s, now, sched.Tick{})
		}
		t.Fatal("the task is not retried")
	}
	fail()
	fail()
	if p := s.FleetSnapshot(now); len(p.Failing) != 0 {
		t.Fatalf("after two failures: %+v", p.Failing)
	}
	fail()
	want := []sched.FailingJob{{ID: 1, Name: "noops", Project: "default", Failures: 3}}
	if p := s.FleetSnapshot(now); !slices.Equal(p.Failing, want) {
		t.Fatalf("after three failures: %+v", p.Failing)
	}
	if err := m.commit(s.Flush().Rows); err != nil {
		t.Fatal(err)
	}
	again, err := sched.Rebuild(sched.Config{}, now, m.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if p := again.FleetSnapshot(now); !slices.Equal(p.Failing, want) {
		t.Errorf("after a restart: %+v", p.Failing)
	}
	apply(t, s, now, sched.Cancel{Job: 1})
	for _, w := range s.Workers(now) {
		for _, id := range w.Tasks {
			apply(t, s, now, sched.Finished{Worker: w.ID, Report: muster.Report{
				Attempt: muster.AttemptID{Task: id, N: 1}, Outcome: muster.AttemptCancelled, FinishedAt: now,
			}})
		}
	}
	if p := s.FleetSnapshot(now); len(p.Failing) != 0 || s.Live(1) {
		t.Errorf("after its end: %+v, live: %t", p.Failing, s.Live(1))
	}
}

// TestUsageOfJobsIsSummed checks that each attempt's usage is counted once, whether its task is retried or not, and that of the
// devices the wall time counts.
func TestUsageOfJobsIsSummed(t *testing.T) {
	t.Parallel()
	s := sched.New(sched.Config{})
	apply(t, s, 1, sched.Joined{Worker: muster.Worker{
		ID: "w", Name: "w", Kinds: []string{muster.KindNoop}, Resources: muster.Resources{Slots: 4, GPUs: []muster.GPU{{UUID: "a", Memory: 9}, {UUID: "b", Memory: 9}}},
	}})
	spec := noops(1)
	spec.Tasks[0].Retries = muster.Retries{Max: 1}
	spec.Tasks[0].Resources.GPUs = muster.GPURequest{Count: 2}
	apply(t, s, 1, sched.Submit{ID: 1, Spec: spec})
	now := muster.Time(1)
	var job muster.Job
	for _, outcome := range []muster.Outcome{muster.AttemptFailed, muster.AttemptSucceeded} {
		var a []muster.AttemptID
		for range 100 {
			s.Place(now)
			for _, as := range assigned(s.Flush()) {
				a = append(a, as.Attempt)
			}
			if len(a) > 0 {
				break
			}
			now = max(now+1, s.NextTick())
			apply(t, s, now, sched.Renewed{Worker: "w"})
			apply(t, s, now, sched.Tick{})
		}
		if len(a) != 1 {
			t.Fatalf("%d attempts were started", len(a))
		}
		report := muster.Report{
			Attempt: a[0], Outcome: outcome, StartedAt: now, FinishedAt: now,
			Usage: &muster.Usage{WallSeconds: 10, CPUSeconds: 5, Cost: 0.5, EnergyWh: 2, MemoryPeak: muster.Size(100 * a[0].N)},
		}
		if outcome == muster.AttemptFailed {
			report.Reason = muster.ExitCode
		}
		apply(t, s, now, sched.Finished{Worker: "w", Report: report})
		rows := s.Flush().Rows.Jobs
		job = rows[len(rows)-1]
	}
	want := muster.JobUsage{EnergyWh: 4, CPUSeconds: 10, GPUSeconds: 40, WallSeconds: 20, MemoryPeak: 200, Attempts: 2, LogBytes: 2 * muster.LogOverhead}
	if job.State != muster.JobSucceeded || job.Cost != 1 || job.Usage != want {
		t.Errorf("the job is %s, cost %v and used %+v; want %+v", job.State, job.Cost, job.Usage, want)
	}
}

// BenchmarkFleetSnapshot measures the engine's time for a snapshot of 2,000 workers with 8 devices and 64 tasks each, and 1,000,000 tasks.
func BenchmarkFleetSnapshot(b *testing.B) {
	s := sched.New(sched.Config{})
	var gpus []muster.GPU
	for i := range 8 {
		gpus = append(gpus, muster.GPU{UUID: fmt.Sprint("GPU-", i), Index: i, Memory: 80 << 30})
	}
	for i := range 2_000 {
		id := muster.WorkerID(fmt.Sprintf("w%05d", i))
		apply(b, s, 1, sched.Joined{Worker: muster.Worker{
			ID: id, Name: string(id), Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 64, Memory: 512 << 30, Slots: 64, GPUs: gpus},
		}})
	}
	for i := range 100 {
		spec := noops(10_000)
		if i%2 == 0 {
			spec.Tasks[0].Resources = muster.Request{CPUs: 1, GPUs: muster.GPURequest{Count: 1, Memory: 1 << 30, Share: true}}
		}
		apply(b, s, 1, sched.Submit{ID: s.NextJob(), Spec: spec})
	}
	s.Place(1)
	s.Flush()
	for b.Loop() {
		p := s.FleetSnapshot(2)
		b.ReportMetric(float64(p.All.Counts[muster.Assigned]), "held")
		b.ReportMetric(float64(p.All.Counts.Total()), "tasks")
	}
}
