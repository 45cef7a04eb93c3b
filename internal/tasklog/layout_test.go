package tasklog_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

func openIndexed(t *testing.T, root string) *tasklog.Dir {
	t.Helper()
	d, err := tasklog.OpenIndexedDir(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestOldLayoutIsMoved checks that the logs of an older Muster are found after OpenIndexedDir, also if an earlier move
// was interrupted, and that nothing is overwritten.
func TestOldLayoutIsMoved(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	old := openDir(t, root)
	jobs := []muster.JobID{1, 999, 1000, 1001, 17042}
	for _, id := range jobs {
		mustAppend(t, old, attempt(id, 0, 1), 0, "log of "+id.String())
		mustAppend(t, old, attempt(id, 1000, 2), 0, "other")
	}
	if err := os.Mkdir(filepath.Join(root, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	// As after a kill: one job is moved, and a bucket is new.
	err := errors.Join(os.Mkdir(filepath.Join(root, "1k"), 0o700), os.Mkdir(filepath.Join(root, "17k"), 0o700),
		os.Rename(filepath.Join(root, "1001"), filepath.Join(root, "1k", "1001")))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d := openIndexed(t, root)
		for _, id := range jobs {
			if got, want := content(t, d, attempt(id, 0, 1)), "log of "+id.String(); got != want {
				t.Errorf("job %s has %q, want %q", id, got, want)
			}
			if got := content(t, d, attempt(id, 1000, 2)); got != "other" {
				t.Errorf("the other log of job %s has %q", id, got)
			}
		}
		if last, err := d.LastJob(); last != 17042 || err != nil {
			t.Errorf("the last job is %s, %v", last, err)
		}
		if all, err := d.Jobs(0, 100); !slices.Equal(all, jobs) || err != nil {
			t.Errorf("jobs: %v, %v", all, err)
		}
	}
	// A Muster of before wrote a log of a job whose place is taken: both stay.
	mustAppend(t, old, attempt(999, 7, 1), 0, "newer")
	d := openIndexed(t, root)
	if got := content(t, d, attempt(999, 0, 1)); got != "log of 999" {
		t.Errorf("the moved log has %q", got)
	}
	if got := content(t, old, attempt(999, 7, 1)); got != "newer" {
		t.Errorf("the log that could not be moved has %q", got)
	}
}

// TestLastJobListsOneBucket checks that LastJob and Jobs do not depend on empty buckets, and what Jobs returns per page.
func TestLastJobListsOneBucket(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openIndexed(t, root)
	for _, id := range []muster.JobID{3, 999, 1000, 5001, 5002} {
		mustAppend(t, d, attempt(id, 0, 1), 0, "x")
	}
	for _, name := range []string{"9k", "x", "07k", "7k.old"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// Unreadable as a directory: a bucket before the last one is not listed.
	if err := errors.Join(os.RemoveAll(filepath.Join(root, "0k")), os.WriteFile(filepath.Join(root, "0k"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if last, err := d.LastJob(); last != 5002 || err != nil {
		t.Errorf("the last job is %s, %v", last, err)
	}
	for _, c := range []struct {
		after muster.JobID
		limit int
		want  []muster.JobID
	}{{999, 1, []muster.JobID{1000}}, {1000, 1, []muster.JobID{5001, 5002}}, {999, 2, []muster.JobID{1000, 5001, 5002}}, {5001, 9, []muster.JobID{5002}}, {5002, 9, nil}} {
		if got, err := d.Jobs(c.after, c.limit); !slices.Equal(got, c.want) || err != nil {
			t.Errorf("%d jobs after %s: %v, %v; want %v", c.limit, c.after, got, err, c.want)
		}
	}
}

// TestRemovedLogsAreDeletedInSteps checks that removed logs are gone at once, that Sweep deletes at most as many files as it may, also
// after a restart, and that it touches nothing else.
func TestRemovedLogsAreDeletedInSteps(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openIndexed(t, root)
	for i := range 30 {
		mustAppend(t, d, attempt(7, 100*i, 1), 0, "x")
		mustAppend(t, d, attempt(8, i, 1), 0, "kept")
	}
	mustAppend(t, d, attempt(1500, 0, 1), 0, "x")
	for _, id := range []muster.JobID{7, 1500, 99} {
		if err := d.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, d, attempt(7, 100, 1)); got != "" {
		t.Errorf("the removed log has %q", got)
	}
	if jobs, err := d.Jobs(0, 100); !slices.Equal(jobs, []muster.JobID{8}) || err != nil {
		t.Errorf("jobs with logs: %v, %v", jobs, err)
	}
	mustAppend(t, d, attempt(7, 100, 2), 0, "after a retry")
	if err := d.Remove(t.Context(), 7); err != nil { // again
		t.Fatal(err)
	}
	mustAppend(t, d, attempt(7, 100, 3), 0, "last")

	left, want := countFiles(t, filepath.Join(root, "removed"))
	var freed muster.Size
	for steps := 0; ; steps++ {
		if steps == 3 {
			d = openIndexed(t, root)
		}
		n, more, err := d.Sweep(5)
		freed += n
		if err != nil || steps > 100 {
			t.Fatalf("step %d: %v", steps, err)
		}
		now, _ := countFiles(t, filepath.Join(root, "removed"))
		if left-now > 5 {
			t.Errorf("a step of 5 deleted %d files", left-now)
		}
		if left = now; !more {
			break
		}
	}
	if freed != want {
		t.Errorf("deleting freed %d bytes of %d", freed, want)
	}
	if left != 0 {
		t.Errorf("%d removed files are left", left)
	}
	if got := content(t, d, attempt(8, 29, 1)) + content(t, d, attempt(7, 100, 3)); got != "keptlast" {
		t.Errorf("the others have %q", got)
	}
	if freed, more, err := d.Sweep(5); freed != 0 || more || err != nil {
		t.Errorf("nothing is left: %d, %t, %v", freed, more, err)
	}
	if at, err := d.JobTime(7); time.Since(at).Abs() > time.Hour || err != nil {
		t.Errorf("the logs of job 7 are of %s, %v", at, err)
	}
	if at, err := d.JobTime(1500); !at.IsZero() || err != nil {
		t.Errorf("the logs of job 1500 are of %s, %v", at, err)
	}
}

// countFiles counts files, not directories, and their bytes.
func countFiles(t *testing.T, root string) (n int, bytes muster.Size) {
	t.Helper()
	err := filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
			info, infoErr := e.Info()
			if infoErr != nil {
				return infoErr
			}
			bytes += muster.Size(info.Size())
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return n, bytes
}

// TestRemoveDoesNotStopOtherLogs checks that logs are created while logs of another job, and of the same one, are removed.
func TestRemoveDoesNotStopOtherLogs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openIndexed(t, root)
	done := make(chan error, 1)
	go func() {
		var err error
		for i := range 200 {
			_, _, sweepErr := d.Sweep(3)
			err = errors.Join(err, d.Remove(t.Context(), muster.JobID(1+i%2)), sweepErr)
		}
		done <- err
	}()
	for i := range 400 {
		id := muster.JobID(1 + i%3) // the bucket of job 1 and 2 is also that of job 3
		mustAppend(t, d, attempt(id, i, 1), 0, strconv.Itoa(i))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := 2; i < 400; i += 3 {
		if got := content(t, d, attempt(3, i, 1)); got != strconv.Itoa(i) {
			t.Fatalf("log %d has %q", i, got)
		}
	}
}
