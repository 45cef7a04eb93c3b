package storetest

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"pgregory.net/rapid"
)

func attempts(t *testing.T, f *fixture) {
	t.Helper()
	j, g := job(1, 6)
	g.Materialized = 5
	queued := row(&j, &g, 0, muster.Queued) // never assigned
	running := row(&j, &g, 1, muster.Running)
	running.Attempt, running.StartedAt, running.Message = 3, 2_500, "a message of the task"
	running.Artifacts = []muster.Artifact{{Name: "live/a.png", Size: 1}}
	failed := row(&j, &g, 2, muster.Failed)
	code := 3
	failed.Attempt, failed.Worker, failed.Reason, failed.ExitCode, failed.LogSize = 2, "w2", muster.ExitCode, &code, 77
	failed.Usage, failed.Artifacts = &muster.Usage{WallSeconds: 1}, []muster.Artifact{{Name: "a"}}
	failed.Image = "python@sha256:ab"
	retrying := row(&j, &g, 3, muster.Queued)
	retrying.Attempt = 1
	cancelled := row(&j, &g, 4, muster.Cancelled) // while it waited for its second attempt
	cancelled.Attempt = 1
	ended := func(num, n int) muster.Attempt {
		return muster.Attempt{
			ID:      muster.AttemptID{Task: muster.TaskID{Job: 1, Num: num}, N: n},
			Outcome: muster.AttemptLost, Reason: muster.WorkerLost, FinishedAt: 1_500,
		}
	}
	history := []muster.Attempt{ended(1, 2), ended(1, 1), ended(2, 1), ended(3, 1), ended(4, 1)}
	rows := []muster.Task{queued, running, failed, retrying, cancelled}
	recount(&j, &g, rows)
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: rows, Attempts: history})
	want := map[int][]muster.Attempt{
		0: nil,
		1: {ended(1, 1), ended(1, 2), {
			ID: muster.AttemptID{Task: running.ID, N: 3}, Worker: "w1", AssignedAt: 2_000, StartedAt: 2_500, Artifacts: running.Artifacts,
		}},
		2: {ended(2, 1), {
			ID: muster.AttemptID{Task: failed.ID, N: 2}, Worker: "w2", Outcome: muster.AttemptFailed, Reason: muster.ExitCode, ExitCode: &code,
			LogSize: 77, Usage: failed.Usage, Artifacts: failed.Artifacts, Image: failed.Image, FinishedAt: 3_000,
		}},
		3: {ended(3, 1)},
		4: {ended(4, 1)},
		5: nil, // has no row
	}
	for num, w := range want {
		wantEqual(t, "attempts", w, must(f.Attempts(t.Context(), muster.TaskID{Job: 1, Num: num}))(t))
	}
	_, err := f.Attempts(t.Context(), muster.TaskID{Job: 1, Num: 6})
	wantCode(t, "attempts of an unknown task", err, muster.NotFound)
}

func workers(t *testing.T, f *fixture) {
	t.Helper()
	worker := func(id, name string) muster.Worker {
		return muster.Worker{ID: muster.WorkerID(id), Name: name, State: muster.WorkerActive}
	}
	a, b, c := worker("1", "cat"), worker("2", "ant"), worker("3", "bee")
	f.mustCommit(t, muster.Rows{Workers: []muster.Worker{a, b, c}})
	c.Name, c.Draining, c.Allow = "zebra", true, &muster.Allow{Images: []string{}} // no image, but every user
	c.UnsupportedFeatures, c.Projects, c.Resources.MaxTasks = []string{muster.FeatureFiles, muster.FeatureCancel}, []string{"red", ""}, 3
	c.Heartbeat = muster.Duration(time.Minute)
	f.mustCommit(t, muster.Rows{Workers: []muster.Worker{c}})
	got := must(f.Workers(t.Context()))(t)
	wantEqual(t, "workers", []muster.Worker{b, a, c}, got)
	if allow := got[2].Allow; allow.Images == nil || allow.Users != nil {
		t.Fatalf("an empty list and an absent one are not distinguished: %+v", allow)
	}
	f.mustCommit(t, muster.Rows{RemovedWorkers: []muster.WorkerID{"1", "unknown"}})
	got = must(f.Workers(t.Context()))(t)
	wantEqual(t, "workers", []muster.Worker{b, c}, got)
}

