package mlocbridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// report is how far the final report of a dispatch is. It is kept in memory only: after a restart it begins again, with
// the question whether the host has it.
type report struct {
	task    string
	started bool                // TASK_STARTED was published
	all     []*outcome          // once their files are here
	links   []map[string]string // of the delivered archives of each
	posted  int                 // results that the host has
	results []mloc.Object
	failing time.Time // since when the delivery fails
	failure string    // why it is TASK_FAILED for good
	told    bool      // the final event was published
}

// Finish is part of bridge.Port: it delivers results and files, and publishes the final event.
func (w *bridged) Finish(ctx context.Context, j bridge.Job, end bridge.Ending) error {
	m, err := metaOf(j)
	if err != nil {
		return err
	}
	w.mu.Lock()
	r, gone := w.open[j.ID], w.dropped[j.ID]
	if r == nil {
		r = &report{task: m.Message.TaskID}
		if !gone {
			w.open[j.ID] = r
		}
	}
	w.mu.Unlock()
	if gone {
		return w.undropped(j.ID, muster.Errorf(muster.Conflict, "task %s went back to the host when this bridge was stopped", m.Message.TaskID))
	}
	err = w.finish(ctx, j, m.Message, end, r)
	var given *givenUpError
	switch {
	case err == nil:
	case errors.As(err, &given):
		err = muster.Errorf(muster.Conflict, "%s", given.why)
	case ctx.Err() != nil:
		return ctx.Err()
	default: // whatever its code, it is no refusal of the host
		return muster.Errorf(muster.Unavailable, "%w", err)
	}
	w.over(j.ID)
	w.session.tellStatus(ctx)
	return err
}

// givenUpError says why there is no report: the dispatch is not this worker's any more.
type givenUpError struct{ why string }

func (g *givenUpError) Error() string { return g.why }

func (w *bridged) finish(ctx context.Context, j bridge.Job, m mloc.TaskMessage, end bridge.Ending, r *report) error {
	switch w.standing(ctx, m) {
	case moved:
		return &givenUpError{"the host has taken task " + m.TaskID + " back, or given it to another worker"}
	case over:
		if !r.told {
			return &givenUpError{"the host has ended task " + m.TaskID + " without this worker's report"}
		}
		return nil
	case unknown, silent, ours, unheard:
	}
	tasks := end.Tasks
	var last muster.Task
	if len(tasks) > 0 {
		last = tasks[0]
		for _, t := range tasks {
			last.FinishedAt = max(last.FinishedAt, t.FinishedAt)
		}
	}
	if err := w.begun(ctx, j, last); err != nil {
		return err
	}
	failure := failureOf(m, end)
	if failure == "" {
		if err := w.deliver(ctx, m, tasks, r); err != nil {
			var lost *lostDeliveryError
			if !errors.As(err, &lost) {
				return err
			}
			r.failure = lost.text
		}
		failure = r.failure
	} else if err := w.keepFailure(ctx, m, tasks); err != nil {
		return err
	}
	e := mloc.TaskEvent{Type: mloc.EventSucceeded, TaskID: m.TaskID, Payload: times(m, last, true)}
	if failure != "" {
		e.Type, e.Error = mloc.EventFailed, &failure
	}
	if err := w.session.tell(ctx, e); err != nil {
		return err
	}
	r.told = true
	return w.confirmed(ctx, m)
}

