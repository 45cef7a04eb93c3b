//go:build linux

package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// recorder is what the clients of a run write into the history.
type recorder struct {
	mu sync.Mutex
	h  *History
}

// runClients submits the jobs of a plan, each with its own client, and cancels some of them. It returns when all clients have their responses.
func (c *cluster) runClients(ctx context.Context, start time.Time, items []jobPlan, r *recorder) {
	var all sync.WaitGroup
	for _, it := range items {
		all.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(start.Add(it.At))):
			}
			spec, wants := it.spec(c.effects)
			r.mu.Lock()
			r.h.Jobs = append(r.h.Jobs, Submission{Name: it.Name, Project: it.project(), Stages: wants})
			n := len(r.h.Jobs) - 1
			r.mu.Unlock()
			u := jobClient{c: c, item: it, spec: spec, r: r, n: n}
			u.run(ctx)
		})
	}
	all.Wait()
}

// jobClient is the client of one job.
type jobClient struct {
	c    *cluster
	item jobPlan
	spec *muster.Spec
	r    *recorder
	n    int // of the submission in the history
}

// run submits the job, perhaps twice at once and once more later, and cancels, keeps and removes it as planned.
func (u *jobClient) run(ctx context.Context) {
	var twin sync.WaitGroup
	if u.item.Twice {
		twin.Go(func() { u.submit(ctx) })
	}
	u.submit(ctx)
	twin.Wait()
	cancelled := u.cancel(ctx)
	u.retain(ctx)
	if u.item.Again > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(u.item.Again):
		}
		u.submit(ctx)
		if !cancelled {
			u.cancel(ctx)
		}
	}
}

// submit submits the job with its idempotency key. If the disk is full, half of the clients try again until it
// is not.
func (u *jobClient) submit(ctx context.Context) {
	cl := u.c.client(time.Minute, u.item.Proxy)
	_ = await(ctx, time.Minute, func() error {
		job, err := cl.Submit(ctx, u.spec, client.SubmitOptions{IdempotencyKey: u.item.Name})
		u.r.mu.Lock()
		defer u.r.mu.Unlock()
		s := &u.r.h.Jobs[u.n]
		if err == nil {
			s.Acks = append(s.Acks, job.ID)
			return nil
		}
		s.Refused = append(s.Refused, string(muster.CodeOf(err))+": "+err.Error())
		if muster.CodeOf(err) == muster.StorageFull && u.item.N%2 == 0 {
			return err
		}
		return nil
	})
}

// cancel cancels the job some time after its acknowledgement, and records when that was acknowledged. The request
// is repeated until the server has answered it.
func (u *jobClient) cancel(ctx context.Context) bool {
	u.r.mu.Lock()
	acks := u.r.h.Jobs[u.n].Acks
	u.r.mu.Unlock()
	if len(acks) == 0 || u.item.Cancel < 0 {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(u.item.Cancel):
	}
	cl := u.c.client(5*time.Second, u.item.Proxy)
	_ = await(ctx, 2*time.Minute, func() error {
		_, err := cl.Cancel(ctx, acks[0], nil)
		if code := muster.CodeOf(err); err != nil && code != muster.Unavailable && code != muster.StorageFull {
			return nil // it has ended: nothing is promised of it
		}
		if err == nil {
			u.r.mu.Lock()
			u.r.h.Jobs[u.n].Cancel = time.Now().UnixNano()
			u.r.mu.Unlock()
		}
		return err
	})
	return true
}

// watchEvents follows all events until ctx ends, over restarts and broken connections.
func (c *cluster) watchEvents(ctx context.Context, faulty bool) []muster.Event {
	var events []muster.Event
	cl := c.client(time.Minute, faulty)
	for ctx.Err() == nil {
		for e, err := range cl.Events(ctx, client.EventQuery{}) {
			if err != nil {
				break
			}
			e.Detail = trimDetail(e.Detail)
			events = append(events, e)
		}
		events = append(events, muster.Event{}) // a new stream: events were missed without a word
	}
	return events
}

// trimDetail is what the checker reads of a detail.
func trimDetail(d *muster.TaskDetail) *muster.TaskDetail {
	if d == nil {
		return nil
	}
	return &muster.TaskDetail{Attempt: d.Attempt, Reason: d.Reason}
}

// sampleWorkers requests the attempts of the workers every second.
func (c *cluster) sampleWorkers(ctx context.Context) []WorkerSample {
	var list []WorkerSample
	cl := c.client(time.Millisecond, false)
	for ctx.Err() == nil {
		if ws, err := cl.Workers(ctx); err == nil {
			for _, w := range ws {
				list = append(list, WorkerSample{At: time.Now().UnixNano(), Name: w.Name, Running: w.Running, Slots: w.Resources.Slots})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(s):
		}
	}
	return list
}