func keys(t *testing.T, f *fixture) {
	t.Helper()
	hash := func(c string) string { return strings.Repeat(c, 64) }
	admin := store.Key{ID: "k1", Name: "admin", Hash: hash("a"), Role: "admin", CreatedAt: 1}
	worker := store.Key{ID: "k2", Name: "w", Hash: hash("b"), Prefix: "mst_worker_abcd", Role: "worker", Project: "p", Job: 7, Worker: "w1", CreatedAt: 2, ExpiresAt: 3, LastUsedAt: 4, LastUsedFrom: "10.0.0.1"}
	for _, k := range []store.Key{worker, admin} {
		noError(t, f.PutKeys(t.Context(), k))
	}
	twin := store.Key{ID: "k3", Name: "twin", Hash: hash("a"), Role: "viewer", CreatedAt: 4}
	wantCode(t, "a key with the secret of another", f.PutKeys(t.Context(), twin), muster.Conflict)
	f.reopen(t)
	wantEqual(t, "key", worker, must(f.KeyByHash(t.Context(), hash("b")))(t))
	worker.Hash = hash("c") // rotated
	noError(t, f.PutKeys(t.Context(), worker))
	_, err := f.KeyByHash(t.Context(), hash("b"))
	wantCode(t, "the hash before the rotation", err, muster.NotFound)
	wantEqual(t, "keys", []store.Key{admin, worker}, must(f.ListKeys(t.Context()))(t))
	noError(t, f.DeleteKey(t.Context(), "k2"))
	_, err = f.KeyByHash(t.Context(), hash("c"))
	wantCode(t, "a deleted key of a worker", err, muster.Forbidden)
	noError(t, f.DeleteKey(t.Context(), "k1"))
	_, err = f.KeyByHash(t.Context(), hash("a"))
	wantCode(t, "a deleted key of a user", err, muster.NotFound)
	wantCode(t, "deleting it again", f.DeleteKey(t.Context(), "k2"), muster.NotFound)
	childKeys(t, f)
	rotatedKeys(t, f)
}

// rotatedKeys checks that keys are stored together or not at all, and that the use of a secret is that of the key which has it.
func rotatedKeys(t *testing.T, f *fixture) {
	t.Helper()
	hash := func(s string) string { return strings.Repeat(s, 64) }
	key := store.Key{ID: "k6", Name: "ci", Hash: hash("6"), Role: "viewer", CreatedAt: 7}
	noError(t, f.PutKeys(t.Context(), key))
	old := store.Key{ID: "k7", Name: "ci", Hash: hash("6"), Role: "viewer", Parent: "k6", Rotated: true, CreatedAt: 7, ExpiresAt: 20}
	renewed := key
	renewed.Hash = hash("7")
	wantCode(t, "an old secret that is still in use", f.PutKeys(t.Context(), old, renewed), muster.Conflict)
	wantEqual(t, "keys", []store.Key{key}, must(f.ListKeys(t.Context()))(t))
	noError(t, f.PutKeys(t.Context(), renewed, old))

	noError(t, f.TouchKeys(t.Context(), []store.KeyUse{{Hash: hash("6"), At: 9, From: "::1"}, {Hash: hash("f"), At: 9, From: "::1"}}))
	noError(t, f.TouchKeys(t.Context(), []store.KeyUse{{Hash: hash("6"), At: 8, From: "10.0.0.1"}})) // late
	old.LastUsedAt, old.LastUsedFrom = 9, "::1"
	wantEqual(t, "keys", []store.Key{renewed, old}, must(f.ListKeys(t.Context()))(t))
	f.reopen(t)
	wantEqual(t, "the old secret", old, must(f.KeyByHash(t.Context(), hash("6")))(t))
	noError(t, f.DeleteKey(t.Context(), "k6"))
	_, err := f.KeyByHash(t.Context(), hash("6"))
	wantCode(t, "the old secret of a deleted key", err, muster.NotFound)
}

