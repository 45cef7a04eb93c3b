package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// retentionStores is what retention uses.
type retentionStores interface {
	store.RetentionReader
	store.PolicyStore
	store.RemovalStore
	store.BlobRefReader
	RemovableJobs(ctx context.Context, ids []muster.JobID) ([]store.RemovableJob, error)
}

func (f *fixture) mustChange(t *testing.T, b *store.Batch) {
	t.Helper()
	if err := f.Commit(t.Context(), b); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func hexOf(digit string) string { return strings.Repeat(digit, 64) }

// endedJob commits an ended job of size tasks, with an earlier attempt, an artifact with a content identifier and a late report of each.
func (f *fixture) endedJob(t *testing.T, id muster.JobID, size int, change ...func(*muster.Job)) muster.Job {
	t.Helper()
	j, g := job(id, size)
	j.FinishedAt, j.Usage.LogBytes = 9_000, 100
	g.Materialized = size
	var rows []muster.Task
	var past []muster.Attempt
	var late []muster.LateReport
	for num := range size {
		r := row(&j, &g, num, muster.Succeeded)
		r.Worker, r.Attempt = "w1", 2
		r.Artifacts = []muster.Artifact{{Name: "out", SHA256: hexOf("a"), Size: 3, CID: "Qm" + strings.Repeat("c", 44)}}
		rows = append(rows, r)
		past = append(past, muster.Attempt{ID: muster.AttemptID{Task: r.ID, N: 1}, Worker: "w1", Outcome: muster.AttemptFailed, FinishedAt: 5})
		late = append(late, muster.LateReport{Report: muster.Report{Attempt: past[num].ID, Outcome: muster.AttemptFailed, FinishedAt: 5}, Worker: "w1", At: 6_000})
	}
	recount(&j, &g, rows)
	for _, c := range change {
		c(&j)
	}
	key := store.IdempotencyKey{Key: "key " + id.String(), Owner: "me", Digest: "d", Job: id, At: 5}
	f.mustChange(t, &store.Batch{
		Rows:            muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: rows, Attempts: past, LateReports: late},
		IdempotencyKeys: []store.IdempotencyKey{key},
	})
	return j
}

