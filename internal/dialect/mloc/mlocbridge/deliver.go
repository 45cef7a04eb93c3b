package mlocbridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// delivery is how far the final report of a dispatch is. It is kept in memory only: after a restart it begins again, with
// the question whether the host has it.
type delivery struct {
	task         string
	started      bool                // TASK_STARTED was published
	outcomes     []*memberOutcome    // once their files are here
	links        []map[string]string // of the delivered archives of each
	postedCount  int                 // results that the host has
	results      []mloc.Object
	failingSince time.Time // since when the delivery fails
	failure      string    // why it is TASK_FAILED for good
	eventSent    bool      // the final event was published
}

// Finish implements bridge.Reporter: it delivers results and files, and publishes the final event.
func (w *bridgeWorker) Finish(ctx context.Context, j bridge.Job, end bridge.FinalReport) error {
	m, err := parseMeta(j)
	if err != nil {
		return err
	}
	w.mu.Lock()
	r, returned := w.openDispatches[j.ID], w.returned[j.ID]
	if r == nil {
		r = &delivery{task: m.Message.TaskID}
		if !returned {
			w.openDispatches[j.ID] = r
		}
	}
	w.mu.Unlock()
	if returned {
		return w.clearReturned(j.ID, muster.Errorf(muster.Conflict, "task %s went back to the host when this bridge was stopped", m.Message.TaskID))
	}
	err = w.finish(ctx, j, m.Message, end, r)
	var givenUp *abandonedError
	switch {
	case err == nil:
	case errors.As(err, &givenUp):
		err = muster.Errorf(muster.Conflict, "%s", givenUp.reason)
	case ctx.Err() != nil:
		return ctx.Err()
	default: // whatever its code, it is not a refusal of the host
		return muster.Errorf(muster.Unavailable, "%w", err)
	}
	w.closeDispatch(j.ID)
	w.session.publishStatus(ctx)
	return err
}

// abandonedError says why there is no report: the dispatch is not this worker's any more.
type abandonedError struct{ reason string }

func (g *abandonedError) Error() string { return g.reason }

func (w *bridgeWorker) finish(ctx context.Context, j bridge.Job, m mloc.TaskMessage, end bridge.FinalReport, r *delivery) error {
	switch w.queryState(ctx, m) {
	case stateMoved:
		return &abandonedError{"the host has taken task " + m.TaskID + " back, or given it to another worker"}
	case stateOver:
		if !r.eventSent {
			return &abandonedError{"the host has ended task " + m.TaskID + " without this worker's report"}
		}
		return nil
	case stateUnknown, stateSilent, stateWaiting, stateNotFound:
	}
	tasks := end.Tasks
	var last muster.Task
	if len(tasks) > 0 {
		last = tasks[0]
		for _, t := range tasks {
			last.FinishedAt = max(last.FinishedAt, t.FinishedAt)
		}
	}
	if err := w.publishStarted(ctx, j, last); err != nil {
		return err
	}
	failure := failureText(m, end)
	if failure == "" {
		if err := w.deliver(ctx, m, tasks, r); err != nil {
			var lost *lostDeliveryError
			if !errors.As(err, &lost) {
				return err
			}
			r.failure = lost.text
		}
		failure = r.failure
	} else if err := w.storeFailure(ctx, m, tasks); err != nil {
		return err
	}
	e := mloc.TaskEvent{Type: mloc.EventSucceeded, TaskID: m.TaskID, Payload: eventPayload(m, last, true)}
	if failure != "" {
		e.Type, e.Error = mloc.EventFailed, &failure
	}
	if err := w.session.publish(ctx, e); err != nil {
		return err
	}
	r.eventSent = true
	return w.awaitConfirmed(ctx, m)
}

