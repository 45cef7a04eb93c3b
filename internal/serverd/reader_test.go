package serverd

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// TestNames checks who gets the names of keys and workers: not links to one job. Deleted keys and workers have no
// names.
func TestNames(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := namedReader{db, engine.New(engine.Config{Store: nil})}
	for _, k := range []store.Key{{ID: "k1", Name: "ann", Role: "submitter"}, {ID: "k2", Name: "bob", Role: "submitter"}} {
		k.Hash = strings.Repeat(k.ID, 32)
		if err := db.PutKeys(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	rows := muster.Rows{Workers: []muster.Worker{{ID: "w1", Name: "box", State: muster.WorkerActive}}}
	for i, owner := range []string{"k1", "k2", "", "dialect"} {
		id, size := muster.JobID(i+1), 2
		counts := muster.Counts{muster.Running: 2}
		rows.Jobs = append(rows.Jobs, muster.Job{ID: id, Name: "j", Project: "p", State: muster.JobRunning, Priority: 50, Owner: owner, Counts: counts, CreatedAt: 1, Spec: &muster.Spec{}})
		rows.Groups = append(rows.Groups, muster.Group{Job: id, Name: "g", Size: size, Materialized: size, UnmaterializedState: muster.Queued, Counts: counts})
		for n, worker := range []muster.WorkerID{"w1", "w2"} {
			rows.Tasks = append(rows.Tasks, muster.Task{
				ID: muster.TaskID{Job: id, Num: n}, Job: id, Index: n, State: muster.Running, Attempt: 1, Worker: worker, Name: "g", Kind: "noop",
				Grant: &muster.Grant{}, CreatedAt: 1, QueuedAt: 1, AssignedAt: 1, StartedAt: 1,
			})
		}
	}
	if err := db.Commit(t.Context(), &store.Batch{Rows: rows}); err != nil {
		t.Fatal(err)
	}
	late := muster.LateReport{Report: muster.Report{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}, Outcome: muster.AttemptFailed, Reason: muster.ExitCode}, Worker: "w1", At: 2}
	if err := db.Commit(t.Context(), &store.Batch{Rows: muster.Rows{LateReports: []muster.LateReport{late}}}); err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteKey(t.Context(), "k2"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		as     auth.Principal
		owner  string
		worker string
	}{
		"a viewer":                   {auth.Principal{Role: auth.Viewer}, "ann", "box"},
		"a submitter of one project": {auth.Principal{Role: auth.Submitter, Project: "p"}, "ann", "box"},
		"a link to one job":          {auth.Principal{Role: auth.Viewer, Job: 1}, "", ""},
	} {
		ctx := caller.NewContext(t.Context(), c.as)
		job, err := r.Job(ctx, 1)
		if err != nil || job.OwnerName != c.owner || job.Owner != "k1" {
			t.Errorf("%s: job 1 has the owner %q, %q (%v)", name, job.Owner, job.OwnerName, err)
		}
		jobs, _, err := r.Jobs(ctx, store.JobQuery{Limit: 10})
		if err != nil || len(jobs) != 4 || jobs[3].OwnerName != c.owner || jobs[2].OwnerName+jobs[1].OwnerName+jobs[0].OwnerName != "" {
			t.Errorf("%s: the list is %+v (%v)", name, jobs, err)
		}
		tasks, _, err := r.Tasks(ctx, store.TaskQuery{Job: 1, Limit: 10})
		if err != nil || len(tasks) != 2 || tasks[0].WorkerName != c.worker || tasks[1].WorkerName != "" {
			t.Errorf("%s: the tasks are %+v (%v)", name, tasks, err)
		}
		task, err := r.Task(ctx, muster.TaskID{Job: 1})
		if err != nil || task.WorkerName != c.worker || task.Worker != "w1" {
			t.Errorf("%s: the task is on %q, %q (%v)", name, task.Worker, task.WorkerName, err)
		}
		attempts, err := r.Attempts(ctx, muster.TaskID{Job: 1})
		if err != nil || len(attempts) != 1 || attempts[0].WorkerName != c.worker {
			t.Errorf("%s: the attempts are %+v (%v)", name, attempts, err)
		}
		reports, err := r.LateReports(ctx, 1)
		if err != nil || len(reports) != 1 || reports[0].WorkerName != c.worker {
			t.Errorf("%s: the late reports are %+v (%v)", name, reports, err)
		}
	}
	if _, err := r.Job(t.Context(), 99); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("an unknown job: %v", err)
	}
}