func removedJobs(t *testing.T, f *fixture) {
	t.Helper()
	const size = 7
	for id := range muster.JobID(3) {
		f.endedJob(t, id+1, size)
		key := store.Key{ID: "share " + id.String(), Name: "share", Hash: fmt.Sprintf("%064d", id), Role: "reader", Job: id + 1, CreatedAt: 1}
		noError(t, f.PutKeys(t.Context(), key))
	}
	f.mustChange(t, &store.Batch{RemovedJobs: []muster.JobID{1, 3}, At: 10_000})
	gone := func() {
		t.Helper()
		for _, id := range []muster.JobID{1, 3} {
			task := muster.TaskID{Job: id, Num: 2}
			_, err := f.Job(t.Context(), id)
			wantCode(t, "job", err, muster.NotFound)
			_, err = f.Task(t.Context(), task)
			wantCode(t, "task", err, muster.NotFound)
			_, err = f.Attempts(t.Context(), task)
			wantCode(t, "attempts", err, muster.NotFound)
			_, _, err = f.Tasks(t.Context(), store.TaskQuery{Job: id, Limit: 9})
			wantCode(t, "tasks", err, muster.NotFound)
			wantEqual(t, "late reports", []muster.LateReport(nil), must(f.LateReports(t.Context(), id))(t))
		}
		contents := must(f.Contents(t.Context(), store.ContentQuery{CID: "Qm" + strings.Repeat("c", 44), Limit: 9}))(t)
		if len(contents) != 1 || contents[0].Job != 2 {
			t.Errorf("contents of removed jobs are listed: %v", contents)
		}
		jobs, _, err := f.Jobs(t.Context(), store.JobQuery{Limit: 9})
		if len(jobs) != 1 || jobs[0].ID != 2 || err != nil {
			t.Errorf("jobs: %v, %v", jobs, err)
		}
		if keys := must(f.ListKeys(t.Context()))(t); len(keys) != 1 || keys[0].Job != 2 {
			t.Errorf("links to removed jobs are left: %+v", keys)
		}
		// A report that arrives after the removal is not kept, and a webhook that watched the job does not stop others.
		f.mustCommit(t, muster.Rows{LateReports: []muster.LateReport{{
			Report: muster.Report{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}, Outcome: muster.AttemptFailed, FinishedAt: 5}, Worker: "w1", At: 9,
		}}})
		noError(t, f.EnqueueDeliveries(t.Context(), store.EnqueueBatch{Idle: []store.IdleJob{{Job: 1, Since: 5}}}))
	}
	gone()
	f.reopen(t)
	gone()
	for rows := 0; ; {
		ids, oldest, err := f.RemovedJobs(t.Context(), 0, 9)
		noError(t, err)
		if len(ids) == 0 {
			if rows != 2*(3*size+1+1) || oldest != 0 { // tasks, attempts and late reports, one content, and the record of the removal
				t.Errorf("%d rows were deleted; a removal of %d is left", rows, oldest)
			}
			break
		}
		if oldest != 10_000 {
			t.Errorf("the oldest removal was at %d", oldest)
		}
		r, err := f.DeleteRemoved(t.Context(), ids, 4)
		noError(t, err)
		if rows += r.Rows; r.Rows < 1 || r.Rows > 4+size || r.Held <= 0 {
			t.Fatalf("one call of at most 4 rows deleted %+v", r)
		}
		gone()
		f.reopen(t)
	}
	r, err := f.DeleteRemoved(t.Context(), []muster.JobID{2, 1}, 100) // not removed, and done before
	if noError(t, err); r.Rows != 0 || r.Jobs != 2 {
		t.Errorf("of other jobs %+v was deleted", r)
	}
	if tasks, _, err := f.Tasks(t.Context(), store.TaskQuery{Job: 2, Limit: 9}); len(tasks) != size || err != nil {
		t.Errorf("job 2 has %d tasks, %v", len(tasks), err)
	}
	if k, found, err := f.FindIdempotencyKey(t.Context(), "me", "key 3"); k.Job != 3 || !found || err != nil {
		t.Errorf("the key of a removed job: %v, %t, %v", k, found, err)
	}
	if snap := must(f.Load(t.Context()))(t); snap.NextJob != 4 {
		t.Errorf("the number of a removed job is used again: the next is %s", snap.NextJob)
	}
}

func totals(t *testing.T, f *fixture) {
	t.Helper()
	check := func(want map[string]muster.Counts) {
		t.Helper()
		for range 2 {
			wantEqual(t, "totals", want, must(f.Load(t.Context()))(t).Totals)
			wantEqual(t, "projects", slices.Sorted(maps.Keys(want)), must(f.RetentionProjects(t.Context()))(t))
			f.reopen(t)
		}
	}
	check(nil)
	a, b := muster.Counts{muster.Waiting: 1, muster.Skipped: 9}, muster.Counts{muster.Running: 3}
	f.mustCommit(t, muster.Rows{Totals: []muster.ProjectTotal{{Project: "a", Counts: a}, {Project: "", Counts: b}}})
	check(map[string]muster.Counts{"a": a, "": b})
	f.mustCommit(t, muster.Rows{Totals: []muster.ProjectTotal{{Project: "a"}, {Project: "", Counts: a}, {Project: "a", Counts: b}, {Project: ""}}})
	check(map[string]muster.Counts{"a": b})
	err := f.Commit(t.Context(), &store.Batch{Rows: muster.Rows{Totals: []muster.ProjectTotal{{Project: "a", Counts: muster.Counts{muster.Queued: -1}}}}})
	wantCode(t, "a negative total", err, muster.Internal)
	check(map[string]muster.Counts{"a": b})
}

