package e2e

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestSweepKilled kills the server again and again while it prunes, and while clients submit jobs with the same folder, whose files are old in
// between. No job lacks a file, a kept job stays, and what was pruned does not return.
func TestSweepKilled(t *testing.T) {
	t.Parallel()
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--keep-uploads", "1h", "--keep-jobs", "forever"}})
	c.StartWorker("w1", t.TempDir(), "--slots", "16")
	const bulk, tasks, kills = 60, 500, 12
	inProject := func(s *muster.Spec, project string) *muster.Spec {
		s.Project = project
		return s
	}
	var ids []muster.JobID
	for range bulk {
		ids = append(ids, c.Submit(inProject(withArray(&muster.Spec{Name: "bulk", Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, tasks), "bulk")).ID)
	}
	for _, id := range ids {
		c.Wait(id, 2*time.Minute)
	}
	kept, rest := ids[0], ids[1:]
	if _, err := c.Client.KeepJob(t.Context(), kept, true); err != nil {
		t.Fatal(err)
	}

	folder := t.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), []byte("file "+strconv.Itoa(i)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Files become old only between submits, which take less than the grace period.
	var submitting sync.RWMutex
	stop := make(chan struct{})
	submitted := make([][]muster.JobID, 4)
	var clients sync.WaitGroup
	for n := range submitted {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				submitting.RLock()
				id, err := submitFolder(t, c, folder, inProject(mustertest.ShellSpec("reads", "cat 0 7 19"), "reads"))
				submitting.RUnlock()
				if err != nil {
					t.Errorf("client %d: %v", n, err)
					return
				}
				submitted[n] = append(submitted[n], id)
				if len(submitted[n]) >= 40 {
					return
				}
			}
		})
	}
	prune := client.PruneRequest{Project: "bulk", Keep: client.RetentionPolicy{Jobs: "1s"}}
	for range kills {
		submitting.Lock()
		age(t, filepath.Join(c.DataDir, "blobs"))
		submitting.Unlock()
		if _, err := c.Client.Prune(t.Context(), prune); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // the moment of the kill is the point of the test
		c.Server.Kill()
		c.StartServer()
	}
	close(stop)
	clients.Wait()
	for _, list := range submitted {
		for _, id := range list {
			if job := c.Wait(id, 2*time.Minute); job.State != muster.JobSucceeded {
				t.Errorf("job %s is %s: %s", id, job.State, c.Tasks(id)[0].Message)
			}
		}
	}
	if _, err := c.Client.Prune(t.Context(), prune); err != nil {
		t.Fatal(err)
	}
	c.Await("all is pruned", 5*time.Minute, func() error {
		for _, id := range rest {
			if _, err := c.Client.Job(t.Context(), id); muster.CodeOf(err) != muster.NotFound {
				return errors.Join(errors.New("job "+id.String()+" is there"), err)
			}
		}
		r, err := c.Client.Retention(t.Context())
		if err == nil && r.WaitingJobs > 0 {
			err = errors.New("rows of " + strconv.Itoa(r.WaitingJobs) + " jobs wait")
		}
		return err
	})
	if job, err := c.Client.Job(t.Context(), kept); err != nil || job.Counts[muster.Succeeded] != tasks {
		t.Errorf("the kept job: %+v, %v", job.Counts, err)
	}
	for _, id := range rest {
		if _, err := os.Stat(filepath.Join(c.DataDir, "logs", strconv.FormatInt(int64(id)/1000, 10)+"k", id.String())); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("logs of job %s: %v", id, err)
		}
	}
	// The folder is still that of the jobs that read it.
	if job := c.Wait(mustSubmitFolder(t, c, folder), time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("another job with the folder is %s", job.State)
	}
}

// submitFolder uploads a folder and submits a job with it, as muster submit does.
func submitFolder(t *testing.T, c *mustertest.Cluster, folder string, s *muster.Spec) (muster.JobID, error) {
	t.Helper()
	for attempt := 0; ; attempt++ {
		tree, err := c.Client.UploadFolder(t.Context(), folder, nil)
		if err != nil {
			return 0, err
		}
		s.Tasks[0].Kind, s.Tasks[0].Files = muster.KindScript, tree
		job, err := c.Client.Submit(t.Context(), s, client.SubmitOptions{})
		if muster.CodeOf(err) == muster.InvalidSpec && attempt == 0 {
			continue // a file was removed meanwhile
		}
		return job.ID, err
	}
}

func mustSubmitFolder(t *testing.T, c *mustertest.Cluster, folder string) muster.JobID {
	t.Helper()
	id, err := submitFolder(t, c, folder, mustertest.ShellSpec("reads", "cat 0 7 19"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// age makes all blobs older than their grace period.
func age(t *testing.T, dir string) {
	t.Helper()
	old := time.Now().Add(-2 * time.Hour)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !muster.IsSHA256(d.Name()) {
			return err
		}
		if err := os.Chtimes(path, old, old); !errors.Is(err, fs.ErrNotExist) { // it may just have been removed
			return err
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}
