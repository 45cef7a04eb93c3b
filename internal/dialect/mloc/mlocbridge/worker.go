package mlocbridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

// bridgeWorker is one worker of MLOC: Muster's fleet, or one worker of it.
type bridgeWorker struct {
	*Bridge

	id, dir string // its WORKER_ID, its folder
	core    *bridge.Bridge
	session *session
	inbox   *inbox

	mu             sync.Mutex
	openDispatches map[string]*delivery // by the id of the dispatch: taken, and not finally reported
	returned       map[string]bool      // given back to the host: their ends are not reported
	wake           chan struct{}        // a token if workLoop has something to do
}

// dispatchID names a dispatch: the same task may be dispatched again, which is another one.
func dispatchID(m mloc.TaskMessage, received time.Time) string {
	sum := sha256.Sum256([]byte(cmp.Or(m.DispatchedAt, mloc.FormatTime(received))))
	return m.TaskID + "@" + hex.EncodeToString(sum[:6])
}

// run serves the host until ctx ends, or taking and all that was taken.
func (w *bridgeWorker) run(ctx, acceptCtx context.Context) error {
	current := ""
	if p := w.inbox.first(); p != nil {
		current = p.Task
	}
	w.mu.Lock()
	for _, j := range w.core.Jobs() {
		if m, err := parseMeta(j); err == nil && !w.returned[j.ID] {
			w.openDispatches[j.ID], current = &delivery{task: m.TaskID}, m.TaskID
		}
	}
	w.mu.Unlock()
	if current != "" {
		w.session.setBusy(current)
	}
	groupCtx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(groupCtx)
	group.Go(func() error { return w.core.Run(groupCtx) })
	group.Go(func() error { return w.session.run(groupCtx) })
	group.Go(func() error { return w.cancelReturned(groupCtx) })
	group.Go(func() error {
		defer stop()
		return w.workLoop(groupCtx, acceptCtx)
	})
	err := group.Wait()
	if ctx.Err() == nil && acceptCtx.Err() == nil {
		return err
	}
	w.shutdown(context.WithoutCancel(ctx))
	return nil
}

// unregisterTimeout is how long a worker takes at most to unregister.
const unregisterTimeout = 8 * time.Second

// shutdown unregisters. What the worker still holds the host gives to others, and it is stopped here; unless it continues
// without the bridge.
func (w *bridgeWorker) shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, unregisterTimeout)
	defer cancel()
	w.mu.Lock()
	ids := slices.Sorted(maps.Keys(w.openDispatches))
	w.mu.Unlock()
	if waiting := w.inbox.first() != nil; !w.cfg.StopTasks && (waiting || len(ids) > 0) {
		w.log.Warn("this worker stays registered for the tasks that it holds: start the bridge again, or the host gives them to others", slog.Int("tasks", len(ids)), slog.Duration("within", w.session.heartbeatTTL()))
		return
	}
	if err := w.session.unregister(ctx); err != nil {
		w.log.Warn("cannot unregister; the host will notice by the missing heartbeats", slog.String("why", err.Error()))
		return // then the next run continues with what is open
	}
	w.inbox.clear()
	for _, id := range ids {
		w.logError(w.markReturned(id))
		if err := w.core.Cancel(ctx, id); err != nil {
			w.log.Warn("cannot cancel a job whose task went back to the host; the next run does it", slog.String("why", err.Error()))
		}
	}
}

// cancelReturned stops jobs whose tasks went back to the host, and that could not be stopped then.
func (w *bridgeWorker) cancelReturned(ctx context.Context) error {
	for _, j := range w.core.Jobs() {
		w.mu.Lock()
		returned := w.returned[j.ID]
		w.mu.Unlock()
		for wait := w.cfg.RetryDelay; returned && ctx.Err() == nil; wait = min(2*wait, time.Minute) {
			if err := w.core.Cancel(ctx, j.ID); err == nil || muster.CodeOf(err) == muster.NotFound || muster.CodeOf(err) == muster.Conflict {
				break
			}
			_ = backoff.Sleep(ctx, wait)
		}
	}
	return nil
}

func (w *bridgeWorker) handleMessage(b []byte) {
	var m mloc.TaskMessage
	err := mloc.Decode(b, mloc.MaxMessage, &m)
	if m.AssignedWorker != w.id || err != nil && !mloc.IsTypeError(err) {
		return // for another worker, or none
	}
	if !mloc.ValidID(m.TaskID) {
		w.log.Warn("the host sent a task whose id cannot be used", slog.String("task", mloc.Truncate(m.TaskID, 200)))
		return
	}
	now := time.Now()
	p := inboxItem{ID: dispatchID(m, now), Task: m.TaskID, At: now, Message: b}
	if err != nil {
		p.Refused = mloc.Truncate("the task is not what it should be: "+err.Error(), mloc.MaxText)
	}
	for _, c := range m.MergedChildren {
		if !mloc.ValidID(c.TaskID) {
			p.Refused = "a task that was merged into it has an id that cannot be used"
		}
	}
	w.mu.Lock()
	for id, r := range w.openDispatches {
		if id == p.ID || r.task == p.Task {
			w.mu.Unlock()
			w.log.Info("the host sent a task again that is being carried out", slog.String("task", m.TaskID))
			return
		}
	}
	w.mu.Unlock()
	if err := w.inbox.add(p); err != nil {
		w.log.Error("a task of the host was not taken", slog.String("task", m.TaskID), slog.String("why", err.Error()))
	}
}