func keptAndExpired(t *testing.T, f *fixture) {
	t.Helper()
	want := map[muster.JobID]muster.Job{}
	for id := range muster.JobID(4) {
		j := f.endedJob(t, id+1, 1)
		want[j.ID] = j
	}
	check := func() {
		t.Helper()
		var ids []muster.JobID
		for id, j := range want {
			ids = append(ids, id)
			got := must(f.Job(t.Context(), id))(t)
			wantEqual(t, "retention of job "+id.String(), j.JobRetention, got.JobRetention)
			wantEqual(t, "usage of job "+id.String(), j.Usage, got.Usage)
		}
		jobs, _, err := f.Jobs(t.Context(), store.JobQuery{Limit: 9})
		noError(t, err)
		for _, j := range jobs {
			wantEqual(t, "listed retention of job "+j.ID.String(), want[j.ID].JobRetention, j.JobRetention)
		}
		for _, list := range [][]store.RemovableJob{must(f.ExistingJobs(t.Context(), append(ids, 99)))(t), must(f.RemovableJobs(t.Context(), append(ids, 99)))(t)} {
			if len(list) != len(want) {
				t.Fatalf("%d of %d jobs exist", len(list), len(want))
			}
			for _, r := range list {
				j := want[r.ID]
				wantEqual(t, "removable job", store.RemovableJob{
					ID: j.ID, Project: j.Project, State: j.State, Counts: j.Counts, Groups: 1, EndedAt: j.FinishedAt, LogBytes: j.Usage.LogBytes, JobRetention: j.JobRetention,
				}, r)
			}
		}
	}
	check()
	change := func(id muster.JobID, f func(*muster.Job)) { j := want[id]; f(&j); want[id] = j }
	f.mustChange(t, &store.Batch{Kept: []store.JobKept{{Job: 1, At: 11}, {Job: 2, At: 12}}, ExpiredLogs: []muster.JobID{3}, ExpiredArtifacts: []muster.JobID{3, 4}, At: 50})
	change(1, func(j *muster.Job) { j.KeptAt = 11 })
	change(2, func(j *muster.Job) { j.KeptAt = 12 })
	change(3, func(j *muster.Job) { j.LogsRemovedAt, j.ArtifactsRemovedAt, j.Usage.LogBytes = 50, 50, 0 })
	change(4, func(j *muster.Job) { j.ArtifactsRemovedAt = 50 })
	check()
	f.reopen(t)
	f.mustChange(t, &store.Batch{Kept: []store.JobKept{{Job: 1}}})
	change(1, func(j *muster.Job) { j.KeptAt = 0 })
	check()

	// A row of the job, as after a retry, changes none of it but the size of its logs.
	again := want[3]
	again.Spec, again.JobRetention, again.Usage.LogBytes = nil, muster.JobRetention{KeptAt: 77}, 5
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{again}})
	change(3, func(j *muster.Job) { j.Usage.LogBytes = 5 })
	check()
	if jobs := must(f.Load(t.Context()))(t).Jobs; len(jobs) != 0 {
		t.Errorf("ended jobs are loaded: %v", jobs)
	}
}