// childKeys checks that a key is deleted with its parent, and that a deleted key cannot be a parent.
func childKeys(t *testing.T, f *fixture) {
	t.Helper()
	hash := func(c string) string { return strings.Repeat(c, 64) }
	parent := store.Key{ID: "k4", Name: "ann", Hash: hash("d"), Role: "submitter", CreatedAt: 5}
	child := store.Key{ID: "k5", Name: "link to job 7", Hash: hash("e"), Role: "viewer", Job: 7, Parent: "k4", CreatedAt: 6, ExpiresAt: 9, Subject: "https://accounts.example.com 17"}
	wantCode(t, "a key with an unknown parent", f.PutKeys(t.Context(), child), muster.Unauthenticated)
	for _, k := range []store.Key{parent, child} {
		noError(t, f.PutKeys(t.Context(), k))
	}
	f.reopen(t)
	wantEqual(t, "key", child, must(f.KeyByHash(t.Context(), hash("e")))(t))
	noError(t, f.DeleteKey(t.Context(), "k4"))
	_, err := f.KeyByHash(t.Context(), hash("e"))
	wantCode(t, "the key of a deleted one", err, muster.NotFound)
	wantCode(t, "a key of a deleted one", f.PutKeys(t.Context(), child), muster.Unauthenticated)
}

