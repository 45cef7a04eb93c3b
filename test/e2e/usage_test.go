package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// awaitSamples waits until so many samples of a task have arrived at the server, and returns
// them.
func awaitSamples(t *testing.T, c *mustertest.Cluster, id muster.TaskID, n int) client.Series {
	t.Helper()
	var s client.Series
	c.Await(fmt.Sprintf("%d samples of %s", n, id), time.Minute, func() (err error) {
		if s, err = c.Client.Usage(t.Context(), id, 0, 0); err == nil && s.Taken < n {
			err = fmt.Errorf("there are %d", s.Taken)
		}
		return err
	})
	return s
}

// TestUsageSurvivesTheWorker kills the worker of a task: its usage series is available live and afterwards, has a gap and no duplicates, and
// does not change its output.
func TestUsageSurvivesTheWorker(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir, startsDir := t.TempDir(), mustertest.SharedDir(t)
	w := c.StartWorker("w1", dir, "--price", "3600")
	releaseFile := filepath.Join(startsDir, "gate")
	job := c.Submit(mustertest.ShellSpec("busy", fmt.Sprintf(`i=0; while [ ! -e %s ]; do i=$((i+1)); echo line $i; j=0; while [ $j -lt 10000 ]; do j=$((j+1)); done; sleep 0.1; done; echo end`, releaseFile)))
	id := muster.TaskID{Job: job.ID}
	c.AwaitRunning(job.ID, 1)

	var streamed []muster.Sample
	var follower sync.WaitGroup
	follower.Go(func() {
		for s, err := range c.Client.Samples(t.Context(), client.Series{Task: id}, false) {
			if err != nil {
				t.Errorf("the live series broke off: %v", err)
				return
			}
			streamed = append(streamed, s.Sample)
		}
	})

	before := awaitSamples(t, c, id, 2)
	switch {
	case before.Usage == nil || !before.SoFar || before.Usage.Cost != 0:
		t.Errorf("the running task has %+v", before.Usage)
	case before.Usage.CPUPeak <= 0 || before.Usage.MemoryPeak <= 0 || before.Usage.PIDsPeak <= 0:
		t.Errorf("nothing was measured: %+v", before.Usage)
	}
	w.Kill()
	from := time.Now()
	// Another worker starts and joins meanwhile: that takes long enough for a gap.
	c.StartWorker("w2", t.TempDir())
	to := time.Now()
	c.StartWorker("w1", dir, "--price", "3600")
	awaitSamples(t, c, id, before.Taken+1)
	t.Logf("no worker was there for %v", to.Sub(from))
	if err := os.WriteFile(releaseFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Wait(job.ID, time.Minute)
	follower.Wait()

	task := c.Tasks(job.ID)[0]
	after, err := c.Client.Usage(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if task.State != muster.Succeeded || task.Attempt != 1 || task.Usage == nil || after.Usage == nil || *after.Usage != *task.Usage || after.SoFar {
		t.Fatalf("the task is %s after attempt %d with usage %+v; its series says %+v", task.State, task.Attempt, task.Usage, after.Usage)
	}
	if u := task.Usage; u.CPUSeconds <= 0 || u.MemoryPeak <= 0 || u.Cost < to.Sub(from).Seconds()/2 {
		t.Errorf("its usage is %+v", *u)
	}
	for i, s := range after.Samples {
		if i > 0 && s.At <= after.Samples[i-1].At {
			t.Errorf("sample %d is of %v, after one of %v", i, s.At, after.Samples[i-1].At)
		}
		if s.At > muster.NewTime(from) && s.At < muster.NewTime(to) {
			t.Errorf("there is a sample of %v, but no worker ran from %v to %v", s.At, from, to)
		}
	}
	if !slices.EqualFunc(before.Samples, after.Samples[:len(before.Samples)], func(a, b muster.Sample) bool { return a.At == b.At }) {
		t.Error("samples of before the crash were lost")
	}
	if !slices.EqualFunc(streamed, after.Samples, func(a, b muster.Sample) bool { return a.At == b.At }) {
		t.Errorf("%d samples were heard live, %d are kept", len(streamed), len(after.Samples))
	}
	checkNumberedOutput(t, c, id)
}