func endedJobs(t *testing.T, f *fixture) {
	t.Helper()
	live, group := job(1, 1)
	live.Usage.LogBytes = 5
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{live}, Groups: []muster.Group{group}, Totals: []muster.ProjectTotal{{Project: "default", Counts: live.Counts}}})
	ends := []muster.Time{50, 30, 30, 70, 40, 30}
	for i, at := range ends {
		f.endedJob(t, muster.JobID(i+2), i+1, func(j *muster.Job) {
			j.FinishedAt = at
			if i%2 == 0 {
				j.Usage.LogBytes = 0
			}
			if i == 5 {
				j.Project = "other"
			}
		})
	}
	f.mustChange(t, &store.Batch{Kept: []store.JobKept{{Job: 3, At: 5}, {Job: 1, At: 5}}})
	list := func(q store.EndedQuery) (text []string) {
		t.Helper()
		for q.Limit = 2; ; {
			page := must(f.EndedJobs(t.Context(), q))(t)
			for _, j := range page {
				text = append(text, fmt.Sprintf("%d@%d:%d,%d,%t", j.ID, j.EndedAt, j.Tasks, j.LogBytes, j.Kept))
			}
			if len(page) < q.Limit {
				return text
			}
			q.After = page[len(page)-1]
		}
	}
	const logs = 100 + store.JobLogOverhead
	wantEqual(t, "ended jobs", []string{
		fmt.Sprintf("3@30:2,%d,true", logs), "4@30:3,0,false", "6@40:5,0,false", "2@50:1,0,false", fmt.Sprintf("5@70:4,%d,false", logs),
	}, list(store.EndedQuery{Project: "default"}))
	wantEqual(t, "jobs with logs", []string{fmt.Sprintf("3@30:2,%d,true", logs), fmt.Sprintf("5@70:4,%d,false", logs)},
		list(store.EndedQuery{Project: "default", Logs: true}))
	wantEqual(t, "of another project", []string{fmt.Sprintf("7@30:6,%d,false", logs)}, list(store.EndedQuery{Project: "other"}))
	// The late reports are those of the tasks of all but jobs 1 and 3.
	wantEqual(t, "totals", store.EndedTotal{Jobs: 4, Logs: 1, LogBytes: logs, LateReports: 1 + 3 + 4 + 5}, must(f.EndedTotals(t.Context(), "default"))(t))
	wantEqual(t, "totals of another project", store.EndedTotal{Jobs: 1, Logs: 1, LogBytes: logs, LateReports: 6}, must(f.EndedTotals(t.Context(), "other"))(t))
	wantEqual(t, "totals of no project", store.EndedTotal{}, must(f.EndedTotals(t.Context(), "none"))(t))

	var reports []store.LateEntry
	for after := (store.LateEntry{}); ; {
		page := must(f.OldestLateReports(t.Context(), after, 4))(t)
		if reports = append(reports, page...); len(page) < 4 {
			break
		}
		after = page[len(page)-1]
	}
	if len(reports) != 13+6 {
		t.Errorf("%d late reports of jobs that are not kept", len(reports))
	}
	n, held, err := f.DeleteLateReports(t.Context(), []muster.AttemptID{
		reports[0].Attempt, reports[0].Attempt, {Task: muster.TaskID{Job: 3}, N: 1}, {Task: muster.TaskID{Job: 99}, N: 1},
	})
	if n != 1 || held <= 0 || err != nil {
		t.Errorf("deleted %d late reports in %s: %v", n, held, err)
	}
	if kept := must(f.LateReports(t.Context(), 3))(t); len(kept) != 2 {
		t.Errorf("the kept job has %d late reports", len(kept))
	}
}

func policies(t *testing.T, f *fixture) {
	t.Helper()
	if start, last, err := f.RetentionStart(t.Context()); start != 0 || last != 0 || err != nil {
		t.Errorf("a new store starts retention at %d, the last pass was at %d, %v", start, last, err)
	}
	noError(t, f.SetLastPass(t.Context(), 77))
	noError(t, f.SetProjectPolicy(t.Context(), "a", json.RawMessage(`{"jobs":"7d"}`)))
	noError(t, f.SetProjectPolicy(t.Context(), "b", json.RawMessage(`{}`)))
	noError(t, f.SetProjectPolicy(t.Context(), "a", json.RawMessage(`{"logs":"1d"}`)))
	f.reopen(t)
	wantEqual(t, "policies", map[string]json.RawMessage{"a": json.RawMessage(`{"logs":"1d"}`), "b": json.RawMessage(`{}`)}, must(f.ProjectPolicies(t.Context()))(t))
	noError(t, f.SetProjectPolicy(t.Context(), "b", nil))
	noError(t, f.SetProjectPolicy(t.Context(), "none", nil))
	wantEqual(t, "policies", map[string]json.RawMessage{"a": json.RawMessage(`{"logs":"1d"}`)}, must(f.ProjectPolicies(t.Context()))(t))
	wantCode(t, "a list", f.SetProjectPolicy(t.Context(), "a", json.RawMessage(`[]`)), muster.Internal)
	if _, last, err := f.RetentionStart(t.Context()); last != 77 || err != nil {
		t.Errorf("the last pass was at %d, %v", last, err)
	}
}

