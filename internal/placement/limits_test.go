package placement_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// foreignWorker is a worker of another system, which runs up to two tasks.
func foreignWorker() *muster.Worker {
	return &muster.Worker{
		ID: "id-far", Name: "far", Kinds: []string{"noop"}, Labels: map[string]string{placement.LabelDialect: "other"},
		UnsupportedFeatures: []string{muster.FeatureFiles, muster.FeatureEnv, muster.FeatureCancel}, Projects: []string{"red"},
		Resources: muster.Resources{CPUs: 64, Slots: 64, MaxTasks: 2},
	}
}

// needFor makes a Need in a fleet with one worker.
func needFor(w *muster.Worker, project string, t muster.TaskSpec) *placement.Need {
	l := new(placement.Limits)
	l.Count(w, 1)
	return l.Need(project, &t)
}

func TestMissingFeaturesExcludeAWorker(t *testing.T) {
	t.Parallel()
	plain := muster.TaskSpec{Kind: "noop"}
	rich := muster.TaskSpec{Kind: "noop", Files: "sha256:0", Env: map[string]string{"A": "1"}, Outputs: []string{"*"}}
	for _, c := range []struct {
		name, project string
		spec          muster.TaskSpec
		filter        placement.Filter
		why, help     string
	}{
		{"what it can do", "red", plain, placement.Fits, "", ""},
		{
			"what it lacks", "red", rich, placement.Features, "does not support: files, env (other worker)",
			"do without files, env, which worker far does not support",
		},
		{
			"another project", "blue", plain, placement.Project, "takes tasks of project red only",
			"submit it to project red, whose tasks worker far takes",
		},
		{"both", "blue", rich, placement.Features, "does not support: files, env (other worker)", "do without files, env, which worker far does not support, and submit it to project red, whose tasks worker far takes"},
	} {
		b := placement.NewWorkerUsage(foreignWorker())
		n := needFor(b.Worker, c.project, c.spec)
		if now, ever := b.Fits(n), b.FitsEmpty(n); now != c.filter || ever != c.filter || b.Explain(n, now) != c.why {
			t.Errorf("%s: %q, %q: %s", c.name, now, ever, b.Explain(n, now))
		}
		if help := placement.Nearest([]placement.Evaluation{placement.Evaluate(b, n)}); help != c.help {
			t.Errorf("%s: %s", c.name, help)
		}
	}
	n := needFor(foreignWorker(), "red", rich)
	if f := placement.NewWorkerUsage(testWorker()).Fits(n); f != placement.Owner {
		t.Errorf("a worker that lacks nothing fails %q", f)
	}
}

// TestTimeoutsSeparateNeedsOverTheLowestMaximumOnly checks that a fleet without maximum timeouts has no more scheduling classes for them.
func TestTimeoutsSeparateNeedsOverTheLowestMaximumOnly(t *testing.T) {
	t.Parallel()
	spec := func(d muster.Duration) *muster.TaskSpec { return &muster.TaskSpec{Kind: "noop", Timeout: d} }
	limited := func(d muster.Duration) *muster.Worker {
		return &muster.Worker{Name: "w", Kinds: []string{"noop"}, Resources: muster.Resources{Slots: 1}, Allow: &muster.Allow{MaxTaskTimeout: d}}
	}
	l := new(placement.Limits)
	five, ten, twenty := l.Need("", spec(5)), l.Need("", spec(10)), l.Need("", spec(20))
	if five.Key() != ten.Key() || five.Key() != twenty.Key() {
		t.Error("timeouts separate tasks without a worker that limits them")
	}
	for _, step := range []struct {
		worker               muster.Duration // that joins, or leaves if negative
		refined, ten, twenty bool            // whether earlier needs are too coarse, and whether those of tasks with these timeouts changed
	}{{10, true, false, true}, {15, false, false, false}, {5, true, true, false}, {-5, false, true, false}, {-15, false, false, false}, {-10, false, false, true}} {
		ten, twenty = l.Need("", spec(10)), l.Need("", spec(20))
		refined := false
		if d := step.worker; d > 0 {
			refined = l.Count(limited(d), 1)
		} else {
			l.Count(limited(-d), -1)
		}
		if refined != step.refined || l.Current(ten, "", spec(10)) == step.ten || l.Current(twenty, "", spec(20)) == step.twenty {
			t.Errorf("%+v: refined %t, unchanged %t and %t", step, refined, l.Current(ten, "", spec(10)), l.Current(twenty, "", spec(20)))
		}
	}
	w := limited(10)
	b := placement.NewWorkerUsage(w)
	if n := needFor(w, "", *spec(10)); b.Fits(n) != placement.Fits {
		t.Errorf("a task with the maximum fails %q", b.Fits(n))
	}
	n := needFor(w, "", *spec(11))
	if f := b.FitsEmpty(n); f != placement.Owner || b.Explain(n, f) != "its owner does not allow timeouts over 10ns, and the task's is 11ns" {
		t.Errorf("%q: %s", f, b.Explain(n, f))
	}
}

