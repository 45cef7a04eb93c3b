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
)

const commitPathEnv = "MUSTER_TEST_COMMIT_INTO"

// TestMain lets the test binary commit until it is killed, if it
// is started for that.
func TestMain(m *testing.M) {
	path := os.Getenv(commitPathEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := commitForever(path); err != nil {
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
		reported := commitUntilKilled(t, path, 10+30*round)
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

// commitUntilKilled lets another process commit some jobs, kills it meanwhile, and
// returns the last job that it reported as committed.
func commitUntilKilled(t *testing.T, path string, jobs int) muster.JobID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), commitPathEnv+"="+path)
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