func departedKeys(t *testing.T, f *fixture) {
	t.Helper()
	keys := []store.Key{
		{ID: "old", ExpiresAt: 10}, {ID: "older", ExpiresAt: 5}, {ID: "valid", ExpiresAt: 20}, {ID: "forever"},
		{ID: "gone", Worker: "w1"}, {ID: "left", Worker: "w2"}, {ID: "other", Worker: "w3"},
	}
	for i := range keys {
		keys[i].Name, keys[i].Role, keys[i].CreatedAt, keys[i].Hash = keys[i].ID, "worker", 1, fmt.Sprintf("%064d", i)
		noError(t, f.PutKeys(t.Context(), keys[i]))
	}
	w2 := muster.Worker{ID: "w2", Name: "w2", State: muster.WorkerGone}
	f.mustCommit(t, muster.Rows{Workers: []muster.Worker{w2}})
	holders := []store.Grantee{store.WorkerGrantee("w1"), store.WorkerGrantee("w2"), store.WorkerGrantee("w1"), store.ProjectGrantee("w1")}
	noError(t, f.GrantBlobs(t.Context(), holders, []store.Blob{{SHA256: hexOf("a")}, {SHA256: hexOf("a")}, {SHA256: hexOf("b")}, {SHA256: hexOf("b")}}))
	names := func() (list []string) {
		t.Helper()
		for _, k := range must(f.ListKeys(t.Context()))(t) {
			list = append(list, k.ID)
		}
		return list
	}
	want := [][]string{{"forever", "gone", "left", "old", "other", "valid"}, {"forever", "left", "other", "valid"}, {"forever", "left", "other", "valid"}}
	for i, limit := range []int{1, 9, 9} {
		if n, _, err := f.DeleteKeys(t.Context(), 20, []muster.WorkerID{"w1", "w2"}, limit); n != []int{1, 2, 0}[i] || err != nil {
			t.Errorf("call %d deleted %d keys, %v", i, n, err)
		}
		wantEqual(t, "keys", want[i], names())
	}
	_, err := f.KeyByHash(t.Context(), keys[4].Hash) // unlike a revoked one: the worker may join again
	wantCode(t, "the key of a departed worker", err, muster.NotFound)
	for i, n := range []int{1, 1, 0} {
		if got, _, err := f.DropWorkerGrants(t.Context(), 1); got != n || err != nil {
			t.Errorf("call %d dropped %d grants, %v", i, got, err)
		}
	}
	for h, sums := range map[store.Grantee][]string{holders[0]: {hexOf("a"), hexOf("b")}, holders[1]: {hexOf("b")}, holders[3]: {hexOf("a")}} {
		wantEqual(t, "not granted to "+string(h), sums, must(f.Ungranted(t.Context(), h, []string{hexOf("a"), hexOf("b")}))(t))
	}
	held, err := f.DropGrants(t.Context(), []string{hexOf("a"), hexOf("b"), hexOf("c")}, func(sum string) bool { return sum == hexOf("b") })
	if held <= 0 || err != nil {
		t.Errorf("dropping grants took %s, %v", held, err)
	}
	wantEqual(t, "granted blobs", []string{hexOf("b")}, must(f.GrantedBlobs(t.Context(), "", 9))(t))
}

