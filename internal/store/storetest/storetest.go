// Package storetest is the contract of package store as tests. Every adapter
// runs them.
package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// Store is all that an adapter implements.
type Store interface {
	store.Writer
	store.Reader
	store.KeyStore
	store.LateReportReader
	store.SummaryReader
	fileStores
	webhookStores
	Close() error
}

type (
	fileStores interface {
		store.PinStore
		store.VerificationStore
		store.GrantStore
	}
	webhookStores interface {
		store.NotificationStore
		store.DeliveryStore
	}
)

// Run holds the adapter to the contract. Open opens the store that is named by
// dir, an empty folder of the test's: the same dir has the same rows.
func Run(t *testing.T, open func(t *testing.T, dir string) Store) {
	t.Helper()
	cases := []struct {
		name string
		prop string
		test func(*testing.T, *fixture)
	}{
		{"RoundTrip", "What was committed is read as it was, every field of it, also after a restart.", roundTrip},
		{"Atomic", "A batch that is refused leaves nothing behind, and the next one works.", allOrNothing},
		{"Invariants", "Rows that break an invariant are refused.", invariants},
		{"Cancelled", "A commit under an ended context changes nothing.", cancelled},
		{"Load", "Load returns what is live, the finished tasks of Kept groups and those from Next on, and nothing else.", load},
		{"Resolved", "A group's resolved spec stays as last written, comes and goes.", resolved},
		{"NextJob", "Job numbers go on after the highest one, finished or not.", nextJob},
		{"Attempts", "History and the current attempt are listed once each, by number.", attempts},
		{"Workers", "Workers are listed by name, replaced by id, and gone when removed.", workers},
		{"Idempotency", "A key of an owner is kept with its job, and cannot be taken twice.", idempotency},
		{"Keys", "API keys are found by hash, replaced by id, and NotFound once deleted; Forbidden if they were those of workers.", keys},
		{"Contents", "Files are found by their CID in each job that has them, and pinned once.", cids},
		{"Grants", "A blob is granted to those who uploaded it and to the projects of jobs that made it, and to nobody else.", grants},
		{"Late", "Late reports are kept for attempts that were given to their worker, a hundred for a job.", lateReports},
		{"Ends", "The end of a job that is to be notified is noted once, with the commit that ends it, until it is taken.", jobEnds},
		{"Watched", "Jobs that wait are watched while their notifications say so.", watchedJobs},
		{"Deliveries", "Deliveries are due by host, project and time, kept as they were last tried, and listed newest first.", deliveries},
		{"DueByProject", "Deliveries of a project hide no others that are for the same host.", dueByProject},
		{"DeliveryBounds", "A project has so many pending deliveries, and so many final ones are kept.", deliveryBounds},
		{"TasksModel", "Every task is listed exactly once, whatever rows, states, spans and page size; cursors end.", tasksModel},
		{"Million", "A job of a million tasks without rows is listed as any other, up to its end.", millionTasks},
		{"JobsModel", "Jobs are listed by number, from either end, exactly those that match; cursors end.", jobsModel},
		{"States", "The states of all tasks are those of the tasks, whatever rows and spans.", statesModel},
		{"Previous", "The job before is the newest older one of the same project and name; names whose last jobs failed are listed.", previous},
		{"BadQueries", "Unknown jobs are NotFound; bad cursors and limits are Invalid.", badQueries},
		{"Readers", "Readers see whole commits only, while they happen.", readers},
		{"Closed", "After Close everything is refused.", closed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Log(c.prop)
			f := &fixture{open: open, dir: t.TempDir()}
			f.Store = open(t, f.dir)
			t.Cleanup(func() {
				if err := f.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			c.test(t, f)
		})
	}
}

// fixture is an open store that a case may reopen.
type fixture struct {
	Store
	open func(*testing.T, string) Store
	dir  string
}

func (f *fixture) reopen(t *testing.T) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	f.Store = f.open(t, f.dir)
}

func (f *fixture) mustCommit(t *testing.T, rows muster.Rows, keys ...store.IdempotencyKey) {
	t.Helper()
	if err := f.Commit(t.Context(), &store.Batch{Rows: rows, IdempotencyKeys: keys}); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

// wantEqual compares rows; a list or map that is empty is one that is absent.
func wantEqual(t *testing.T, name string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", name, diff)
	}
}

func wantCode(t *testing.T, name string, err error, want muster.Code) {
	t.Helper()
	if err == nil || muster.CodeOf(err) != want {
		t.Fatalf("%s: error %v, want one with code %s", name, err, want)
	}
}

// job returns a new job of one group with size tasks, all queued, and its group.
func job(id muster.JobID, size int) (muster.Job, muster.Group) {
	spec := muster.TaskSpec{Name: "stage", Kind: muster.KindNoop}
	if size > 1 {
		spec.Array = &muster.Array{Ranges: []muster.Range{{First: 1, Last: int64(size), Step: 1}}}
	}
	g := muster.Group{Job: id, Name: "stage", Size: size, UnmaterializedState: muster.Queued, UnmaterializedSince: 1_000}
	g.Counts[muster.Queued] = int64(size)
	j := muster.Job{
		ID: id, Name: "job", Project: "default", State: muster.JobQueued, Priority: 50, Counts: g.Counts, CreatedAt: 1_000,
		Spec: &muster.Spec{Name: "job", Tasks: []muster.TaskSpec{spec}},
	}
	return j, g
}

// recount sets the counts of a group from its rows and its rest, and the job's from
// the group.
func recount(j *muster.Job, g *muster.Group, rows []muster.Task) {
	g.Counts = muster.Counts{}
	for i := range rows {
		g.Counts[rows[i].State]++
	}
	g.Counts[g.UnmaterializedState] += int64(g.Size - len(rows))
	j.Counts = g.Counts
	j.State = j.Counts.State()
	j.FinishedAt = 0
	if j.State.Final() {
		j.FinishedAt = 9_000
	}
}

// row returns a task's row in a state, with what the state demands.
func row(j *muster.Job, g *muster.Group, num int, state muster.TaskState) muster.Task {
	t := store.SynthesizeTask(j, g, num)
	t.Synthesized = false
	t.State, t.Reason, t.Message = state, "", ""
	t.QueuedAt, t.FinishedAt = 1_000, 0
	if state.HoldsResources() {
		t.Worker, t.Attempt, t.AssignedAt = "w1", 1, 2_000
	}
	if state.Final() {
		t.FinishedAt = 3_000
	}
	return t
}
