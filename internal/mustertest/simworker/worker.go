package simworker

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
	"github.com/muster-dev/muster/internal/wake"
)

// worker is one simulated worker and the words of its session.
type worker struct {
	cfg       *Config
	index     int
	connected func() // called at the welcome
	gpus      []muster.GPU
	heartbeat time.Duration
	wake      chan struct{} // holds one token if there may be something to send

	mu            sync.Mutex
	next          link.ToServer
	pending       bool // next has messages
	held          map[muster.AttemptID]*time.Timer
	nextHeartbeat time.Time // when the next heartbeat is due
}

var _ link.FrameSource = (*worker)(nil)

func (w *worker) run(ctx context.Context) error {
	name := fmt.Sprintf("sim-%04d", w.index)
	joined, err := testworker.Join(ctx, http.DefaultClient, w.cfg.Server, w.cfg.JoinToken, name)
	if err != nil {
		return err
	}
	w.gpus = w.cfg.devices(joined.Worker)
	w.held = map[muster.AttemptID]*time.Timer{}
	conn, err := (&wslink.Dialer{Server: w.cfg.Server, Credentials: joined}).Dial(ctx)
	if err != nil {
		return err
	}
	hello := &link.Hello{
		Version: link.Version, Worker: joined.Worker, Name: name, Build: "simulated", Price: 0.4,
		Offer: muster.Offer{
			Kinds: []string{muster.KindNoop}, Tags: []string{"linux", "simulated"},
			Resources: muster.Resources{CPUs: cores, Memory: memory, Disk: disk, Slots: w.cfg.Slots, GPUs: w.gpus},
		},
	}
	err = link.RunSession(ctx, conn, hello, w, w.handle)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, timer := range w.held {
		timer.Stop()
	}
	return err
}

// handle takes a frame from the server.
func (w *worker) handle(f *link.ToWorker) error {
	now := time.Now()
	if f.Welcome != nil {
		w.heartbeat = f.Welcome.Heartbeat.Std()
		w.mu.Lock()
		w.nextHeartbeat = now
		w.mu.Unlock()
		w.connected()
	}
	if len(f.Assign)+len(f.Cancel) == 0 {
		return nil
	}
	w.enqueue(func(next *link.ToServer) {
		for i := range f.Assign {
			id := f.Assign[i].Attempt
			w.held[id] = time.AfterFunc(w.cfg.Run, func() { w.finish(id, now, muster.AttemptSucceeded, muster.NoReason) })
			next.Started = append(next.Started, link.Started{Attempt: id, At: muster.NewTime(now)})
		}
	})
	for _, c := range f.Cancel {
		w.finish(c.Attempt, now, muster.AttemptCancelled, c.Reason)
	}
	return nil
}

// finish reports the end of an attempt that is held.
func (w *worker) finish(id muster.AttemptID, startedAt time.Time, outcome muster.Outcome, reason muster.Reason) {
	w.enqueue(func(next *link.ToServer) {
		timer, held := w.held[id]
		if !held {
			return
		}
		timer.Stop()
		delete(w.held, id)
		next.Finished = append(next.Finished, muster.Report{
			Attempt: id, Outcome: outcome, Reason: reason, StartedAt: muster.NewTime(startedAt), FinishedAt: muster.NewTime(time.Now()),
		})
	})
}

// enqueue adds messages to the next frame.
func (w *worker) enqueue(add func(next *link.ToServer)) {
	w.mu.Lock()
	add(&w.next)
	w.pending = true
	w.mu.Unlock()
	wake.Set(w.wake)
}

// Post implements link.FrameSource.
func (w *worker) Post(f *link.ToServer) {
	w.enqueue(func(next *link.ToServer) { next.Ping = next.Ping || f.Ping })
}

// Next implements link.FrameSource.
func (w *worker) Next(ctx context.Context) (*link.ToServer, error) {
	for {
		f, due := w.nextFrame(time.Now())
		if f != nil {
			return f, nil
		}
		if err := wake.Wait(ctx, w.wake, due); err != nil {
			return nil, err
		}
	}
}

// nextFrame returns the next frame, or how long it is to the next heartbeat.
func (w *worker) nextFrame(now time.Time) (*link.ToServer, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.nextHeartbeat.Sub(now)
	if !w.pending && due > 0 {
		return nil, due
	}
	f := w.next
	w.next, w.pending = link.ToServer{}, false
	if due <= 0 {
		f.Renew = &link.Renew{Load: load(w.index, now, w.gpus)}
		for id := range w.held {
			f.Renew.Held = append(f.Renew.Held, id)
		}
		w.nextHeartbeat = now.Add(w.heartbeat)
	}
	return &f, 0
}
