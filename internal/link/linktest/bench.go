package linktest

import (
	"context"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// Bench measures a transport on the loopback interface: an Assign to the worker and a Finished back
// for each task, one at a time and in batches.
func Bench(b *testing.B, tr Transport) {
	b.Run("round trip", func(b *testing.B) { benchTasks(b, tr, 1) })
	b.Run("64 lives a frame", func(b *testing.B) { benchTasks(b, tr, 64) })
	b.Run("1024 lives a frame", func(b *testing.B) { benchTasks(b, tr, 1024) })
}

// benchTasks answers every frame of n assignments with one of n reports.
func benchTasks(b *testing.B, tr Transport, n int) {
	s := start(b, tr, "127.0.0.1:0")
	w, sc := open(b, tr, s, s.addr)
	ctx, cancel := context.WithCancel(b.Context())
	echo := make(chan struct{})
	go func() {
		defer close(echo)
		for {
			f, err := w.Recv(ctx)
			if err != nil {
				return
			}
			up := &link.ToServer{}
			for i := range f.Assign {
				up.Finished = append(up.Finished, muster.Report{
					Attempt: f.Assign[i].Attempt, Outcome: muster.AttemptSucceeded, StartedAt: 1_700_000_000_000, FinishedAt: 1_700_000_000_001,
				})
			}
			if w.Send(ctx, up) != nil {
				return
			}
		}
	}()
	assign := make([]link.Assign, n)
	for i := range assign {
		assign[i] = link.Assign{Attempt: attemptID(i), Ref: 1, Element: "12345", Grant: muster.Grant{Slots: 1}}
	}
	b.ResetTimer()
	for range b.N {
		must(b, sc.Send(ctx, &link.ToWorker{Assign: assign}))
		if f, err := sc.Recv(ctx); err != nil || len(f.Finished) != n {
			b.Fatalf("%+v, %v", f, err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "lives/s")
	cancel()
	<-echo
}