// enrolment checks joins by a key with bounds.
func enrolment(t *testing.T, f *fixture) {
	t.Helper()
	hash := func(n int) string { return fmt.Sprintf("%064d", n) }
	bounds := &store.KeyBounds{Tags: []string{"trusted", "eu"}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	token := store.Key{ID: "t1", Name: "rack", Hash: hash(0), Role: "join", Project: "vision", CreatedAt: 1, Uses: new(3), Bounds: bounds}
	noError(t, f.PutKeys(t.Context(), token))
	worker := func(n int) store.Key {
		return store.Key{ID: fmt.Sprintf("w%03d", n), Name: "rig", Hash: hash(n), Role: "worker", Worker: muster.WorkerID(fmt.Sprintf("w-%d", n)), CreatedAt: 5}
	}
	var joins sync.WaitGroup
	var joined atomic.Int32
	for n := 1; n <= 10; n++ {
		joins.Go(func() {
			if _, err := f.Enroll(t.Context(), "t1", "", worker(n)); err == nil {
				joined.Add(1)
			} else if muster.CodeOf(err) != muster.Forbidden {
				t.Errorf("join %d: %v", n, err)
			}
		})
	}
	joins.Wait()
	if joined.Load() != 3 {
		t.Errorf("%d workers joined by a key with 3 uses", joined.Load())
	}
	f.reopen(t)
	keys := must(f.ListKeys(t.Context()))(t)
	first := keys[slices.IndexFunc(keys, func(k store.Key) bool { return k.Worker != "" })]
	again := first
	again.ID, again.Worker = "another", "w-another"
	wantEqual(t, "the key of a worker that joins again", first, must(f.Enroll(t.Context(), "t1", "", again))(t))
	_, err := f.Enroll(t.Context(), "t1", "", worker(11))
	wantCode(t, "a join without uses", err, muster.Forbidden)
	token.Uses = new(0)
	wantEqual(t, "the key", token, must(f.KeyByHash(t.Context(), hash(0)))(t))
	for _, k := range must(f.ListKeys(t.Context()))(t) {
		if k.Worker != "" && (k.Project != "vision" || !reflect.DeepEqual(k.Bounds, bounds) || k.JoinedBy != "t1" || k.Approval || k.Uses != nil || k.ExpiresAt != 0) {
			t.Errorf("a worker's key is %+v", k)
		}
	}
	wantEqual(t, "tags", []string{"eu", "trusted"}, must(f.BoundTags(t.Context()))(t))
	_, err = f.Enroll(t.Context(), "t2", "", worker(11))
	wantCode(t, "a join by an unknown key", err, muster.Unauthenticated)
	noError(t, f.PutKeys(t.Context(), store.Key{ID: "t4", Name: "other", Hash: hexOf("4"), Role: "join", CreatedAt: 1}))
	_, err = f.Enroll(t.Context(), "t4", "", again)
	wantCode(t, "a join with a key pair of a worker that joined by another token", err, muster.Conflict)
	reset := store.Key{ID: "t5", Name: "reset", Hash: hexOf("5"), Role: "join", CreatedAt: 1, Uses: new(1), Bounds: &store.KeyBounds{Tags: []string{"eu"}, Worker: "w-reset"}}
	noError(t, f.PutKeys(t.Context(), reset))
	back := must(f.Enroll(t.Context(), "t5", "", worker(12)))(t)
	if back.Worker != "w-reset" || !reflect.DeepEqual(back.Bounds, &store.KeyBounds{Tags: []string{"eu"}}) {
		t.Errorf("a worker that joins by a token of its own has the key %+v", back)
	}
	noError(t, f.QuarantineKeys(t.Context(), "w-reset", "copied"))
	noError(t, f.PutKeys(t.Context(), back)) // as it was read before
	back.Quarantined = "copied"
	wantEqual(t, "a quarantined key", back, must(f.KeyByHash(t.Context(), back.Hash))(t))
	_, err = f.Enroll(t.Context(), "t4", "w-reset", worker(13))
	wantCode(t, "a join of a worker that is quarantined", err, muster.Forbidden)
	noError(t, f.DeleteKey(t.Context(), back.ID))
	_, err = f.Enroll(t.Context(), "t4", "w-reset", worker(13))
	wantCode(t, "a join of a worker that was revoked", err, muster.Forbidden)
	reset.ID, reset.Hash, reset.JoinedBy, reset.Uses = "t6", hexOf("6"), "t1", new(1)
	noError(t, f.PutKeys(t.Context(), reset))
	_, err = f.Enroll(t.Context(), "t6", "", first)
	wantCode(t, "a join with a key pair of another worker", err, muster.Conflict)
	back = must(f.Enroll(t.Context(), "t6", "w-reset", worker(14)))(t)
	if back.Worker != "w-reset" || back.JoinedBy != "t1" {
		t.Errorf("a worker that was reset has the key %+v", back)
	}
	wantEqual(t, "the same again", back, must(f.Enroll(t.Context(), "t6", "w-reset", worker(14)))(t))
	noError(t, f.DeleteKey(t.Context(), back.ID))
	noError(t, f.DeleteKey(t.Context(), "t6"))
	other := must(f.Enroll(t.Context(), "t4", "w-never", worker(15)))(t)
	noError(t, f.DeleteKey(t.Context(), other.ID))
	noError(t, f.DeleteKey(t.Context(), "t5"))
	pendingWorkers(t, f, worker)
}

// pendingWorkers checks how many workers may wait for approval, and for how long.
func pendingWorkers(t *testing.T, f *fixture, worker func(int) store.Key) {
	t.Helper()
	noError(t, f.PutKeys(t.Context(), store.Key{ID: "t3", Name: "guests", Hash: hexOf("3"), Role: "join", CreatedAt: 1, Approval: true}))
	for n := 100; n < 100+store.MaxPending; n++ {
		k := must(f.Enroll(t.Context(), "t3", "", worker(n)))(t)
		if !k.Approval || k.ExpiresAt != k.CreatedAt.Add(store.PendingTTL) {
			t.Fatalf("a pending worker has the key %+v", k)
		}
	}
	_, err := f.Enroll(t.Context(), "t3", "", worker(11))
	wantCode(t, "a pending worker too many", err, muster.Unavailable)
	noError(t, f.Approve(t.Context(), "w-100"))
	approved := worker(100)
	approved.JoinedBy = "t3"
	wantEqual(t, "an approved worker", approved, must(f.KeyByHash(t.Context(), approved.Hash))(t))
	must(f.Enroll(t.Context(), "t3", "", worker(11)))(t)
	_, err = f.Enroll(t.Context(), "t3", "", worker(12))
	wantCode(t, "a pending worker too many", err, muster.Unavailable)
	late := worker(12)
	late.CreatedAt = late.CreatedAt.Add(store.PendingTTL)
	must(f.Enroll(t.Context(), "t3", "", late))(t)
}

// listAll reads all pages and checks that they end and have the requested length.
func listAll[T any](t *testing.T, limit int, page func(cursor string) ([]T, string, error)) []T {
	t.Helper()
	var all []T
	for cursor := ""; ; {
		got, next, err := page(cursor)
		noError(t, err)
		all = append(all, got...)
		if len(got) > limit || next != "" && len(got) < limit {
			t.Fatalf("a page of %d rows at limit %d, cursor %q", len(got), limit, next)
		}
		if next == "" {
			return all
		}
		if next == cursor || len(all) > 100_000 {
			t.Fatalf("the list does not end: cursor %q after %d rows", next, len(all))
		}
		cursor = next
	}
}

func tasksModel(t *testing.T, f *fixture) {
	t.Helper()
	id := muster.JobID(0)
	rapid.Check(t, func(rt *rapid.T) {
		id++
		_, _, want := drawTasks(t, rt, f, id, []muster.TaskState{muster.Queued, muster.Waiting, muster.Cancelled, muster.Skipped})

		q := store.TaskQuery{Job: id, Limit: rapid.IntRange(1, 15).Draw(rt, "limit")}
		if rapid.Bool().Draw(rt, "by state") {
			q.States = rapid.SliceOfN(rapid.SampledFrom(muster.TaskStates), 1, 4).Draw(rt, "states")
		}
		if rapid.Bool().Draw(rt, "by span") {
			q.Spans = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) store.Span {
				return store.Span{First: rapid.IntRange(-3, 50).Draw(t, "first"), Last: rapid.IntRange(-3, 50).Draw(t, "last")}
			}), 1, 4).Draw(rt, "spans")
		}
		q.StoredOnly = rapid.Bool().Draw(rt, "stored")
		want = slices.DeleteFunc(want, func(task muster.Task) bool {
			inState := len(q.States) == 0 || slices.Contains(q.States, task.State)
			inSpan := len(q.Spans) == 0 || slices.ContainsFunc(q.Spans, func(s store.Span) bool {
				return s.First <= task.Index && task.Index <= s.Last
			})
			return !inState || !inSpan || q.StoredOnly && task.Synthesized
		})
		got := listAll(t, q.Limit, func(cursor string) ([]muster.Task, string, error) {
			q.Cursor = cursor
			return f.Tasks(t.Context(), q)
		})
		wantEqual(t, "tasks", want, got)
		for _, task := range want {
			wantEqual(t, "task", task, must(f.Task(t.Context(), task.ID))(rt))
		}
	})
}

