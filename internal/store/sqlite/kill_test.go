package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/ncruces/go-sqlite3/driver"
)

const (
	commitPathEnv = "MUSTER_TEST_COMMIT_INTO"
	removeEnv     = "MUSTER_TEST_REMOVE" // not empty: the jobs end and are removed
)

// TestMain lets the test binary commit until it is killed, if it
// is started for that.
func TestMain(m *testing.M) {
	path := os.Getenv(commitPathEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	work := commitForever
	if os.Getenv(removeEnv) != "" {
		work = removeForever
	}
	if err := work(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// batch is a job with rows of its tasks, big enough to span pages.
func batch(id muster.JobID) *store.Batch {
	const size = 40
	g := muster.Group{Job: id, Name: "stage", Size: size, Materialized: size, UnmaterializedState: muster.Queued}
	g.Counts[muster.Running] = size
	j := muster.Job{
		ID: id, Name: "job", Project: "default", State: muster.JobRunning, Priority: 50, Counts: g.Counts, CreatedAt: 1,
		Spec: &muster.Spec{Tasks: []muster.TaskSpec{{Name: "stage", Kind: muster.KindNoop}}},
	}
	b := &store.Batch{Rows: muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}}}
	for num := range size {
		b.Tasks = append(b.Tasks, muster.Task{
			ID: muster.TaskID{Job: id, Num: num}, Job: id, Index: num, Name: "stage", Kind: muster.KindNoop,
			State: muster.Running, Worker: "w", Attempt: 1, Message: "a row of some length, so that pages fill",
		})
	}
	return b
}

// commitForever commits one job after the other and prints each number when its
// commit has returned.
func commitForever(path string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	snap, err := s.Load(ctx)
	if err != nil {
		return err
	}
	for id := snap.NextJob; ; id++ {
		if err := s.Commit(ctx, batch(id)); err != nil {
			return err
		}
		if _, err := fmt.Println(id); err != nil {
			return err
		}
	}
}

// checkJobs checks that jobs 1 to the highest are complete, and returns the
// highest.
func checkJobs(t *testing.T, s *sqlite.Store) muster.JobID {
	t.Helper()
	snap, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := snap.NextJob - 1
	if len(snap.Jobs) != int(last) || len(snap.Groups) != int(last) || len(snap.Tasks) != 40*int(last) {
		t.Fatalf("%d jobs have %d rows, %d groups and %d tasks", last, len(snap.Jobs), len(snap.Groups), len(snap.Tasks))
	}
	return last
}

func TestKilledProcessLosesNoCommits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	for round := range 5 {
		reported := workUntilKilled(t, path, 10+30*round)
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if last := checkJobs(t, s); last < reported {
			t.Fatalf("job %d was committed, but job %d is the last one", reported, last)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// workUntilKilled lets another process commit some jobs, kills it meanwhile, and
// returns the last job that it reported as committed, or as removed with removeEnv.
func workUntilKilled(t *testing.T, path string, jobs int, env ...string) muster.JobID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), commitPathEnv+"="+path)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := 0
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		if n == jobs {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		id, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		last = id
	}
	if err := cmd.Wait(); err == nil || last == 0 {
		t.Fatalf("the process ended by itself after job %d", last)
	}
	return muster.JobID(last)
}

// removeForever commits ended jobs and removes every second one, in small steps. It prints the number of each job that was removed for readers.
func removeForever(path string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	snap, err := s.Load(ctx)
	if err != nil {
		return err
	}
	for id := snap.NextJob; ; id++ {
		b := batch(id)
		counts := muster.Counts{muster.Succeeded: 40}
		b.Jobs[0].State, b.Jobs[0].Counts, b.Jobs[0].FinishedAt, b.Groups[0].Counts = muster.JobSucceeded, counts, 5, counts
		for i := range b.Tasks {
			b.Tasks[i].State, b.Tasks[i].FinishedAt = muster.Succeeded, 5
		}
		if err := s.Commit(ctx, b); err != nil {
			return err
		}
		if id%2 == 0 {
			if err := s.Commit(ctx, &store.Batch{RemovedJobs: []muster.JobID{id}, At: 6}); err != nil {
				return err
			}
			if _, err := fmt.Println(id); err != nil {
				return err
			}
		}
		waiting, _, err := s.RemovedJobs(ctx, 0, 3)
		if err != nil {
			return err
		}
		if _, err := s.DeleteRemoved(ctx, waiting, 17); err != nil { // less than comes in: some rows always wait
			return err
		}
	}
}

// TestRemovalIsResumedAfterAKill checks that a killed process leaves no job that is removed in part, and no rows that are forgotten.
func TestRemovalIsResumedAfterAKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "muster.db")
	removed := map[muster.JobID]bool{} // by earlier rounds: a job that a kill left between its two commits is not removed by later ones
	for round := range 4 {
		reported := workUntilKilled(t, path, 5+20*round, removeEnv+"=1")
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		snap, err := s.Load(t.Context())
		if err != nil || snap.NextJob <= reported {
			t.Fatalf("the next job is %s after %s, %v", snap.NextJob, reported, err)
		}
		for id := muster.JobID(1); id < snap.NextJob; id++ {
			tasks, _, err := s.Tasks(t.Context(), store.TaskQuery{Job: id, StoredOnly: true, Limit: 100})
			before, known := removed[id]
			gone := muster.CodeOf(err) == muster.NotFound
			switch {
			case err != nil && !gone, err == nil && len(tasks) != 40, gone && id%2 == 1, known && gone != before, !known && !gone && id%2 == 0 && id <= reported:
				t.Errorf("after round %d, which removed up to job %s, job %s has %d tasks, %v", round, reported, id, len(tasks), err)
			}
			removed[id] = gone
		}
		for {
			ids, _, err := s.RemovedJobs(t.Context(), 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			if len(ids) == 0 {
				break
			}
			if _, err := s.DeleteRemoved(t.Context(), ids, 1_000); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if rows := countRows(t, path, "task"); rows != 40*countRows(t, path, "job") {
			t.Errorf("%d rows of tasks are left of %d jobs", rows, countRows(t, path, "job"))
		}
	}
}

// countRows counts the rows of a table of a closed database.
func countRows(t *testing.T, path, table string) (n int) {
	t.Helper()
	db, err := driver.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
