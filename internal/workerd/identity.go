package workerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim"
)

// identity returns the worker's identity. The worker joins the server if it has none.
func (w *Worker) identity(ctx context.Context, name string) (agent.Identity, error) {
	id, ok, err := agent.LoadIdentity(w.cfg.Data)
	if ok && w.cfg.WorkerID != "" && id.Worker != w.cfg.WorkerID {
		return id, muster.Errorf(muster.Conflict, "%s is the data directory of worker %s, and not of %s: use another --data, or leave out --worker-id", w.cfg.Data, id.Worker, w.cfg.WorkerID)
	}
	if ok || err != nil {
		return id, err
	}
	if !w.hasToken() {
		return id, muster.Errorf(muster.Unauthenticated,
			"this worker has not joined %s yet: set --token-file or MUSTER_JOIN_TOKEN to a join token, which muster keys create --role join makes", w.server)
	}
	err = w.untilDetach(ctx, func(ctx context.Context) error {
		token, err := w.joinToken(ctx, "")
		if err != nil {
			return err
		}
		id, err = agent.Join(ctx, w.http, w.server, token, w.registration(name), w.cfg.Data, w.log)
		return err
	})
	return id, err
}

func (w *Worker) registration(name string) agent.Registration {
	return agent.Registration{Name: name, Worker: w.cfg.WorkerID}
}

// recallName reads the name of the last start with a name, unless this start has one.
func (w *Worker) recallName() error {
	if w.cfg.Name != "" {
		return nil
	}
	id, _, err := agent.LoadIdentity(w.cfg.Data)
	w.storedName = cmp.Or(id.Name, w.storedName)
	return err
}

// remember saves the name, the tags and the server's authority of this start with the identity. It warns of tags that the previous start had.
func (w *Worker) remember(id agent.Identity) (agent.Identity, error) {
	name := cmp.Or(w.cfg.Name, w.storedName)
	tags := strings.Join(w.cfg.Tags, ",")
	if id.Name == name && id.Tags == tags && id.CA == w.ca {
		return id, nil
	}
	if id.CA != "" && id.CA != w.ca {
		w.log.Info("the server has another certificate authority than at the last start, as its token says", slog.String("fingerprint", w.ca))
	}
	if lost := missing(strings.FieldsFunc(id.Tags, func(r rune) bool { return r == ',' }), w.cfg.Tags); lost != "" {
		w.log.Warn(fmt.Sprintf("started without the tags %s of its previous start: --tags %s gives them again", lost, id.Tags))
	}
	id.Name, id.Tags, id.CA = name, tags, w.ca
	return id, id.Save(w.cfg.Data)
}

func (w *Worker) hasToken() bool { return w.cfg.Token != "" || w.cfg.NewToken != nil }

// joinToken returns the join token, or a new one for a worker that joins again. There must be one: see hasToken.
func (w *Worker) joinToken(ctx context.Context, worker muster.WorkerID) (string, error) {
	if w.cfg.Token != "" {
		return w.cfg.Token, nil
	}
	return w.cfg.NewToken(ctx, worker)
}

// hasOtherToken reports whether the server refuses this worker with err, and it has another token than the one by which it joined: it may have been
// reset. The server refuses a token that is not for this worker.
func (w *Worker) hasOtherToken(id agent.Identity, err error) bool {
	return muster.CodeOf(err) == muster.Forbidden && w.hasToken() && (w.cfg.Token == "" || !id.JoinedBy(w.cfg.Token))
}

// untilDetach calls join with a context that also ends when Detach is called.
func (w *Worker) untilDetach(ctx context.Context, join func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var waiter sync.WaitGroup
	defer waiter.Wait()
	defer cancel(nil)
	waiter.Go(func() {
		select {
		case <-w.detach:
			cancel(run.ErrDetach)
		case <-ctx.Done():
		}
	})
	err := join(ctx)
	if err != nil && errors.Is(context.Cause(ctx), run.ErrDetach) {
		err = run.ErrDetach
	}
	return err
}

// errRejoined means that the worker has a new identity.
var errRejoined = errors.New("the worker joined again")

// rejoinEvery is the minimum time between two new identities: a server that refuses one that it has just issued will refuse the
// next one too.
const rejoinEvery = time.Minute

// rejoin replaces the identity, which the server does not know, by a new one. It returns errRejoined, or why that failed. forget removes
// the records of the old identity: its tasks were stopped, and another server must not get their reports.
func (w *Worker) rejoin(ctx context.Context, cause error, previous agent.Identity, name string, forget func() error) error {
	if !w.hasToken() || ctx.Err() != nil || !w.rejoined.IsZero() && time.Since(w.rejoined) < rejoinEvery {
		return cause
	}
	err := w.untilDetach(ctx, func(ctx context.Context) error {
		token, err := w.joinToken(ctx, previous.Worker)
		if err != nil {
			return err
		}
		_, err = agent.Rejoin(ctx, w.http, w.server, token, w.registration(name), w.cfg.Data, previous, forget, w.log)
		return err
	})
	switch {
	case err == nil:
		w.rejoined = time.Now()
		return errRejoined
	case errors.Is(err, run.ErrDetach):
		return err
	case ctx.Err() != nil:
		return nil //nolint:nilerr // ctx ended
	case muster.CodeOf(cause) == muster.Forbidden:
		return muster.Errorf(muster.Forbidden, "%w; joining again: %w", cause, err)
	default:
		return muster.Errorf(muster.CodeOf(err), "%w; joining again: %w", cause, err)
	}
}

// forget drops the reports of all tasks, and what the supervisor still has of them. Their logs are removed like those of any task
// without a report, before any task runs.
func forget(reports *agent.ReportStore, tasks *shim.Client) error {
	for _, h := range tasks.Recovered() {
		tasks.Forget(h.Start.Attempt)
	}
	return reports.Clear()
}
