package storetest

import (
	"fmt"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// notifyingJob returns a job with one task and notifications, and its group.
func notifyingJob(id muster.JobID, on ...string) (muster.Job, muster.Group) {
	j, g := job(id, 1)
	j.Spec.Notify = []muster.Notify{{URL: "https://example.org/", On: on}}
	return j, g
}

// endedRows returns the rows of an ended job.
func endedRows(j muster.Job, g muster.Group, at muster.Time) muster.Rows {
	g.Materialized = 1
	done := row(&j, &g, 0, muster.Failed)
	recount(&j, &g, []muster.Task{done})
	j.FinishedAt, j.Spec = at, nil
	return muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: []muster.Task{done}}
}

func jobEnds(t *testing.T, f *fixture) {
	t.Helper()
	list := func(limit int, want ...store.JobEnd) []store.JobEnd {
		t.Helper()
		got := must(f.JobEnds(t.Context(), limit))(t)
		shown := make([]store.JobEnd, len(got))
		for i, e := range got {
			shown[i] = e
			shown[i].ID = 0
		}
		wantEqual(t, "ends", want, shown)
		return got
	}
	plain, plainGroup := job(1, 1)
	asking, askingGroup := notifyingJob(2)
	other, otherGroup := job(3, 1)
	other.Project = "watched"
	noError(t, f.SetProjectNotify(t.Context(), "watched", []muster.Notify{{URL: "https://example.org/p", On: []string{"failed"}}}))
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{plain, asking, other}, Groups: []muster.Group{plainGroup, askingGroup, otherGroup}})
	list(10)
	f.mustCommit(t, endedRows(plain, plainGroup, 5_000))
	f.mustCommit(t, endedRows(asking, askingGroup, 6_000))
	f.mustCommit(t, endedRows(other, otherGroup, 7_000))
	f.mustCommit(t, endedRows(asking, askingGroup, 6_000)) // the same end
	f.reopen(t)
	second := store.JobEnd{Job: 2, State: muster.JobFailed, At: 6_000}
	third := store.JobEnd{Job: 3, State: muster.JobFailed, At: 7_000}
	list(1, second)
	got := list(10, second, third)
	noError(t, f.EnqueueDeliveries(t.Context(), store.EnqueueBatch{ProcessedEnds: []int64{got[0].ID}}))
	list(10, third)
	f.mustCommit(t, endedRows(asking, askingGroup, 6_000))
	list(10, third)
	f.mustCommit(t, endedRows(asking, askingGroup, 8_000)) // it was retried
	list(10, third, store.JobEnd{Job: 2, State: muster.JobFailed, At: 8_000})

	noError(t, f.SetProjectNotify(t.Context(), "watched", nil))
	if left, err := f.ProjectNotify(t.Context(), "watched"); err != nil || len(left) > 0 {
		t.Errorf("the project has %v, %v", left, err)
	}

	// A job may end with the commit that creates it.
	quick, quickGroup := notifyingJob(4)
	rows := endedRows(quick, quickGroup, 9_000)
	rows.Jobs[0].Spec = quick.Spec
	f.mustCommit(t, rows)
	list(10, third, store.JobEnd{Job: 2, State: muster.JobFailed, At: 8_000}, store.JobEnd{Job: 4, State: muster.JobFailed, At: 9_000})
}

