//go:build unix

package simworker_test

import (
	"context"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/simworker"
)

// Simulated workers run an array and report hardware and load as real ones do.
func TestRun(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- simworker.Run(ctx, simworker.Config{
			Server: "http://" + c.Addr, JoinToken: mustertest.JoinToken, Workers: 20, Slots: 2, GPUs: 2, Run: 10 * time.Millisecond,
		}, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("the workers did not connect within a minute")
	}
	array := &muster.Array{Ranges: []muster.Range{{First: 0, Last: 499, Step: 1}}}
	job := c.Wait(c.Submit(&muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Array: array}}}).ID, time.Minute)
	if job.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s: %v", job.State, job.Counts)
	}
	c.Await("all workers report load", time.Minute, func() error {
		workers, err := c.Client.Workers(t.Context())
		if err != nil {
			return err
		}
		for i := range workers {
			if w := &workers[i]; w.State != muster.WorkerActive || w.Load == nil || len(w.Load.GPUs) != 2 || w.Load.GPUs[0].Power == nil {
				return muster.Errorf(muster.Unavailable, "%s is %s with load %+v", w.Name, w.State, w.Load)
			}
		}
		if len(workers) != 20 {
			return muster.Errorf(muster.Unavailable, "%d workers", len(workers))
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
