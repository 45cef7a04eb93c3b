package queue_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/queue"
)

type testTask struct {
	item     queue.Item
	priority int
	project  *queue.Project
	grant    muster.Grant
	worker   *queue.Worker
}

func (*testTask) Size() int { return 1 }

func (o *testTask) CountBelow(num int) int {
	if o.item.Num < num {
		return 1
	}
	return 0
}

// fixedFreeIn is a fixed estimate of FreeIn.
type fixedFreeIn muster.Duration

func (h fixedFreeIn) FreeIn(muster.Time, *placement.Need, int, muster.Time) muster.Duration {
	return muster.Duration(h)
}

func need(cpus int) *placement.Need {
	return new(placement.Limits).Need("", &muster.TaskSpec{Kind: muster.KindNoop, Resources: muster.Request{CPUs: float64(cpus)}})
}

// TestIndexMatchesSearch changes a fleet, a queue and running tasks at random, and
// checks that the index gives the same results as a search of all workers, that tasks are
// placed by priority, share and age, and that nothing that fits remains, except on
// reserved workers.
func TestIndexMatchesSearch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := queue.New(muster.Duration(time.Minute))
		var total queue.ResourceVector
		var fleet []*queue.Worker
		var waiting, running []*testTask
		projects := []*queue.Project{{Name: "a"}, {Name: "b"}}
		next, now := muster.JobID(1), muster.Time(1)
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				row := &muster.Worker{ID: muster.WorkerID(fmt.Sprint("w", len(fleet))), Kinds: []string{muster.KindNoop}}
				row.Resources.CPUs = float64(rapid.IntRange(1, 6).Draw(t, "cpus"))
				w := &queue.Worker{Usage: placement.NewWorkerUsage(row), Owner: fixedFreeIn(muster.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * muster.Duration(time.Second))}
				total.AddCapacity(&row.Resources, 1)
				fleet = append(fleet, w)
				q.SpecChanged(w)
			},
			"close": func(t *rapid.T) {
				if len(fleet) > 0 {
					w := rapid.SampledFrom(fleet).Draw(t, "worker")
					w.Usage.ClosedReason = map[bool]string{true: "is closed"}[rapid.Bool().Draw(t, "closed")]
					q.SpecChanged(w)
				}
			},
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "tasks") {
					x := &testTask{priority: rapid.IntRange(0, 2).Draw(t, "priority"), project: rapid.SampledFrom(projects).Draw(t, "project")}
					x.item = queue.Item{Job: next, Owner: x}
					next++
					q.Add(&x.item, x.priority, x.project, q.Shape(need(rapid.IntRange(1, 4).Draw(t, "cpus"))))
					waiting = append(waiting, x)
				}
			},
			"cancel": func(t *rapid.T) {
				if len(waiting) > 0 {
					x := rapid.SampledFrom(waiting).Draw(t, "task")
					q.Remove(&x.item)
					waiting = slices.DeleteFunc(waiting, func(o *testTask) bool { return o == x })
				}
			},
			"finish": func(t *rapid.T) {
				if len(running) > 0 {
					x := rapid.SampledFrom(running).Draw(t, "task")
					x.worker.Usage.Release(&x.grant)
					x.project.Usage.AddGrant(&x.grant, &x.worker.Usage.Worker.Resources, -1)
					q.LoadChanged(x.worker)
					running = slices.DeleteFunc(running, func(o *testTask) bool { return o == x })
				}
			},
			"pass time": func(t *rapid.T) {
				now = now.Add(muster.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * muster.Duration(time.Second))
				q.Expire(now)
				if at := q.NextTimeout(); at > 0 && at <= now {
					t.Fatalf("at %d something is due at %d", now, at)
				}
			},
			"place": func(t *rapid.T) {
				q.Place(now, &total, func(it *queue.Item) queue.Outcome {
					sh := it.Shape()
					x := it.Owner.(*testTask)
					w, onlyAvoided := q.Best(now, it, nil)
					if want := search(q, now, fleet, x); w != want || onlyAvoided {
						t.Fatalf("the index has %v, a search finds %v", w, want)
					}
					if w == nil {
						return queue.Blocked
					}
					if want := expected(q, now, waiting, fleet, &total); x != want {
						t.Fatalf("job %d is first, want %d", x.item.Job, want.item.Job)
					}
					q.Remove(it)
					waiting = slices.DeleteFunc(waiting, func(o *testTask) bool { return o == x })
					x.grant, x.worker = w.Usage.Grant(sh.Need), w
					w.Usage.Reserve(&x.grant)
					x.project.Usage.AddGrant(&x.grant, &w.Usage.Worker.Resources, 1)
					q.LoadChanged(w)
					running = append(running, x)
					return queue.Placed
				})
				for _, x := range waiting {
					if search(q, now, fleet, x) != nil {
						t.Fatalf("job %d remains queued, although it fits", x.item.Job)
					}
				}
			},
			"": func(t *rapid.T) {
				if err := q.Check(len(fleet)); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

// search searches all workers that are not reserved, and then the reserved ones that x may
// use.
func search(q *queue.Queue, now muster.Time, fleet []*queue.Worker, x *testTask) *queue.Worker {
	n := x.item.Shape().Need
	var best [2]*queue.Worker
	for _, w := range fleet {
		if w.Usage.Fits(n) != placement.Fits {
			continue
		}
		b := &best[0]
		if it, blocked := q.ReservedFor(now, w, x.item.Shape(), x.priority); it != nil {
			holder := it.Owner.(*testTask)
			if blocked && (it.Shape() != x.item.Shape() || holder.project != x.project || holder.priority != x.priority) {
				continue
			}
			b = &best[1]
		}
		if *b == nil || better(w, *b, n) {
			*b = w
		}
	}
	return cmp.Or(best[0], best[1])
}

// better reports whether w is preferred to o for a task with need n.
func better(w, o *queue.Worker, n *placement.Need) bool {
	if w.Suspect != o.Suspect {
		return o.Suspect
	}
	a, b := w.Usage.Rank(n), o.Usage.Rank(n)
	return cmp.Or(a.Compare(&b), cmp.Compare(w.Usage.Worker.ID, o.Usage.Worker.ID)) < 0
}

// expected searches all waiting tasks for the first one that fits some worker.
func expected(q *queue.Queue, now muster.Time, waiting []*testTask, fleet []*queue.Worker, total *queue.ResourceVector) *testTask {
	var first *testTask
	for _, x := range waiting {
		if search(q, now, fleet, x) == nil {
			continue
		}
		if first == nil || cmp.Or(
			cmp.Compare(first.priority, x.priority),
			cmp.Compare(x.project.Usage.DominantShare(total), first.project.Usage.DominantShare(total)),
			cmp.Compare(x.item.Job, first.item.Job),
		) < 0 {
			first = x
		}
	}
	return first
}

func TestSkippedItemIsSkippedOnce(t *testing.T) {
	t.Parallel()
	q := queue.New(muster.Duration(time.Minute))
	p := &queue.Project{Name: "a"}
	x, y := &testTask{}, &testTask{}
	for i, o := range []*testTask{x, y} {
		o.item = queue.Item{Job: muster.JobID(i + 1), Owner: o}
		q.Add(&o.item, 50, p, q.Shape(need(1)))
	}
	for range 2 {
		var tried []muster.JobID
		q.Place(1, &queue.ResourceVector{}, func(it *queue.Item) queue.Outcome {
			tried = append(tried, it.Job)
			return queue.Skipped
		})
		if !slices.Equal(tried, []muster.JobID{1, 2}) {
			t.Fatalf("tried %v", tried)
		}
	}
}

func TestEmptyShapesAreEvictedOldestFirst(t *testing.T) {
	t.Parallel()
	q := queue.New(muster.Duration(time.Minute))
	old := q.Shape(need(1))
	used := &testTask{}
	used.item = queue.Item{Job: 1, Owner: used}
	q.Add(&used.item, 50, &queue.Project{}, q.Shape(need(2)))
	for i := range 100 {
		q.Shape(need(10 + i))
	}
	if !old.Evicted() || q.Shape(need(1)) == old {
		t.Error("an old shape still exists")
	}
	if used.item.Shape().Evicted() || q.LookupShape(need(2)) != used.item.Shape() {
		t.Error("a shape with a task was forgotten")
	}
	if err := q.Check(0); err != nil {
		t.Error(err)
	}
}
