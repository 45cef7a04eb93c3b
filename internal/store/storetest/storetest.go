// Package storetest tests the contract of package store. Every adapter runs it.
package storetest

import (
	"net/netip"
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
	keyStores
	otherReaders
	fileStores
	webhookStores
	retentionStores
	Close() error
}

type (
	keyStores interface {
		store.KeyStore
		store.EnrolmentStore
		store.SecretStore
	}
	otherReaders interface {
		store.LateReportReader
		store.SummaryReader
		store.AuditStore
		store.ScheduleStore
		store.CacheStore
		store.ScheduleRunStore
	}
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

// Run tests an adapter. Open opens the store in dir, which is empty at first: the same
// dir has the same rows.
func Run(t *testing.T, open func(t *testing.T, dir string) Store) {
	t.Helper()
	cases := []struct {
		name string
		prop string
		test func(*testing.T, *fixture)
	}{
		{"RoundTrip", "Every field of a committed row is read unchanged, also after a restart.", roundTrip},
		{"Atomic", "A refused batch changes nothing, and the next one works.", allOrNothing},
		{"Invariants", "Rows that break an invariant are refused.", invariants},
		{"Cancelled", "A commit with an ended context changes nothing.", cancelled},
		{"Load", "Load returns live tasks, the finished tasks of groups with Retained, and those from Materialized on.", load},
		{"Resolved", "A group's resolved spec is as last written, also after it was removed or added again.", resolved},
		{"NextJob", "Job numbers continue after the highest one, finished or not.", nextJob},
		{"Attempts", "History and the current attempt are listed once each, by number.", attempts},
		{"Workers", "Workers are listed by name, replaced by id, and removed.", workers},
		{"Idempotency", "An owner's key is kept with its job, and cannot be used twice.", idempotency},
		{"Keys", "API keys are found by hash, replaced by id, and NotFound after deletion; Forbidden if they were keys of workers.", keys},
		{"Enrolment", "A key lets as many workers join as it has uses, also at once and after a restart; they get its bounds; few wait for approval.", enrolment},
		{"Secrets", "Secrets are listed by project and name with all fields, replaced, and NotFound after deletion, also after a restart.", secrets},
		{"Cache", "Cached results are found by project and key, replaced, counted when they are used, and deleted by what they are of and when they have expired; their artifacts are listed until then.", cacheEntries},
		{"Schedules", "Schedules are listed by project and name, replaced with their runs kept, limited in number, and NotFound after deletion, also after a restart.", schedules},
		{"ScheduleRuns", "A run and its job are one transaction, which sets the next run; runs are listed newest first, and the last hundred and those of live jobs are kept.", scheduleRuns},
		{"Contents", "Files are found by their CID in each job that has them, and pinned once.", cids},
		{"Grants", "A blob is granted only to its uploaders and to the projects of jobs that produced it.", grants},
		{"Late", "Late reports of attempts that were assigned to the reporting worker are kept, up to a hundred for a job.", lateReports},
		{"Ends", "The end of a job with notifications is recorded once, by the commit that ends it, until it is processed.", jobEnds},
		{"Watched", "Waiting jobs are watched while they have notifications of long waits.", watchedJobs},
		{"Deliveries", "Deliveries are due by host, project and time, kept with their last attempt, and listed newest first.", deliveries},
		{"DueByProject", "Deliveries of a project do not hide those of another project for the same host.", dueByProject},
		{"DeliveryBounds", "The pending and the final deliveries of a project are limited in number.", deliveryBounds},
		{"TasksModel", "Every task is listed exactly once, for all rows, states, spans and page sizes; cursors end.", tasksModel},
		{"Million", "A job of a million tasks without rows is listed like any other, up to its end.", millionTasks},
		{"JobsModel", "Exactly the matching jobs are listed, by number, from either end; cursors end.", jobsModel},
		{"States", "TaskStates returns the states that Tasks returns, for all rows and spans.", statesModel},
		{"Previous", "PreviousJob is the newest older job of the same project and name; FailingNames lists the names whose last jobs failed.", previous},
		{"Removed", "A removed job and its rows are NotFound at once; what remains is deleted in parts, also after a restart; its number and its idempotency key are not used again.", removedJobs},
		{"Totals", "The totals of projects are as last written, also after a restart.", totals},
		{"Kept", "Since when a job is kept, and when its logs and artifacts expired, survives changes of its row.", keptAndExpired},
		{"Ended", "Ended jobs are listed by their end, late reports by their time, and both are counted without those that are kept.", endedJobs},
		{"Policies", "Policies of projects are replaced and deleted.", policies},
		{"Departed", "Expired keys, and keys and grants of workers that do not exist, are deleted in parts.", departedKeys},
		{"BlobRefs", "All references to blobs are listed page by page: those of specs, tasks, attempts and late reports, and uploads that are not reported.", blobRefs},
		{"Audit", "The audit log is one chain, which is listed by any filter and stays verifiable while its first records are removed.", auditLog},
		{"BadQueries", "Unknown jobs are NotFound; bad cursors and limits are Invalid.", badQueries},
		{"Readers", "Readers see only whole commits, also during commits.", readers},
		{"Closed", "After Close all calls are refused.", closed},
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

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// must returns v, and ends the test if err is not nil: must(f.Job(ctx, id))(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantEqual compares rows. An empty list or map equals an absent one.
func wantEqual(t *testing.T, name string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
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

// recount sets the counts of a group from its rows and its other tasks, and the job's from
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

// row returns a task's row in a state, with the fields that the state requires.
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