func millionTasks(t *testing.T, f *fixture) {
	t.Helper()
	const size = 1_000_000
	j, g := job(1, size)
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
	for name, c := range map[string]struct {
		q           store.TaskQuery
		first, last int
		cursor      string
	}{
		"first":    {store.TaskQuery{Limit: 100}, 0, 99, "100"},
		"middle":   {store.TaskQuery{Limit: 100, States: []muster.TaskState{muster.Queued}, Cursor: "500000"}, 500_000, 500_099, "500100"},
		"last":     {store.TaskQuery{Limit: 100, Cursor: "999950"}, 999_950, 999_999, ""},
		"last ten": {store.TaskQuery{Limit: 100, Spans: []store.Span{{First: size - 10, Last: size + 10}}}, size - 10, size - 1, ""},
	} {
		c.q.Job = 1
		tasks, cursor, err := f.Tasks(t.Context(), c.q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := len(tasks) - 1
		if n != c.last-c.first || tasks[0].Index != c.first || tasks[n].Index != c.last || cursor != c.cursor {
			t.Errorf("%s: %d tasks from %d, cursor %q", name, len(tasks), tasks[0].Index, cursor)
		}
		if want := strconv.Itoa(c.last + 1); tasks[n].Element != want {
			t.Errorf("%s: the last one is element %q, want %q", name, tasks[n].Element, want)
		}
	}
	none, cursor, err := f.Tasks(t.Context(), store.TaskQuery{Job: 1, Limit: 100, States: []muster.TaskState{muster.Failed}})
	if err != nil || len(none) != 0 || cursor != "" {
		t.Fatalf("%d failed tasks, cursor %q, %v", len(none), cursor, err)
	}
}

func jobsModel(t *testing.T, f *fixture) {
	t.Helper()
	var all []muster.Job // newest first
	names, projects := []string{"train", "test", "train-2", "50%_off"}, []string{"default", "vision"}
	rapid.Check(t, func(rt *rapid.T) {
		j, g := job(muster.JobID(len(all)+1), 1)
		j.Name = rapid.SampledFrom(names).Draw(rt, "name")
		j.Project = rapid.SampledFrom(projects).Draw(rt, "project")
		j.Kind = rapid.SampledFrom([]string{"", "noop", "script"}).Draw(rt, "kind")
		j.Owner = rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(rt, "owner")
		j.CreatedAt = muster.Time(rapid.Int64Range(1, 50).Draw(rt, "created")) // not in the order of numbers: clocks go back
		j.Labels = rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "it's.$"}), rapid.SampledFrom([]string{"1", "2", ""}), 0, 3).Draw(rt, "labels")
		rest := []muster.TaskState{muster.Waiting, muster.Queued, muster.Succeeded, muster.Failed, muster.TimedOut, muster.Cancelled}
		g.UnmaterializedState = rapid.SampledFrom(rest).Draw(rt, "rest")
		recount(&j, &g, nil)
		f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
		j.Spec = nil
		all = slices.Insert(all, 0, j)

		optional := func(name string, values ...string) string {
			return rapid.OneOf(rapid.Just(""), rapid.SampledFrom(values)).Draw(rt, name)
		}
		q := store.JobQuery{
			Limit: rapid.IntRange(1, 20).Draw(rt, "limit"), OldestFirst: rapid.Bool().Draw(rt, "oldest"),
			Project: optional("wanted project", projects...), Name: optional("wanted name", "train", "t", "%", "_", "none"),
			Kind: optional("wanted kind", "noop", "script", "none"), Owner: optional("wanted owner", "ann", "bob"),
		}
		if rapid.Bool().Draw(rt, "by state") {
			q.States = rapid.SliceOfN(rapid.SampledFrom(muster.JobStates), 1, 3).Draw(rt, "states")
		}
		if rapid.Bool().Draw(rt, "by time") {
			q.Since, q.Until = muster.Time(rapid.Int64Range(0, 50).Draw(rt, "since")), muster.Time(rapid.Int64Range(0, 50).Draw(rt, "until"))
		}
		if rapid.Bool().Draw(rt, "by label") {
			q.Labels = rapid.MapOfN(rapid.SampledFrom([]string{"a", "it's.$"}), rapid.SampledFrom([]string{"1", ""}), 1, 2).Draw(rt, "wanted labels")
		}
		var want []muster.Job
		for _, j := range all {
			has := maps.Clone(j.Labels)
			maps.DeleteFunc(has, func(k, v string) bool { w, ok := q.Labels[k]; return !ok || w != v })
			if (len(q.States) == 0 || slices.Contains(q.States, j.State)) && (q.Project == "" || q.Project == j.Project) &&
				strings.Contains(j.Name, q.Name) && len(has) == len(q.Labels) && (q.Kind == "" || q.Kind == j.Kind) &&
				(q.Owner == "" || q.Owner == j.Owner) && j.CreatedAt >= q.Since && (q.Until == 0 || j.CreatedAt <= q.Until) {
				want = append(want, j)
			}
		}
		if q.OldestFirst {
			slices.Reverse(want)
		}
		got := listAll(t, q.Limit, func(cursor string) ([]muster.Job, string, error) {
			q.Cursor = cursor
			return f.Jobs(t.Context(), q)
		})
		wantEqual(t, "jobs", want, got)
	})
}