func blobRefs(t *testing.T, f *fixture) {
	t.Helper()
	before := muster.NewTime(time.Now().Add(-time.Hour))
	tree := func(j *muster.Job, files, stdin string) {
		j.Spec.Tasks[0].Files = files
		j.Spec.Labels = map[string]string{"stdin": stdin}
	}
	// Job 1 is live: a checkpoint, and artifacts of an earlier attempt. Jobs 2 to 4 have ended.
	j, g := job(1, 3)
	tree(&j, "sha256:"+hexOf("1"), "")
	g.Materialized = 3
	rows := []muster.Task{row(&j, &g, 0, muster.Running), row(&j, &g, 1, muster.Succeeded), row(&j, &g, 2, muster.Queued)}
	rows[0].Checkpoint, rows[1].Checkpoint = hexOf("2"), hexOf("3")
	rows[1].Artifacts = []muster.Artifact{{Name: "a", SHA256: hexOf("4"), Size: 4}}
	recount(&j, &g, rows)
	past := muster.Attempt{ID: muster.AttemptID{Task: rows[0].ID, N: 1}, Worker: "w9", Outcome: muster.AttemptFailed, FinishedAt: 5, Artifacts: []muster.Artifact{{Name: "b", SHA256: hexOf("5")}}}
	late := muster.LateReport{Report: muster.Report{Attempt: past.ID, Outcome: muster.AttemptSucceeded, FinishedAt: 5, Artifacts: []muster.Artifact{{Name: "c", SHA256: hexOf("6"), Size: 6}}}, Worker: "w9", At: 6}
	f.mustCommit(t, muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: rows, Attempts: []muster.Attempt{past}, LateReports: []muster.LateReport{late}})
	for id := muster.JobID(2); id <= 4; id++ {
		f.endedJob(t, id, 1, func(j *muster.Job) { tree(j, "sha256:"+hexOf("7"), "sha256:label") })
	}
	f.mustChange(t, &store.Batch{ExpiredArtifacts: []muster.JobID{3}, RemovedJobs: []muster.JobID{4}, Kept: []store.JobKept{{Job: 2, At: 3}}, At: 8})

	var refs []string
	add := func(page []store.BlobRef) {
		for _, r := range page {
			for _, b := range r.Blobs {
				refs = append(refs, fmt.Sprintf("%s#%d %t blob %.1s %d", cmp.Or(r.Task.Job, r.Job), r.Attempt, r.Kept, b.SHA256, b.Size))
			}
			for _, sum := range r.Trees {
				refs = append(refs, fmt.Sprintf("%s#%d %t tree %.1s ended %d", cmp.Or(r.Task.Job, r.Job), r.Attempt, r.Kept, sum, r.EndedAt))
			}
		}
	}
	for key, done := muster.JobID(0), false; !done; {
		var page []store.BlobRef
		var err error
		page, key, done, err = f.SpecBlobs(t.Context(), key, 1)
		noError(t, err)
		add(page)
	}
	for key, done := (muster.TaskID{}), false; !done; {
		var page []store.BlobRef
		var err error
		page, key, done, err = f.TaskBlobs(t.Context(), key, 1)
		noError(t, err)
		add(page)
	}
	for _, list := range []func(context.Context, muster.AttemptID, int) ([]store.BlobRef, muster.AttemptID, bool, error){f.AttemptBlobs, f.LateBlobs} {
		for key, done := (muster.AttemptID{}), false; !done; {
			var page []store.BlobRef
			var err error
			page, key, done, err = list(t.Context(), key, 1)
			noError(t, err)
			add(page)
		}
	}
	wantEqual(t, "references", []string{
		"1#0 false tree 1 ended 0", "2#0 true tree 7 ended 9000", "3#0 false tree 7 ended 9000",
		"1#0 false tree 2 ended 0", "1#0 false blob 4 4", "2#0 true blob a 3",
		"1#1 false blob 5 0", "1#1 false blob 6 6",
	}, refs)

	w := rows[0].Worker
	oldest := must(f.UnfinishedSince(t.Context()))(t)
	wantEqual(t, "unfinished", map[muster.WorkerID]muster.Time{w: rows[0].AssignedAt}, oldest)
	holders := []store.Grantee{store.WorkerGrantee(w), store.WorkerGrantee(w), store.WorkerGrantee("other")}
	noError(t, f.GrantBlobs(t.Context(), holders, []store.Blob{{SHA256: hexOf("8")}, {SHA256: hexOf("9")}, {SHA256: hexOf("b")}}))
	wantEqual(t, "uploads", []string{hexOf("8")}, must(f.WorkerBlobs(t.Context(), w, before, "", 1))(t))
	wantEqual(t, "uploads", []string{hexOf("9")}, must(f.WorkerBlobs(t.Context(), w, before, hexOf("8"), 5))(t))
	wantEqual(t, "later uploads", []string(nil), must(f.WorkerBlobs(t.Context(), w, before.Add(muster.Duration(2*time.Hour)), "", 5))(t))
}