// confirmed waits a moment for the host to have taken the final event: Redis does not report a message that was lost on
// the way. A host that cannot be asked is believed.
func (w *bridged) confirmed(ctx context.Context, m mloc.TaskMessage) error {
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		at := w.standing(ctx, m)
		if at != ours && at != silent || at == silent && w.cfg.BaseURL == "" {
			return nil
		}
		if wait > w.cfg.Confirm {
			return muster.Errorf(muster.Unavailable, "the host has not taken the report of task %s: it is published again", m.TaskID)
		}
		pause(ctx, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// failureOf says why a job failed, "" if it did not.
func failureOf(m mloc.TaskMessage, end bridge.Ending) string {
	if end.Succeeded() && len(end.Tasks) == len(members(m)) {
		return ""
	}
	for i, t := range end.Tasks {
		if t.State == muster.Succeeded {
			continue
		}
		why := t.Message
		if why == "" {
			why = t.State.String()
			if t.Reason != "" {
				why += ": " + string(t.Reason)
			}
		}
		if i > 0 && i <= len(m.MergedChildren) {
			why = "task " + m.MergedChildren[i-1].TaskID + ", merged into this one: " + why
		}
		return mloc.Cut(why, mloc.MaxText)
	}
	if why := end.Message(); why != "" {
		return mloc.Cut(why, mloc.MaxText)
	}
	return "the job of Muster " + string(end.State)
}

// lostDeliveryError fails a task that was carried out: its result cannot be delivered.
type lostDeliveryError struct{ text string }

func (l *lostDeliveryError) Error() string { return l.text }

// keepFailure writes what a failed task left to its folder.
func (w *bridged) keepFailure(ctx context.Context, m mloc.TaskMessage, tasks []muster.Task) error {
	for i, one := range members(m) {
		if i >= len(tasks) {
			break
		}
		dir, err := w.folder(one)
		if err != nil {
			return nil //nolint:nilerr // its failure is about that
		}
		o := &outcome{member: one, task: tasks[i], dir: dir}
		if err := w.collect(ctx, o); err != nil {
			return err
		}
		if err := w.write(ctx, o, nil); err != nil {
			return err
		}
	}
	return nil
}

// deliver makes the results, delivers archives, and posts each result where its task says. It continues where the try
// before it ended.
func (w *bridged) deliver(ctx context.Context, m mloc.TaskMessage, tasks []muster.Task, r *report) error {
	if r.all == nil {
		var all []*outcome
		for i, one := range members(m) {
			d, err := destinationOf(one.Doc.Spec)
			if err != nil {
				return &lostDeliveryError{err.Error()}
			}
			dir, err := w.folder(one)
			if err != nil {
				return &lostDeliveryError{err.Error()}
			}
			o := &outcome{member: one, task: tasks[i], dir: dir, dest: d} //nolint:gosec // a job that succeeded has a task for each member: see failureOf
			if err := w.collect(ctx, o); err != nil {
				return w.lasting(r, err)
			}
			all = append(all, o)
		}
		r.all = all
	}
	for i := len(r.links); i < len(r.all); i++ {
		links, err := w.archives(ctx, r.all[i])
		if err = w.tolerate(r, err); err != nil {
			return err
		}
		r.links = append(r.links, links)
	}
	if r.results == nil {
		if err := w.results(ctx, r); err != nil {
			return w.lasting(r, err)
		}
	}
	// The children before their parent: when the parent's result is there, so are theirs.
	for ; r.posted < len(r.all); r.posted++ {
		i := len(r.all) - 1 - r.posted
		o := r.all[i]
		if o.dest.Type == "http" {
			if err := w.posted(ctx, o, r.results[i], r); err != nil {
				return err
			}
		}
		w.tidy(o, r.links[i])
	}
	return nil
}

// results makes the results of all members, and writes them.
func (w *bridged) results(ctx context.Context, r *report) error {
	list, children := make([]mloc.Object, len(r.all)), map[string]mloc.Object{}
	for i, o := range r.all {
		result, err := w.result(ctx, o, r.links[i])
		if err != nil {
			return err
		}
		if list[i] = result; i > 0 {
			children[o.ID] = result
		}
	}
	list[0] = summed(list[0], children)
	for i, o := range r.all {
		if err := w.export(ctx, o, list[i]); err != nil {
			return err
		}
		if err := w.write(ctx, o, list[i]); err != nil {
			return err
		}
	}
	r.results = list
	return nil
}

// lasting turns an error of the bridge's own into the failure of the task where trying again cannot help.
func (w *bridged) lasting(r *report, err error) error {
	switch muster.CodeOf(err) {
	case muster.Invalid, muster.InvalidSpec, muster.TooLarge, muster.NotFound:
		return &lostDeliveryError{mloc.Cut(err.Error(), mloc.MaxText)}
	default:
		return w.patient(r, err, err.Error())
	}
}

// patient has something tried again for a while, and then fails the task.
func (w *bridged) patient(r *report, err error, text string) error {
	if r.failing.IsZero() {
		r.failing = time.Now()
	}
	if time.Since(r.failing) < w.cfg.Patience {
		return muster.Errorf(muster.Unavailable, "%w", err)
	}
	return &lostDeliveryError{mloc.Cut(text, mloc.MaxText)}
}

// tolerate has an upload of archives tried again for a while: without them the result is delivered all the same.
func (w *bridged) tolerate(r *report, err error) error {
	if err == nil {
		return nil
	}
	var lost *lostDeliveryError
	if err = w.patient(r, err, err.Error()); errors.As(err, &lost) {
		w.log.Warn("archives could not be delivered", slog.String("task", r.task), slog.String("why", lost.text))
		r.failing = time.Time{}
		return nil
	}
	return err
}

// posted posts one result.
func (w *bridged) posted(ctx context.Context, o *outcome, result mloc.Object, r *report) error {
	err := w.web.post(ctx, o.dest, o.ID, w.id, result)
	if err == nil {
		r.failing = time.Time{}
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if no, ok := errors.AsType[*refused](err); ok {
		text := "HTTP delivery for task " + o.ID + " " + no.Error()
		if no.status < 500 {
			return &lostDeliveryError{text}
		}
		return w.patient(r, err, text)
	}
	return w.patient(r, err, "HTTP delivery for task "+o.ID+" failed: "+err.Error())
}

// export delivers the lines of an export, and notes their address in the result.
func (w *bridged) export(ctx context.Context, o *outcome, result mloc.Object) error {
	about := mloc.Under(result, "jsonl_export")
	e, err := exportOf(o.Doc.Spec)
	if about == nil || err != nil || e == nil || o.dest.Type != "http" {
		return err
	}
	link, err := w.web.upload(ctx, o.dest, o.ID, mloc.Text(about["worker_path"]), "application/json")
	if err != nil {
		code := muster.Unavailable
		if no, ok := errors.AsType[*refused](err); ok && no.status < 500 {
			code = muster.Invalid
		}
		return muster.Errorf(code, "HTTP delivery of %s for task %s: %w", e.Path, o.ID, err)
	}
	name := addressFile(link)
	about["uploaded"], about["artifact_name"], about["download_url"], about["url"], about["download_timeoutSec"] = true, name, link, link, o.dest.Timeout.Seconds()
	return nil
}