func badQueries(t *testing.T, f *fixture) {
	t.Helper()
	j, g := job(1, 1)
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}})
	_, err := f.Job(t.Context(), 2)
	wantCode(t, "job", err, muster.NotFound)
	_, _, err = f.Tasks(t.Context(), store.TaskQuery{Job: 2, Limit: 1})
	wantCode(t, "tasks", err, muster.NotFound)
	for _, num := range []int{1, muster.MaxTasks} {
		_, err = f.Task(t.Context(), muster.TaskID{Job: 1, Num: num})
		wantCode(t, "task", err, muster.NotFound)
	}
	_, err = f.Task(t.Context(), muster.TaskID{Job: 2})
	wantCode(t, "task", err, muster.NotFound)
	for _, cursor := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		_, _, err = f.Tasks(t.Context(), store.TaskQuery{Job: 1, Limit: 1, Cursor: cursor})
		wantCode(t, "tasks at "+cursor, err, muster.Invalid)
		_, _, err = f.Jobs(t.Context(), store.JobQuery{Limit: 1, Cursor: cursor})
		wantCode(t, "jobs at "+cursor, err, muster.Invalid)
	}
	for _, limit := range []int{0, -1} {
		_, _, err = f.Tasks(t.Context(), store.TaskQuery{Job: 1, Limit: limit})
		wantCode(t, "tasks", err, muster.Invalid)
		_, _, err = f.Jobs(t.Context(), store.JobQuery{Limit: limit})
		wantCode(t, "jobs", err, muster.Invalid)
	}
}