// awaitConfirmed waits a moment for the host to have taken the final event: Redis does not report a message that was lost on
// the way. A host that cannot be asked is believed.
func (w *bridgeWorker) awaitConfirmed(ctx context.Context, m mloc.TaskMessage) error {
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		state := w.queryState(ctx, m)
		if state != stateWaiting && state != stateSilent || state == stateSilent && w.cfg.BaseURL == "" {
			return nil
		}
		if wait > w.cfg.ConfirmTimeout {
			return muster.Errorf(muster.Unavailable, "the host has not taken the report of task %s: it is published again", m.TaskID)
		}
		_ = backoff.Sleep(ctx, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// failureText says why a job failed, "" if it did not.
func failureText(m mloc.TaskMessage, end bridge.FinalReport) string {
	if end.Succeeded() && len(end.Tasks) == len(members(m)) {
		return ""
	}
	for i, t := range end.Tasks {
		if t.State == muster.Succeeded {
			continue
		}
		reason := t.Message
		if reason == "" {
			reason = t.State.String()
			if t.Reason != "" {
				reason += ": " + string(t.Reason)
			}
		}
		if i > 0 && i <= len(m.MergedChildren) {
			reason = "task " + m.MergedChildren[i-1].TaskID + ", merged into this one: " + reason
		}
		return mloc.Truncate(reason, mloc.MaxText)
	}
	if reason := end.Message(); reason != "" {
		return mloc.Truncate(reason, mloc.MaxText)
	}
	return "the job of Muster " + string(end.State)
}

// lostDeliveryError fails a task that was carried out: its result cannot be delivered.
type lostDeliveryError struct{ text string }

func (l *lostDeliveryError) Error() string { return l.text }

// storeFailure writes what a failed task left to its folder.
func (w *bridgeWorker) storeFailure(ctx context.Context, m mloc.TaskMessage, tasks []muster.Task) error {
	for i, one := range members(m) {
		if i >= len(tasks) {
			break
		}
		dir, err := w.taskDir(one)
		if err != nil {
			return nil //nolint:nilerr // its failure is about that
		}
		o := &memberOutcome{member: one, task: tasks[i], dir: dir}
		if err := w.collect(ctx, o); err != nil {
			return err
		}
		if err := w.writeResult(ctx, o, nil); err != nil {
			return err
		}
	}
	return nil
}

// deliver makes the results, delivers archives, and posts each result where its task says. It continues where the try
// before it ended.
func (w *bridgeWorker) deliver(ctx context.Context, m mloc.TaskMessage, tasks []muster.Task, r *delivery) error {
	if r.outcomes == nil {
		var all []*memberOutcome
		for i, one := range members(m) {
			d, err := parseDestination(one.Doc.Spec)
			if err != nil {
				return &lostDeliveryError{err.Error()}
			}
			dir, err := w.taskDir(one)
			if err != nil {
				return &lostDeliveryError{err.Error()}
			}
			o := &memberOutcome{member: one, task: tasks[i], dir: dir, dest: d} //nolint:gosec // a job that succeeded has a task for each member: see failureText
			if err := w.collect(ctx, o); err != nil {
				return w.permanentOrRetry(r, err)
			}
			all = append(all, o)
		}
		r.outcomes = all
	}
	for i := len(r.links); i < len(r.outcomes); i++ {
		links, err := w.uploadArchives(ctx, r.outcomes[i])
		if err = w.retryOrSkip(r, err); err != nil {
			return err
		}
		r.links = append(r.links, links)
	}
	if r.results == nil {
		if err := w.buildResults(ctx, r); err != nil {
			return w.permanentOrRetry(r, err)
		}
	}
	// The children before their parent: when the parent's result is there, so are theirs.
	for ; r.postedCount < len(r.outcomes); r.postedCount++ {
		i := len(r.outcomes) - 1 - r.postedCount
		o := r.outcomes[i]
		if o.dest.Type == "http" {
			if err := w.postResult(ctx, o, r.results[i], r); err != nil {
				return err
			}
		}
		w.cleanup(o, r.links[i])
	}
	return nil
}

// buildResults makes the results of all members, and writes them.
func (w *bridgeWorker) buildResults(ctx context.Context, r *delivery) error {
	list, children := make([]mloc.Object, len(r.outcomes)), map[string]mloc.Object{}
	for i, o := range r.outcomes {
		result, err := w.result(ctx, o, r.links[i])
		if err != nil {
			return err
		}
		if list[i] = result; i > 0 {
			children[o.ID] = result
		}
	}
	list[0] = mergeUsage(list[0], children)
	for i, o := range r.outcomes {
		if err := w.uploadExport(ctx, o, list[i]); err != nil {
			return err
		}
		if err := w.writeResult(ctx, o, list[i]); err != nil {
			return err
		}
	}
	r.results = list
	return nil
}

// permanentOrRetry turns an error of the bridge's own into the failure of the task where trying again cannot help.
func (w *bridgeWorker) permanentOrRetry(r *delivery, err error) error {
	switch muster.CodeOf(err) {
	case muster.Invalid, muster.InvalidSpec, muster.TooLarge, muster.NotFound:
		return &lostDeliveryError{mloc.Truncate(err.Error(), mloc.MaxText)}
	default:
		return w.retryOrFail(r, err, err.Error())
	}
}

// retryOrFail has something tried again for a while, and then fails the task.
func (w *bridgeWorker) retryOrFail(r *delivery, err error, text string) error {
	if r.failingSince.IsZero() {
		r.failingSince = time.Now()
	}
	if time.Since(r.failingSince) < w.cfg.DeliveryTimeout {
		return muster.Errorf(muster.Unavailable, "%w", err)
	}
	return &lostDeliveryError{mloc.Truncate(text, mloc.MaxText)}
}

// retryOrSkip has an upload of archives tried again for a while: without them the result is delivered all the same.
func (w *bridgeWorker) retryOrSkip(r *delivery, err error) error {
	if err == nil {
		return nil
	}
	var lost *lostDeliveryError
	if err = w.retryOrFail(r, err, err.Error()); errors.As(err, &lost) {
		w.log.Warn("archives could not be delivered", slog.String("task", r.task), slog.String("why", lost.text))
		r.failingSince = time.Time{}
		return nil
	}
	return err
}

// postResult posts one result.
func (w *bridgeWorker) postResult(ctx context.Context, o *memberOutcome, result mloc.Object, r *delivery) error {
	err := w.http.post(ctx, o.dest, o.ID, w.id, result)
	if err == nil {
		r.failingSince = time.Time{}
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if refusal, ok := errors.AsType[*statusError](err); ok {
		text := "HTTP delivery for task " + o.ID + " " + refusal.Error()
		if refusal.status < 500 {
			return &lostDeliveryError{text}
		}
		return w.retryOrFail(r, err, text)
	}
	return w.retryOrFail(r, err, "HTTP delivery for task "+o.ID+" failed: "+err.Error())
}

// uploadExport delivers the lines of an export, and notes their address in the result.
func (w *bridgeWorker) uploadExport(ctx context.Context, o *memberOutcome, result mloc.Object) error {
	about := mloc.Lookup(result, "jsonl_export")
	e, err := parseExport(o.Doc.Spec)
	if about == nil || err != nil || e == nil || o.dest.Type != "http" {
		return err
	}
	link, err := w.http.upload(ctx, o.dest, o.ID, mloc.Text(about["worker_path"]), "application/json")
	if err != nil {
		code := muster.Unavailable
		if refusal, ok := errors.AsType[*statusError](err); ok && refusal.status < 500 {
			code = muster.Invalid
		}
		return muster.Errorf(code, "HTTP delivery of %s for task %s: %w", e.Path, o.ID, err)
	}
	name := urlFile(link)
	about["uploaded"], about["artifact_name"], about["download_url"], about["url"], about["download_timeoutSec"] = true, name, link, link, o.dest.Timeout.Seconds()
	return nil
}