func watchedJobs(t *testing.T, f *fixture) {
	t.Helper()
	list := func(after muster.JobID, limit int, want ...store.IdleJob) {
		t.Helper()
		got := must(f.WatchedJobs(t.Context(), after, limit))(t)
		var idle []store.IdleJob
		for _, w := range got {
			if w.Job.ID != w.Idle.Job || w.Job.Counts.Total() != 1 {
				t.Errorf("job %+v", w.Job)
			}
			idle = append(idle, w.Idle)
		}
		wantEqual(t, "watched", want, idle)
	}
	a, ga := notifyingJob(1, muster.OnFailed, muster.OnWaitingLong)
	b, gb := notifyingJob(2)
	c, gc := job(3, 1)
	c.Project = "watched"
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{a, b, c}, Groups: []muster.Group{ga, gb, gc}})
	list(0, 10, store.IdleJob{Job: 1})
	noError(t, f.SetProjectNotify(t.Context(), "watched", []muster.Notify{{URL: "https://example.org/p", On: []string{muster.OnWaitingLong}}}))
	list(0, 10, store.IdleJob{Job: 1}, store.IdleJob{Job: 3})
	list(0, 1, store.IdleJob{Job: 1})
	list(1, 1, store.IdleJob{Job: 3})
	noError(t, f.EnqueueDeliveries(t.Context(), store.EnqueueBatch{Idle: []store.IdleJob{{Job: 1, Since: 7, NotifiedWait: 9}, {Job: 3, Since: 8}}}))
	f.reopen(t)
	list(0, 10, store.IdleJob{Job: 1, Since: 7, NotifiedWait: 9}, store.IdleJob{Job: 3, Since: 8})
	noError(t, f.EnqueueDeliveries(t.Context(), store.EnqueueBatch{Idle: []store.IdleJob{{Job: 3}}}))
	f.mustCommit(t, endedRows(a, ga, 6_000))
	list(0, 10, store.IdleJob{Job: 3})

	// A retry resets the longest wait that was notified.
	a.Spec, a.RetriedAt = nil, 7_000
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{a}, Groups: []muster.Group{ga}})
	list(0, 10, store.IdleJob{Job: 1}, store.IdleJob{Job: 3})
}

// delivery returns a pending delivery.
func delivery(n int, host string, next muster.Time) store.Delivery {
	return store.Delivery{
		Message: fmt.Sprintf("m%d", n), Project: "default", Job: muster.JobID(n), Event: "job.failed", URL: "https://" + host + "/", Host: host, Preset: "ntfy",
		Secret: "sealed:x", Body: []byte("ä {}"), Headers: map[string]string{"A": "b"}, CreatedAt: 5, NextAt: next,
	}
}

// dueByProject checks a project with many deliveries for a host, before those of another project.
func dueByProject(t *testing.T, f *fixture) {
	t.Helper()
	var add []store.Delivery
	for i := range 4 {
		add = append(add, delivery(i+1, "a.example", 10))
	}
	other := delivery(5, "a.example", 20)
	other.Project = "other"
	noError(t, f.EnqueueDeliveries(t.Context(), store.EnqueueBatch{Deliveries: append(add, other)}))
	got, _, err := f.Due(t.Context(), 30, 2, nil)
	noError(t, err)
	var projects []string
	for _, d := range got {
		projects = append(projects, d.Project)
	}
	wantEqual(t, "projects", []string{"default", "default", "other"}, projects)
}