// TestLongHeartbeatsExcludeTasksWithAShortGrace checks that a task whose lease could end between two heartbeats of a worker is not placed there.
func TestLongHeartbeatsExcludeTasksWithAShortGrace(t *testing.T) {
	t.Parallel()
	w := &muster.Worker{Name: "w", Kinds: []string{"noop"}, Resources: muster.Resources{Slots: 1}, Heartbeat: muster.Duration(time.Minute)}
	b, l := placement.NewWorkerUsage(w), new(placement.Limits)
	short, long := muster.TaskSpec{Kind: "noop"}, muster.TaskSpec{Kind: "noop"}
	short.Disconnect.Grace, long.Disconnect.Grace = muster.Duration(119*time.Second), muster.Duration(2*time.Minute)
	early := l.Need("", &short)
	if early.Key() != l.Need("", &long).Key() {
		t.Error("graces separate tasks without a worker with heartbeats of its own")
	}
	if !l.Count(w, 1) || l.Current(early, "", &short) {
		t.Error("the need of a task is still current when the worker has joined")
	}
	n := l.Need("", &short)
	const why = "sends heartbeats every 1m0s, and tasks with a disconnect.grace of 1m59s need two in that time"
	if f := b.FitsEmpty(n); f != placement.Heartbeat || b.Explain(n, f) != why {
		t.Errorf("%q: %s", f, b.Explain(n, f))
	}
	for name, spec := range map[string]*muster.TaskSpec{"two heartbeats": &long, "the default": {Kind: "noop"}} {
		if f := b.FitsEmpty(l.Need("", spec)); f != placement.Fits {
			t.Errorf("a task with %s fails %q", name, f)
		}
	}
}

func TestMaxTasksCountsEveryTask(t *testing.T) {
	t.Parallel()
	b := placement.NewWorkerUsage(foreignWorker())
	slot := needFor(b.Worker, "red", muster.TaskSpec{Kind: "noop"})
	cores := needFor(b.Worker, "red", muster.TaskSpec{Kind: "noop", Resources: muster.Request{CPUs: 1}})
	team := needFor(b.Worker, "red", muster.TaskSpec{Kind: "noop", Gang: &muster.Gang{Size: 5}})
	if r := b.GangFit(team, 5); r.Members != 2 {
		t.Errorf("%d fit on an empty worker", r.Members)
	}
	one, two := b.Grant(slot), b.Grant(cores)
	b.Reserve(&one)
	if r := b.GangFit(team, 5); r.Members != 1 || b.Overcommitted() {
		t.Errorf("with one task, %d more fit", r.Members)
	}
	spread := b.Rank(cores)
	if spread.Compare(new(placement.NewWorkerUsage(&muster.Worker{Resources: muster.Resources{CPUs: 64}}).Rank(cores))) <= 0 {
		t.Error("a worker that the task fills is preferred over one with more space")
	}
	b.Reserve(&two)
	for name, n := range map[string]*placement.Need{"slots": slot, "cpus": cores, "gang": team} {
		if now, ever := b.Fits(n), b.FitsEmpty(n); now != placement.MaxTasks || ever != placement.Fits {
			t.Errorf("%s: now %q, empty %q", name, now, ever)
		}
	}
	if why := b.Explain(slot, placement.MaxTasks); why != "has 2 tasks, and runs at most 2 at once" {
		t.Error(why)
	}
	if help := placement.Nearest([]placement.Evaluation{placement.Evaluate(b, cores)}); help != "wait for worker far to free room for one more task" {
		t.Error(help)
	}
	if in := b.FreeIn(slot, 1, []placement.ExpectedRelease{{In: 9, Grant: &two}, {In: 5, Grant: &one}}); in != 5 {
		t.Errorf("%d workers fit", in)
	}
	three := b.Grant(slot)
	b.Reserve(&three)
	if !b.Overcommitted() {
		t.Error("three tasks are not too many")
	}
	for _, g := range []*muster.Grant{&one, &two, &three} {
		b.Release(g)
	}
	if !b.Equal(placement.NewWorkerUsage(foreignWorker())) {
		t.Error("the usage is not as before")
	}
}

