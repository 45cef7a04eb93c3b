package mlocbridge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// delivery is how far the final report of a dispatch is. It is kept in memory only: after a restart it begins again, with
// the question whether the host has it. Only the reports of its job use it, which do not overlap.
type delivery struct {
	task          string
	started       bool             // TASK_STARTED was published
	outcomes      []*memberOutcome // once their files are here
	uploadedCount int              // of these whose archives were delivered
	built         bool             // the results are made
	postedCount   int              // results that the host has
	failingSince  time.Time        // since when the delivery fails
	failure       string           // why it is TASK_FAILED for good
	eventSent     bool             // the final event was published
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
		r = &delivery{task: m.TaskID}
		if !returned {
			w.openDispatches[j.ID] = r
		}
	}
	w.mu.Unlock()
	if returned {
		return w.clearReturned(j.ID, muster.Errorf(muster.Conflict, "task %s went back to the host when this bridge was stopped", m.TaskID))
	}
	switch state := w.queryState(ctx, m); {
	case state == stateMoved:
		err = muster.Errorf(muster.Conflict, "the host has taken task %s back, or given it to another worker", m.TaskID)
	case state == stateOver && !r.eventSent:
		err = muster.Errorf(muster.Conflict, "the host has ended task %s without this worker's report", m.TaskID)
	case state == stateOver:
	default:
		if err := w.report(ctx, j, m, end, r); err != nil { // whatever its code, it is not a refusal of the host
			return cmp.Or[error](ctx.Err(), muster.Errorf(muster.Unavailable, "%w", err))
		}
	}
	w.closeDispatch(ctx, j.ID)
	return err
}

// report delivers results and files, and publishes the final event.
func (w *bridgeWorker) report(ctx context.Context, j bridge.Job, m mloc.TaskMessage, end bridge.FinalReport, r *delivery) error {
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
		err := w.deliver(ctx, m, tasks, r)
		if lost, ok := errors.AsType[lostDeliveryError](err); ok {
			r.failure = string(lost)
		} else if err != nil {
			return err
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
		if err := backoff.Sleep(ctx, wait); err != nil {
			return err
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
		reason := cmp.Or(t.Message, strings.TrimSuffix(t.State.String()+": "+string(t.Reason), ": "))
		if i > 0 && i <= len(m.MergedChildren) {
			reason = "task " + m.MergedChildren[i-1].TaskID + ", merged into this one: " + reason
		}
		return mloc.Truncate(reason, mloc.MaxText)
	}
	return mloc.Truncate(cmp.Or(end.Message(), "the job of Muster "+string(end.State)), mloc.MaxText)
}

// lostDeliveryError fails a task that was carried out: its result cannot be delivered.
type lostDeliveryError string

func (l lostDeliveryError) Error() string { return string(l) }

// storeFailure writes what a failed task left to its folder.
func (w *bridgeWorker) storeFailure(ctx context.Context, m mloc.TaskMessage, tasks []muster.Task) error {
	for i, one := range members(m) {
		if i >= len(tasks) {
			break
		}
		dir, _, err := w.taskDir(one)
		if err != nil {
			return nil //nolint:nilerr // its failure is about that
		}
		o := &memberOutcome{member: one, task: tasks[i], dir: dir}
		if err := w.collect(ctx, o); err != nil {
			return err
		}
		if err := w.writeResult(ctx, o); err != nil {
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
			dir, d, err := w.taskDir(one)
			if err != nil {
				return lostDeliveryError(err.Error())
			}
			o := &memberOutcome{member: one, task: tasks[i], dir: dir, dest: d} //nolint:gosec // a job that succeeded has a task for each member: see failureText
			if err := w.collect(ctx, o); err != nil {
				return w.permanentOrRetry(r, err)
			}
			all = append(all, o)
		}
		r.outcomes = all
	}
	for ; r.uploadedCount < len(r.outcomes); r.uploadedCount++ {
		if err := w.retryOrSkip(r, w.uploadArchives(ctx, r.outcomes[r.uploadedCount])); err != nil {
			return err
		}
	}
	if !r.built {
		if err := w.buildResults(ctx, r.outcomes); err != nil {
			return w.permanentOrRetry(r, err)
		}
		r.built = true
	}
	// The children before their parent: when the parent's result is there, so are theirs.
	for ; r.postedCount < len(r.outcomes); r.postedCount++ {
		o := r.outcomes[len(r.outcomes)-1-r.postedCount]
		if o.dest.Type == "http" {
			if err := w.postResult(ctx, o, r); err != nil {
				return err
			}
		}
		w.cleanup(o)
	}
	return nil
}

// buildResults makes the results of all members, and writes them.
func (w *bridgeWorker) buildResults(ctx context.Context, outcomes []*memberOutcome) error {
	children := map[string]mloc.Object{}
	for i, o := range outcomes {
		var err error
		if o.result, err = w.makeResult(ctx, o); err != nil {
			return err
		}
		if i > 0 {
			children[o.ID] = o.result
		}
	}
	outcomes[0].result = mergeUsage(outcomes[0].result, children)
	for _, o := range outcomes {
		if err := w.uploadExport(ctx, o); err != nil {
			return err
		}
		if err := w.writeResult(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// permanentOrRetry turns an error of the bridge's own into the failure of the task where trying again cannot help.
func (w *bridgeWorker) permanentOrRetry(r *delivery, err error) error {
	switch muster.CodeOf(err) {
	case muster.Invalid, muster.InvalidSpec, muster.TooLarge, muster.NotFound:
		return lostDeliveryError(mloc.Truncate(err.Error(), mloc.MaxText))
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
	return lostDeliveryError(mloc.Truncate(text, mloc.MaxText))
}

// retryOrSkip has an upload of archives tried again for a while: without them the result is delivered all the same.
func (w *bridgeWorker) retryOrSkip(r *delivery, err error) error {
	if err == nil {
		return nil
	}
	err = w.retryOrFail(r, err, err.Error())
	if lost, ok := errors.AsType[lostDeliveryError](err); ok {
		w.log.Warn("archives could not be delivered", slog.String("task", r.task), slog.String("why", lost.Error()))
		r.failingSince = time.Time{}
		return nil
	}
	return err
}

func (w *bridgeWorker) postResult(ctx context.Context, o *memberOutcome, r *delivery) error {
	err := w.http.post(ctx, o.dest, o.ID, w.id, o.result)
	text := "HTTP delivery for task " + o.ID
	refusal, refused := errors.AsType[*statusError](err)
	switch {
	case err == nil:
		r.failingSince = time.Time{}
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !refused:
		return w.retryOrFail(r, err, text+" failed: "+err.Error())
	case refusal.status < 500:
		return lostDeliveryError(text + " " + refusal.Error())
	default:
		return w.retryOrFail(r, err, text+" "+refusal.Error())
	}
}

// uploadExport delivers the lines of an export, and notes their address in the result.
func (w *bridgeWorker) uploadExport(ctx context.Context, o *memberOutcome) error {
	about := mloc.Lookup(o.result, "jsonl_export")
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
