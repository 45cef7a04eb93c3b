package client_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Samples returns every sample after a series once, over broken connections and over
// attempts.
func TestSamplesAcrossBrokenConnections(t *testing.T) {
	s, c, f := start(t)
	spec := shell("x")
	spec.Tasks[0].Retries.Max = 1
	job := submit(t, c, spec)
	id := muster.TaskID{Job: job.ID}
	w := s.ConnectWorker(t, "w1")
	fill := func(a muster.AttemptID, from, to int) int64 {
		size, err := s.Logs.Size(t.Context(), a)
		for n := from; n < to && err == nil; n++ {
			record := apitest.EncodeRecord(tasklog.Usage, fmt.Sprintf(`{"at":"2020-01-02T15:04:05.000Z","pids":%d}`, n))
			size, err = s.Logs.Append(t.Context(), a, size, append(record, apitest.EncodeRecord(tasklog.Stdout, "output\n")...))
		}
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	first := w.StartNext()
	fill(first, 0, 50)
	series, err := c.Usage(t.Context(), id, 0, 10)
	if err != nil || series.Taken != 50 || len(series.Samples) > 10 || series.Attempt != 1 {
		t.Fatalf("%+v, %v", series, err)
	}
	w.Finish(first, muster.AttemptFailed, fill(first, 50, 100))
	second := w.StartNext()
	w.Finish(second, muster.AttemptSucceeded, fill(second, 100, 150))
	follow := func(from client.Series, only bool) (received []int) {
		for sample, err := range c.Samples(t.Context(), from, only) {
			if err != nil {
				t.Fatal(err)
			}
			if want := 1 + sample.PIDs/100; sample.Attempt != want {
				t.Errorf("sample %d has attempt %d", sample.PIDs, sample.Attempt)
			}
			received = append(received, sample.PIDs)
		}
		return received
	}
	numbers := func(from, to int) (all []int) {
		for n := from; n < to; n++ {
			all = append(all, n)
		}
		return all
	}
	f.cutAfter.Store(1000) // each connection breaks after some samples
	before := f.requests.Load()
	if got := follow(series, false); !slices.Equal(got, numbers(50, 150)) {
		t.Errorf("after the series came %v", got)
	}
	if n := f.requests.Load() - before; n < 5 {
		t.Errorf("only %d connections, want one that broke", n)
	}
	if got := follow(series, true); !slices.Equal(got, numbers(50, 100)) {
		t.Errorf("of the first attempt alone came %v", got)
	}
	if got := follow(client.Series{Task: id, Attempt: 2}, true); !slices.Equal(got, numbers(100, 150)) {
		t.Errorf("of the second attempt alone came %v", got)
	}
	if _, err := c.Usage(t.Context(), id, 3, 0); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("a third attempt: %v", err)
	}
}