// TestLimitsSeparateNeedsOnlyAsNecessary checks that every worker treats tasks with one key alike, that a fleet without restrictions has one
// class, and that Count reports when Needs become too coarse.
func TestLimitsSeparateNeedsOnlyAsNecessary(t *testing.T) {
	t.Parallel()
	specs := []muster.TaskSpec{
		{Kind: "noop"}, {Kind: "noop", Files: "f"}, {Kind: "noop", Outputs: []string{"*"}}, {Kind: "noop", Files: "f", Outputs: []string{"*"}},
	}
	projects := []string{"red", "blue", "green"}
	rapid.Check(t, func(t *rapid.T) {
		var l placement.Limits
		var fleet []*muster.Worker
		for range rapid.IntRange(0, 12).Draw(t, "changes") {
			var before []*placement.Need
			for i := range specs {
				for _, p := range projects {
					before = append(before, l.Need(p, &specs[i]))
				}
			}
			var finer bool
			if n := len(fleet); n > 0 && rapid.Bool().Draw(t, "leaves") {
				finer = l.Count(fleet[n-1], -1)
				fleet = fleet[:n-1]
			} else {
				w := &muster.Worker{
					Kinds: []string{"noop"}, Resources: muster.Resources{Slots: 1},
					UnsupportedFeatures: rapid.SliceOfN(rapid.SampledFrom([]string{muster.FeatureFiles, muster.FeatureOutputs, muster.FeatureLogs}), 0, 2).Draw(t, "lacks"),
					Projects:            rapid.SliceOfN(rapid.SampledFrom(projects), 0, 3).Draw(t, "projects"),
				}
				w.UnsupportedFeatures = slices.Compact(w.UnsupportedFeatures)
				finer = l.Count(w, 1)
				fleet = append(fleet, w)
			}
			if len(fleet) == 0 && l.Need("red", &specs[3]).Key() != new(placement.Limits).Need("", &specs[0]).Key() {
				t.Fatal("no worker restricts anything, but the keys differ")
			}
			for i, n := range before {
				spec, project := &specs[i/len(projects)], projects[i%len(projects)]
				for _, w := range fleet {
					want := placement.Fits
					switch {
					case slices.ContainsFunc(muster.Features(spec), func(f string) bool { return slices.Contains(w.UnsupportedFeatures, f) }):
						want = placement.Features
					case len(w.Projects) > 0 && !slices.Contains(w.Projects, project):
						want = placement.Project
					}
					if got := placement.NewWorkerUsage(w).Fits(l.Need(project, spec)); got != want {
						t.Fatalf("%v of %s on %+v: %q, want %q", spec, project, w, got, want)
					}
					if got := placement.NewWorkerUsage(w).Fits(n); got != want && (!finer || l.Current(n, project, spec)) {
						t.Fatalf("%v of %s on %+v: a Need that is too coarse counts as current", spec, project, w)
					}
				}
			}
		}
	})
}