// readers checks that the counts of a job, those of its group and the rows of its
// tasks always agree, although each commit changes all of them.
func readers(t *testing.T, f *fixture) {
	t.Helper()
	const tasks, commits = 20, 100
	j, g := job(1, tasks)
	g.Materialized = tasks
	rows := make([]muster.Task, tasks)
	commit := func(n int) {
		for i := range rows {
			st := muster.Queued
			if i < n%tasks {
				st = muster.Running
			}
			rows[i] = row(&j, &g, i, st)
		}
		recount(&j, &g, rows)
		f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: rows})
		j.Spec = nil
	}
	commit(0)
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for n := 0; n == 0 || !done.Load(); n++ {
				job, err := f.Job(t.Context(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				if job.Counts != job.Groups[0].Counts {
					t.Errorf("the job counts %v, its group %v", job.Counts, job.Groups[0].Counts)
					return
				}
				list, _, err := f.Tasks(t.Context(), store.TaskQuery{Job: 1, Limit: tasks})
				if err != nil || len(list) != tasks {
					t.Errorf("%d tasks, %v", len(list), err)
					return
				}
				running := 0
				for i := range list {
					if list[i].State == muster.Running {
						running++
					}
				}
				if running > 0 && list[running-1].State != muster.Running {
					t.Error("the rows come from two commits")
					return
				}
			}
		})
	}
	for n := range commits {
		commit(n)
	}
	done.Store(true)
	wg.Wait()
}

func closed(t *testing.T, f *fixture) {
	t.Helper()
	for range 2 { // closing twice is not an error
		noError(t, f.Close())
	}
	_, err := f.Load(t.Context())
	wantCode(t, "load", err, muster.Unavailable)
	wantCode(t, "commit", f.Commit(t.Context(), &store.Batch{}), muster.Unavailable)
	_, err = f.Job(t.Context(), 1)
	wantCode(t, "job", err, muster.Unavailable)
	_, err = f.ListKeys(t.Context())
	wantCode(t, "keys", err, muster.Unavailable)
}
