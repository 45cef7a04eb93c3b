// Package live follows the events of a server: it collects them into batches of bounded size, reconnects
// after a lost connection, and reports when that will be.
package live

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/wake"
)

// Batch is what changed since the last batch.
type Batch struct {
	Resync bool           // Events is not complete: read everything again
	Events []muster.Event // the last one of each job, task and worker, at most MaxEvents
}

// MaxEvents limits the events of a batch.
const MaxEvents = 2000

// Loss is a lost connection.
type Loss struct {
	Err     error     // nil while connected
	RetryAt time.Time // when the next attempt to connect starts
}

// Status describes the lost connection, "" if connected.
func (l *Loss) Status(now time.Time) string {
	if l.Err == nil {
		return ""
	}
	if wait := l.RetryAt.Sub(now); wait > 0 {
		return fmt.Sprintf("disconnected, retrying in %d s", int((wait+time.Second-1)/time.Second))
	}
	return "disconnected, retrying"
}

// Feed follows the events of a server. Run fills it; the other methods may be called concurrently.
type Feed struct {
	server *client.Client
	query  client.EventQuery
	wake   chan struct{}

	mu     sync.Mutex
	resync bool
	events map[string]muster.Event
	order  []string
	loss   Loss
}

// ConnectNoRetry returns a client for a Feed: it reports a lost connection at once and does not retry.
func ConnectNoRetry(r *remote.ServerOptions) (*client.Client, error) {
	target, err := r.Resolve()
	if err != nil {
		return nil, err
	}
	return client.New(target.URL, target.Token, target.Options(client.Options{
		Timeout: 15 * time.Second, RetryTimeout: time.Nanosecond, StreamRetryTimeout: time.Nanosecond,
	}))
}

// New returns a feed of the events that query selects.
func New(server *client.Client, query client.EventQuery) *Feed {
	return &Feed{server: server, query: query, wake: wake.New(), events: map[string]muster.Event{}}
}

// Run follows the events until ctx ends. After a lost connection it resumes after the last event.
// It returns errors that are not temporary.
func (f *Feed) Run(ctx context.Context) error {
	for tries := 0; ; tries++ {
		query := f.query
		query.KeepAlive = func(last string) {
			tries = 0
			f.setConnected(last)
		}
		for e, err := range f.server.Events(ctx, query) {
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				if !IsTemporary(err) {
					return err
				}
				f.setLost(err, retryDelay(tries))
				break
			}
			tries = 0
			f.add(e)
		}
		if backoff.Sleep(ctx, time.Until(f.Loss().RetryAt)) != nil {
			return nil
		}
	}
}

// IsTemporary reports whether a request that failed with err may succeed later.
func IsTemporary(err error) bool {
	return slices.Contains([]muster.Code{muster.Unavailable, muster.Undetermined, muster.StorageFull}, muster.CodeOf(err))
}

// retryDelay returns the delay before the next attempt to connect.
func retryDelay(tries int) time.Duration { return time.Duration(min(tries+1, 5)) * time.Second }

func (f *Feed) setLost(err error, delay time.Duration) {
	f.mu.Lock()
	f.loss = Loss{Err: err, RetryAt: time.Now().Add(delay)}
	f.mu.Unlock()
	wake.Set(f.wake)
}

// setConnected clears the loss, and sets the event to resume after if last is not "".
func (f *Feed) setConnected(last string) {
	f.mu.Lock()
	if last != "" {
		f.query.Last = last
	}
	lost := f.loss.Err != nil
	f.loss = Loss{}
	f.mu.Unlock()
	if lost {
		wake.Set(f.wake)
	}
}

func (f *Feed) add(e muster.Event) {
	f.mu.Lock()
	f.query.Last = e.Epoch + "-" + strconv.FormatUint(e.Seq, 10)
	f.loss = Loss{}
	key := eventKey(&e)
	_, seen := f.events[key]
	switch {
	case e.Type == muster.EventResync, !seen && len(f.events) >= MaxEvents:
		f.resync, f.events, f.order = true, map[string]muster.Event{}, nil
	case !f.resync:
		if !seen {
			f.order = append(f.order, key)
		}
		f.events[key] = e
	}
	f.mu.Unlock()
	wake.Set(f.wake)
}

// eventKey identifies the job, task or worker of an event.
func eventKey(e *muster.Event) string {
	switch {
	case e.Task != nil:
		return "task " + e.Task.String()
	case e.Worker != "":
		return "worker " + string(e.Worker)
	default:
		return "job " + e.Job.String()
	}
}

// Changed returns a channel that receives after events or a change of the connection.
func (f *Feed) Changed() <-chan struct{} { return f.wake }

// Pop returns the changes since the last call.
func (f *Feed) Pop() Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := Batch{Resync: f.resync, Events: make([]muster.Event, len(f.order))}
	for i, key := range f.order {
		b.Events[i] = f.events[key]
	}
	f.resync, f.order = false, nil
	clear(f.events)
	return b
}

// Loss returns the loss of the connection. Its Err is nil while connected.
func (f *Feed) Loss() Loss {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loss
}
