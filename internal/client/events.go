package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/muster-dev/muster"
)

// EventQuery selects events.
type EventQuery struct {
	Job   muster.JobID       // only of this job and its tasks; 0 means all
	Types []muster.EventType // only these; any if empty. A resync always comes
	Last  string             // resume after this event ("EPOCH-SEQ"); "" means from now on
	// KeepAlive, if not nil, is called for each keep-alive of the server, the first of which comes as soon as a connection is open,
	// also where no event does. last is what Last has to be to resume there, or "" if that has not changed.
	KeepAlive func(last string)
}

// Events follows what changes, until ctx ends. Where events were missed there is
// one of type muster.EventResync: read the state anew. The first one is of that type
// too, as soon as the server listens, unless q.Last is known to it: what changes after it is told.
// An error ends the sequence.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[muster.Event, error] {
	v := url.Values{}
	if q.Job != 0 {
		v.Set("job", q.Job.String())
	}
	for _, t := range q.Types {
		v.Add("type", string(t))
	}
	return func(yield func(muster.Event, error) bool) {
		err := c.stream(ctx, "/events", v, q.Last, func(ev sseEvent) error {
			if ev.data == nil {
				if q.KeepAlive != nil {
					q.KeepAlive(ev.id)
				}
				return nil
			}
			var e muster.Event
			if err := decodeEvent(ev, &e); err != nil {
				return err
			}
			if !yield(e, nil) {
				return errStop
			}
			return nil
		})
		if err != nil {
			yield(muster.Event{}, err)
		}
	}
}

// Wait returns a job when it has ended, or an error when ctx does.
func (c *Client) Wait(ctx context.Context, id muster.JobID) (muster.Job, error) {
	for _, err := range c.Events(ctx, EventQuery{Job: id, Types: []muster.EventType{muster.EventJob}}) {
		if err != nil {
			return muster.Job{}, err
		}
		job, err := c.Job(ctx, id)
		if err != nil || job.State.Final() {
			return job, err
		}
	}
	return muster.Job{}, ctx.Err()
}
