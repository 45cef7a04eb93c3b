package api

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/eventbus"
)

func (s *server) eventRoutes() {
	rest.Stream(s.router, rest.Route{ID: "watch-events", Method: http.MethodGet, Path: rest.Path("/events"), Tag: "events", Shared: true, Verb: auth.ReadJobs, ContentType: "text/event-stream",
		Summary: "Stream changes as server-sent events; after a resync event, which means missed events, read the state again"}, s.watchEvents)
}

type eventsInput struct {
	Job  string   `query:"job" maxLength:"20" doc:"only events of this job and its tasks"`
	Type []string `query:"type,explode" maxItems:"3" enum:"job,task,worker" doc:"only events of these types and resync events; default: all"`
	Last string   `header:"Last-Event-ID" maxLength:"200" doc:"resume after this event"`
}

func (s *server) watchEvents(w http.ResponseWriter, r *http.Request, in *eventsInput) error {
	ctx := r.Context()
	job := principalOf(ctx).Job
	if in.Job != "" {
		var err error
		if job, err = s.router.AuthorizedJob(ctx, in.Job, auth.ReadJobs); err != nil {
			return err
		}
	}
	var filter func(*muster.Event) bool
	if len(in.Type) > 0 {
		filter = func(e *muster.Event) bool { return slices.Contains(in.Type, string(e.Type)) }
	}
	release, err := s.limits.AcquireStream(activeKeyOf(ctx))
	if err != nil {
		return rest.TooMany(err)
	}
	defer release()
	scope := eventbus.Scope{}
	if job != 0 {
		scope = eventbus.JobScope(job)
	}
	sub := s.Events.Subscribe(in.Last, scope, filter)
	out, err := streaming.NewEventWriter(w, r)
	for err == nil {
		err = s.sendEvents(ctx, out, sub)
	}
	if ctx.Err() == nil {
		s.Log.DebugContext(ctx, "event stream ended", slog.Any("error", err))
	}
	return nil
}

// sendEvents sends the next events that the caller may see, and a keep-alive when one is due. Events of other
// projects do not delay a keep-alive; its id lets the client resume after them.
func (s *server) sendEvents(ctx context.Context, out *streaming.EventWriter, sub *eventbus.Subscription) error {
	waitCtx, cancel := context.WithDeadline(ctx, out.KeepAliveDue())
	defer cancel()
	events, err := sub.Next(waitCtx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return out.SendKeepAlive(sub.Position())
	}
	for i := range events {
		e := &events[i]
		visible, err := s.visible(ctx, e)
		if err != nil {
			return err
		}
		if visible {
			if err := out.Send(string(e.Type), eventbus.EventID(*e), e); err != nil {
				return err
			}
		}
		if err := out.SendKeepAlive(eventbus.EventID(*e)); err != nil {
			return err
		}
	}
	return out.Flush()
}

// visible reports whether the caller may see an event.
func (s *server) visible(ctx context.Context, e *muster.Event) (bool, error) {
	keyProject := principalOf(ctx).Project
	if keyProject == "" || jobOf(e) == 0 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	project, err := s.projectOf(ctx, jobOf(e))
	if muster.CodeOf(err) == muster.NotFound {
		return false, nil
	}
	return project == keyProject, err
}

func jobOf(e *muster.Event) muster.JobID {
	if e.Task != nil {
		return e.Task.Job
	}
	return e.Job
}