// workLoop carries out one task after the other.
func (w *bridgeWorker) workLoop(ctx, acceptCtx context.Context) error {
	stop := context.AfterFunc(acceptCtx, func() {
		w.session.close()
		wake.Set(w.wake)
	})
	defer stop()
	for ctx.Err() == nil {
		w.mu.Lock()
		busy := len(w.openDispatches) > 0
		w.mu.Unlock()
		p := w.inbox.first()
		switch {
		case acceptCtx.Err() != nil && !busy:
			return nil
		case !busy && p != nil:
			w.process(ctx, p)
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// process hands one message to Muster, or answers it if that is not possible.
func (w *bridgeWorker) process(ctx context.Context, p *inboxItem) {
	var m mloc.TaskMessage
	if err := mloc.Decode(p.Message, mloc.MaxMessage, &m); err != nil && !mloc.IsTypeError(err) {
		w.log.Error("a task on disk is damaged", slog.String("task", p.Task))
		w.logError(w.inbox.remove(p))
		return
	}
	w.session.setBusy(m.TaskID)
	w.session.publishStatus(ctx)
	for wait := w.cfg.RetryDelay; p.Refused == "" && ctx.Err() == nil; wait = min(2*wait, 30*time.Second) {
		accepted, err := w.submit(ctx, p, m)
		if err == nil {
			w.logError(w.inbox.remove(p))
			if !accepted { // it was reported before: the host sends it once more
				w.closeDispatch(ctx, p.ID)
			}
			return
		}
		switch muster.CodeOf(err) {
		case muster.Invalid, muster.InvalidSpec, muster.TooLarge, muster.NotFound, muster.Forbidden, muster.Conflict:
			w.log.Warn("a task of the host cannot be carried out", slog.String("task", m.TaskID), slog.String("why", err.Error()))
			w.logError(w.inbox.markRefused(p, err.Error()))
		default:
			w.log.Warn("a task of the host waits", slog.String("task", m.TaskID), slog.String("why", err.Error()))
			_ = backoff.Sleep(ctx, wait)
		}
	}
	for wait := w.cfg.RetryDelay; ctx.Err() == nil; wait = min(2*wait, 10*time.Second) {
		err := w.reportFailure(ctx, p, m)
		if err == nil {
			w.logError(w.inbox.remove(p))
			w.session.setIdle()
			w.session.publishStatus(ctx)
			return
		}
		w.log.Warn("the failure of a task is not reported yet", slog.String("task", m.TaskID), slog.String("why", err.Error()))
		_ = backoff.Sleep(ctx, wait)
	}
}

// logError logs what the disk refused.
func (w *bridgeWorker) logError(err error) {
	if err != nil {
		w.log.Error("cannot note the state of a task", slog.String("why", err.Error()))
	}
}

func (w *bridgeWorker) submit(ctx context.Context, p *inboxItem, m mloc.TaskMessage) (bool, error) {
	spec, err := w.prepare(ctx, m)
	if err != nil {
		return false, err
	}
	if err := w.checkPlan(ctx, &spec); err != nil {
		return false, err
	}
	encoded, err := mloc.Encode(mloc.Object{"message": m})
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	w.openDispatches[p.ID] = &delivery{task: m.TaskID}
	w.mu.Unlock()
	accepted, err := w.core.Accept(ctx, bridge.Job{ID: p.ID, Spec: spec, Meta: encoded})
	if err != nil {
		w.mu.Lock()
		delete(w.openDispatches, p.ID)
		w.mu.Unlock()
	}
	return accepted, err
}

// checkPlan fails if no worker that has joined could ever carry the job out: it would wait forever, and the host with it.
func (w *bridgeWorker) checkPlan(ctx context.Context, spec *muster.Spec) error {
	plan, err := w.client.Plan(ctx, spec)
	if err != nil {
		return err
	}
	for i := range plan {
		if !plan[i].Unschedulable() {
			continue
		}
		if len(plan[i].Workers) == 0 {
			return muster.Errorf(muster.Unavailable, "no worker of Muster is connected")
		}
		return mloc.InvalidSpec("no worker of this fleet can carry out taskType %s: %s", spec.Tasks[min(i, len(spec.Tasks)-1)].Kind, plan[i].Summary)
	}
	return nil
}

// reportFailure reports a task as failed that was not handed to Muster.
func (w *bridgeWorker) reportFailure(ctx context.Context, p *inboxItem, m mloc.TaskMessage) error {
	if state := w.queryState(ctx, m); state == stateOver || state == stateMoved {
		return nil
	}
	t := muster.Task{StartedAt: muster.NewTime(p.At), FinishedAt: muster.NewTime(p.At)} // it did not run
	if err := w.session.publish(ctx, mloc.TaskEvent{Type: mloc.EventStarted, TaskID: m.TaskID, Payload: eventPayload(m, t, false)}); err != nil {
		return err
	}
	return w.session.publish(ctx, mloc.TaskEvent{Type: mloc.EventFailed, TaskID: m.TaskID, Error: &p.Refused, Payload: eventPayload(m, t, true)})
}

// queryState asks the host for the state of a task.
func (w *bridgeWorker) queryState(ctx context.Context, m mloc.TaskMessage) remoteState {
	d, err := parseDestination(m.Task.Spec)
	base, token := w.cfg.BaseURL, ""
	if w.cfg.Token != "" {
		token = "Bearer " + w.cfg.Token
	}
	if host, ok := strings.CutSuffix(d.URL, "/api/v1/results"); ok && err == nil && base == "" {
		base, token = host, cmp.Or(token, d.Headers.Get("Authorization"))
	}
	return w.http.taskState(ctx, base, token, m.TaskID, w.id)
}

// parseMeta returns the message of a job, which the core keeps with it.
func parseMeta(j bridge.Job) (mloc.TaskMessage, error) {
	var meta struct {
		Message mloc.TaskMessage `json:"message"`
	}
	err := mloc.Decode(j.Meta, 2*mloc.MaxMessage, &meta)
	return meta.Message, err
}

// closeDispatch forgets a dispatch that is finally reported, or that is not this worker's any more.
func (w *bridgeWorker) closeDispatch(ctx context.Context, id string) {
	w.mu.Lock()
	delete(w.openDispatches, id)
	open := len(w.openDispatches)
	w.mu.Unlock()
	switch p := w.inbox.first(); {
	case open > 0:
	case p != nil:
		w.session.setBusy(p.Task) // which the host takes for given
	default:
		w.session.setIdle()
	}
	wake.Set(w.wake)
	w.session.publishStatus(ctx)
}

// Progress implements bridge.Reporter: it reports to the host of MLOC only that a task started.
func (w *bridgeWorker) Progress(ctx context.Context, j bridge.Job, _ muster.Job, tasks []muster.Task) error {
	for _, t := range tasks {
		if t.StartedAt != 0 {
			return w.publishStarted(ctx, j, t)
		}
	}
	return nil
}

// publishStarted publishes TASK_STARTED once.
func (w *bridgeWorker) publishStarted(ctx context.Context, j bridge.Job, t muster.Task) error {
	w.mu.Lock()
	r := w.openDispatches[j.ID]
	w.mu.Unlock()
	if r == nil || r.started {
		return nil
	}
	m, err := parseMeta(j)
	if err != nil {
		return err
	}
	if err := w.session.publish(ctx, mloc.TaskEvent{Type: mloc.EventStarted, TaskID: m.TaskID, Payload: eventPayload(m, t, false)}); err != nil {
		return err
	}
	r.started = true
	return nil
}

// eventPayload is the payload of events of a task.
func eventPayload(m mloc.TaskMessage, t muster.Task, ended bool) mloc.Object {
	p := mloc.Object{"taskType": mloc.TaskType(m.Task)}
	if m.DispatchedAt != "" {
		p["dispatched_at"] = m.DispatchedAt
	}
	began := cmp.Or(t.StartedAt, muster.NewTime(time.Now()))
	p["started_at"] = mloc.FormatTime(began.Std())
	if ended {
		end := max(t.FinishedAt, began)
		p["runtime_sec"], p["finished_at"] = end.Sub(began).Seconds(), mloc.FormatTime(end.Std())
	}
	return p
}

// Log implements bridge.LogReporter: the output of a task is written to its folder when it ended.
func (w *bridgeWorker) Log(context.Context, bridge.Job, []string) error { return nil }

// Finished implements bridge.FinishChecker.
func (w *bridgeWorker) Finished(ctx context.Context, j bridge.Job) (bool, error) {
	m, err := parseMeta(j)
	if err != nil {
		return false, err
	}
	if w.queryState(ctx, m) != stateOver {
		return false, nil
	}
	w.closeDispatch(ctx, j.ID)
	return true, nil
}

// returnedFile names the dispatches that went back to the host and whose jobs have not ended yet.
const returnedFile = "dropped.json"

func (w *bridgeWorker) loadReturned() error {
	data, err := os.ReadFile(filepath.Join(w.dir, returnedFile))
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		err = mloc.Decode(data, mloc.MaxMessage, &w.returned)
	}
	if err != nil {
		return muster.Errorf(muster.Internal, "%s cannot be read: %w", filepath.Join(w.dir, returnedFile), err)
	}
	if w.returned == nil { // null
		w.returned = map[string]bool{}
	}
	return nil
}

// markReturned notes that a dispatch is not this worker's any more.
func (w *bridgeWorker) markReturned(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned[id] = true
	delete(w.openDispatches, id)
	return mloc.WriteJSON(filepath.Join(w.dir, returnedFile), w.returned)
}

// clearReturned forgets that, when its job has ended. It returns why there is no report.
func (w *bridgeWorker) clearReturned(id string, reason error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.returned, id)
	return cmp.Or(mloc.WriteJSON(filepath.Join(w.dir, returnedFile), w.returned), reason)
}