func deliveries(t *testing.T, f *fixture) {
	t.Helper()
	due := func(now muster.Time, perQueue int, busy map[int64]bool, next muster.Time, want ...string) []store.Delivery {
		t.Helper()
		got, later, err := f.Due(t.Context(), now, perQueue, busy)
		noError(t, err)
		var names []string
		for _, d := range got {
			names = append(names, d.Message)
		}
		wantEqual(t, "due", want, names)
		if later != next {
			t.Errorf("the next is due at %d, want %d", later, next)
		}
		return got
	}
	due(1_000, 9, nil, 0)
	var add []store.Delivery
	for i := range 4 {
		add = append(add, delivery(i+1, "a.example", muster.Time(100-i*10)))
	}
	add = append(add, delivery(5, "b.example", 500), delivery(6, "b.example", 50))
	noError(t, f.EnqueueDeliveries(t.Context(), store.EnqueueBatch{Deliveries: add}))
	f.reopen(t)
	got := due(100, 2, nil, 500, "m4", "m3", "m6")
	want := add[3]
	want.ID = got[0].ID
	wantEqual(t, "a delivery", want, got[0])
	due(100, 2, map[int64]bool{got[0].ID: true, got[2].ID: true}, 500, "m3", "m2")
	due(75, 9, nil, 80, "m4", "m6")

	done, again := got[0], got[1]
	done.Attempts, done.NextAt, done.AttemptedAt, done.Status, done.Latency, done.Delivered, done.FinishedAt = 1, 0, 100, 204, 7, true, 107
	again.Attempts, again.NextAt, again.AttemptedAt, again.Error, again.Latency = 1, 300, 100, "connection refused", 3
	test := delivery(7, "c.example", 0)
	test.Project, test.Job, test.FinishedAt, test.Error = "other", 0, 9, "no"
	noError(t, f.RecordAttempts(t.Context(), []store.Delivery{done, again, test}))
	f.reopen(t)
	due(100, 9, nil, 300, "m2", "m1", "m6")

	page := func(q store.DeliveryQuery, want ...string) ([]store.Delivery, string) {
		t.Helper()
		list, next, err := f.Deliveries(t.Context(), q)
		noError(t, err)
		var names []string
		for _, d := range list {
			names = append(names, d.Message)
		}
		wantEqual(t, "log", want, names)
		return list, next
	}
	_, next := page(store.DeliveryQuery{Limit: 5}, "m7", "m6", "m5", "m4", "m3")
	if _, next = page(store.DeliveryQuery{Limit: 5, Cursor: next}, "m2", "m1"); next != "" {
		t.Errorf("the last page has cursor %q", next)
	}
	page(store.DeliveryQuery{Limit: 9, Project: "other"}, "m7")
	page(store.DeliveryQuery{Limit: 9, State: store.DeliveryDelivered}, "m4")
	page(store.DeliveryQuery{Limit: 9, State: store.DeliveryFailed}, "m7")
	page(store.DeliveryQuery{Limit: 9, State: store.DeliveryPending, Job: 3}, "m3")
	list, _ := page(store.DeliveryQuery{Limit: 9, Job: 4}, "m4")
	done.Body, done.Headers, done.Secret = nil, nil, ""
	wantEqual(t, "a delivery of the log", done, list[0])
	_, _, err := f.Deliveries(t.Context(), store.DeliveryQuery{Limit: 1, Cursor: "x"})
	wantCode(t, "cursor", err, muster.Invalid)
}

func deliveryBounds(t *testing.T, f *fixture) {
	t.Helper()
	count := func(state string) (n int) {
		t.Helper()
		for cursor := ""; ; {
			list, next, err := f.Deliveries(t.Context(), store.DeliveryQuery{Project: "default", State: state, Limit: 1_000, Cursor: cursor})
			noError(t, err)
			n += len(list)
			if cursor = next; cursor == "" {
				return n
			}
		}
	}
	var add []store.Delivery
	for i := range store.MaxPendingDeliveries + 2*store.MaxFinalDeliveries {
		add = append(add, delivery(i+1, "a.example", 5))
	}
	noError(t, f.EnqueueDeliveries(t.Context(), store.EnqueueBatch{Deliveries: add}))
	if n := count(store.DeliveryPending); n != store.MaxPendingDeliveries {
		t.Errorf("%d are pending, want %d", n, store.MaxPendingDeliveries)
	}
	if n := count(store.DeliveryFailed); n != store.MaxFinalDeliveries {
		t.Errorf("%d failed ones are kept, want %d", n, store.MaxFinalDeliveries)
	}
	due, _, err := f.Due(t.Context(), 9, 3, nil)
	if err != nil || len(due) != 3 {
		t.Fatal(due, err)
	}
	for i := range due {
		due[i].NextAt, due[i].FinishedAt, due[i].Delivered = 0, 9, true
	}
	noError(t, f.RecordAttempts(t.Context(), due))
	if n := count(store.DeliveryFailed); n != store.MaxFinalDeliveries-3 {
		t.Errorf("%d failed ones are kept beside 3 delivered later, want %d", n, store.MaxFinalDeliveries-3)
	}
	if n := count(store.DeliveryDelivered); n != 3 {
		t.Errorf("%d delivered ones are kept, want 3", n)
	}
}
