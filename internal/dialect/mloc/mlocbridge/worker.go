package mlocbridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// bridged is one worker of MLOC: Muster's fleet, or one worker of it.
type bridged struct {
	*Bridge

	id, dir string // its WORKER_ID, its folder
	core    *bridge.Bridge
	session *session
	inbox   *inbox

	mu      sync.Mutex
	open    map[string]*report // by the id of the dispatch: taken, and not finally reported
	dropped map[string]bool    // given back to the host: their ends are not reported
	idle    chan bool          // told when open became empty
}

// meta is what the core keeps with a job.
type meta struct {
	Message mloc.TaskMessage `json:"message"`
}

// dispatchID names a dispatch: the same task may be dispatched again, which is another one.
func dispatchID(m mloc.TaskMessage, received time.Time) string {
	when := m.DispatchedAt
	if when == "" {
		when = mloc.Stamp(received)
	}
	sum := sha256.Sum256([]byte(when))
	return m.TaskID + "@" + hex.EncodeToString(sum[:6])
}

// run serves the host until ctx ends, or taking and all that was taken.
func (w *bridged) run(ctx, taking context.Context) error {
	w.mu.Lock()
	current := ""
	for _, j := range w.core.Jobs() {
		if m, err := metaOf(j); err == nil && !w.dropped[j.ID] {
			w.open[j.ID], current = &report{task: m.Message.TaskID}, m.Message.TaskID
		}
	}
	w.mu.Unlock()
	if current == "" {
		if p := w.inbox.first(); p != nil {
			current = p.Task
		}
	}
	if current != "" {
		w.session.begin(current)
	}
	within, stop := context.WithCancel(ctx)
	defer stop()
	group, within := errgroup.WithContext(within)
	group.Go(func() error { return w.core.Run(within) })
	group.Go(func() error { return w.session.run(within) })
	group.Go(func() error { return w.stopDropped(within) })
	group.Go(func() error {
		defer stop()
		return w.work(within, taking)
	})
	err := group.Wait()
	if ctx.Err() == nil && taking.Err() == nil {
		return err
	}
	w.leave(context.WithoutCancel(ctx))
	return nil
}

// farewell is how long a worker takes at most to unregister.
const farewell = 8 * time.Second

// leave unregisters. What the worker still holds the host gives to others, and it is stopped here; unless it continues
// without the bridge.
func (w *bridged) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	w.mu.Lock()
	ids := slices.Sorted(maps.Keys(w.open))
	w.mu.Unlock()
	if waiting := w.inbox.first() != nil; !w.cfg.Machine && (waiting || len(ids) > 0) {
		w.log.Warn("this worker stays registered for the tasks that it holds: start the bridge again, or the host gives them to others", slog.Int("tasks", len(ids)), slog.Duration("within", w.session.life()))
		return
	}
	if err := w.session.unregister(ctx); err != nil {
		w.log.Warn("cannot unregister; the host will notice by the missing heartbeats", slog.String("why", err.Error()))
		return // then the next run continues with what is open
	}
	w.inbox.clear()
	for _, id := range ids {
		w.settled(w.drop(id))
		if err := w.core.Cancel(ctx, id); err != nil {
			w.log.Warn("cannot cancel a job whose task went back to the host; the next run does it", slog.String("why", err.Error()))
		}
	}
}

// stopDropped stops jobs whose tasks went back to the host, and that could not be stopped then.
func (w *bridged) stopDropped(ctx context.Context) error {
	for _, j := range w.core.Jobs() {
		w.mu.Lock()
		gone := w.dropped[j.ID]
		w.mu.Unlock()
		for wait := w.cfg.Retry; gone && ctx.Err() == nil; wait = min(2*wait, time.Minute) {
			if err := w.core.Cancel(ctx, j.ID); err == nil || muster.CodeOf(err) == muster.NotFound || muster.CodeOf(err) == muster.Conflict {
				break
			}
			pause(ctx, wait)
		}
	}
	return nil
}

// message takes a message of the channel of tasks.
func (w *bridged) message(b []byte) {
	m, err := mloc.ReadTask(b)
	if m.AssignedWorker != w.id || err != nil && !mloc.Mistyped(err) {
		return // for another worker, or none
	}
	if !mloc.GoodID(m.TaskID) {
		w.log.Warn("the host sent a task whose id cannot be used", slog.String("task", mloc.Cut(m.TaskID, 200)))
		return
	}
	now := time.Now()
	p := parcel{ID: dispatchID(m, now), Task: m.TaskID, At: now, Message: b}
	if err != nil {
		p.Refused = mloc.Cut("the task is not what it should be: "+err.Error(), mloc.MaxText)
	}
	for _, c := range m.MergedChildren {
		if !mloc.GoodID(c.TaskID) {
			p.Refused = "a task that was merged into it has an id that cannot be used"
		}
	}
	w.mu.Lock()
	for id, r := range w.open {
		if id == p.ID || r.task == p.Task {
			w.mu.Unlock()
			w.log.Info("the host sent a task again that is being carried out", slog.String("task", m.TaskID))
			return
		}
	}
	w.mu.Unlock()
	if _, err := w.inbox.add(p); err != nil {
		w.log.Error("a task of the host was not taken", slog.String("task", m.TaskID), slog.String("why", err.Error()))
	}
}

// work carries out one task after the other.
func (w *bridged) work(ctx, taking context.Context) error {
	ended := taking.Done()
	for ctx.Err() == nil {
		w.mu.Lock()
		busy := len(w.open) > 0
		w.mu.Unlock()
		p := w.inbox.first()
		switch {
		case taking.Err() != nil && !busy:
			return nil
		case !busy && p != nil:
			w.take(ctx, p)
			continue
		}
		select {
		case <-w.idle:
		case <-w.inbox.wake:
		case <-ended:
			ended = nil
			w.session.close()
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// take hands one message to Muster, or answers it if that is not possible.
func (w *bridged) take(ctx context.Context, p *parcel) {
	m, err := mloc.ReadTask(p.Message)
	if err != nil && !mloc.Mistyped(err) {
		w.log.Error("a task on disk is damaged", slog.String("task", p.Task))
		w.settled(w.inbox.remove(p))
		return
	}
	w.session.begin(m.TaskID)
	w.session.tellStatus(ctx)
	for wait := w.cfg.Retry; p.Refused == "" && ctx.Err() == nil; wait = min(2*wait, 30*time.Second) {
		taken, err := w.hand(ctx, p, m)
		if err == nil {
			w.settled(w.inbox.remove(p))
			if !taken { // it was reported before: the host sends it once more
				w.over(p.ID)
				w.session.tellStatus(ctx)
			}
			return
		}
		switch muster.CodeOf(err) {
		case muster.Invalid, muster.InvalidSpec, muster.TooLarge, muster.NotFound, muster.Forbidden, muster.Conflict:
			w.log.Warn("a task of the host cannot be carried out", slog.String("task", m.TaskID), slog.String("why", err.Error()))
			w.settled(w.inbox.refuse(p, err.Error()))
		default:
			w.log.Warn("a task of the host waits", slog.String("task", m.TaskID), slog.String("why", err.Error()))
			pause(ctx, wait)
		}
	}
	for wait := w.cfg.Retry; ctx.Err() == nil; wait = min(2*wait, 10*time.Second) {
		err := w.answer(ctx, p, m)
		if err == nil {
			w.settled(w.inbox.remove(p))
			w.session.end()
			w.session.tellStatus(ctx)
			return
		}
		w.log.Warn("the failure of a task is not reported yet", slog.String("task", m.TaskID), slog.String("why", err.Error()))
		pause(ctx, wait)
	}
}

// settled logs what the disk refused.
func (w *bridged) settled(err error) {
	if err != nil {
		w.log.Error("cannot note the state of a task", slog.String("why", err.Error()))
	}
}

// hand makes a message a job of Muster.
func (w *bridged) hand(ctx context.Context, p *parcel, m mloc.TaskMessage) (bool, error) {
	spec, err := w.prepare(ctx, m)
	if err != nil {
		return false, err
	}
	if err := w.possible(ctx, &spec); err != nil {
		return false, err
	}
	kept, err := mloc.Encode(meta{Message: m})
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	w.open[p.ID] = &report{task: m.TaskID}
	w.mu.Unlock()
	taken, err := w.core.Accept(ctx, bridge.Job{ID: p.ID, Spec: spec, Meta: kept})
	if err != nil {
		w.mu.Lock()
		delete(w.open, p.ID)
		w.mu.Unlock()
	}
	return taken, err
}

// possible fails if no worker that has joined could ever carry the job out: it would wait for ever, and the host with it.
func (w *bridged) possible(ctx context.Context, spec *muster.Spec) error {
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
		return mloc.Cannot("no worker of this fleet can carry out taskType %s: %s", spec.Tasks[min(i, len(spec.Tasks)-1)].Kind, plan[i].Summary)
	}
	return nil
}

// answer reports a task as failed that was not handed to Muster.
func (w *bridged) answer(ctx context.Context, p *parcel, m mloc.TaskMessage) error {
	if at := w.standing(ctx, m); at == over || at == moved {
		return nil
	}
	now := mloc.Stamp(time.Now())
	payload := mloc.Object{"taskType": mloc.TaskType(m.Task), "started_at": mloc.Stamp(p.At)}
	if m.DispatchedAt != "" {
		payload["dispatched_at"] = m.DispatchedAt
	}
	if err := w.session.tell(ctx, mloc.TaskEvent{Type: mloc.EventStarted, TaskID: m.TaskID, Payload: payload}); err != nil {
		return err
	}
	end := mloc.Object{"runtime_sec": 0, "finished_at": now}
	maps.Copy(end, payload)
	return w.session.tell(ctx, mloc.TaskEvent{Type: mloc.EventFailed, TaskID: m.TaskID, Error: &p.Refused, Payload: end})
}

// standing asks the host where a task stands.
func (w *bridged) standing(ctx context.Context, m mloc.TaskMessage) standing {
	d, err := destinationOf(m.Task.Spec)
	base, token := w.cfg.BaseURL, ""
	if w.cfg.Token != "" {
		token = "Bearer " + w.cfg.Token
	}
	if err == nil && base == "" {
		base = baseOf(d.URL)
		for k, v := range d.Headers {
			if token == "" && len(k) == len("Authorization") && k[0]|0x20 == 'a' {
				token = v
			}
		}
	}
	return w.web.ask(ctx, base, token, m.TaskID, w.id)
}

func metaOf(j bridge.Job) (meta, error) {
	var m meta
	err := mloc.Decode(j.Meta, 2*mloc.MaxMessage, &m)
	return m, err
}

// over forgets a dispatch that is finally reported, or that is not this worker's any more.
func (w *bridged) over(id string) {
	w.mu.Lock()
	delete(w.open, id)
	left := len(w.open)
	w.mu.Unlock()
	if left > 0 {
		return
	}
	if p := w.inbox.first(); p != nil {
		w.session.begin(p.Task) // which the host takes for given
	} else {
		w.session.end()
	}
	select {
	case w.idle <- true:
	default:
	}
}

// Progress is part of bridge.Port: a host of MLOC hears that a task started, and no more until it ends.
func (w *bridged) Progress(ctx context.Context, j bridge.Job, _ muster.Job, tasks []muster.Task) error {
	for _, t := range tasks {
		if t.StartedAt != 0 {
			return w.begun(ctx, j, t)
		}
	}
	return nil
}

// begun publishes TASK_STARTED once.
func (w *bridged) begun(ctx context.Context, j bridge.Job, t muster.Task) error {
	w.mu.Lock()
	r := w.open[j.ID]
	done := r == nil || r.started
	w.mu.Unlock()
	if done {
		return nil
	}
	m, err := metaOf(j)
	if err != nil {
		return err
	}
	if err := w.session.tell(ctx, mloc.TaskEvent{Type: mloc.EventStarted, TaskID: m.Message.TaskID, Payload: times(m.Message, t, false)}); err != nil {
		return err
	}
	w.mu.Lock()
	r.started = true
	w.mu.Unlock()
	return nil
}

// times is the payload of events of a task.
func times(m mloc.TaskMessage, t muster.Task, ended bool) mloc.Object {
	p := mloc.Object{"taskType": mloc.TaskType(m.Task)}
	if m.DispatchedAt != "" {
		p["dispatched_at"] = m.DispatchedAt
	}
	began := t.StartedAt
	if began == 0 {
		began = muster.NewTime(time.Now())
	}
	p["started_at"] = mloc.Stamp(began.Std())
	if ended {
		end := max(t.FinishedAt, began)
		p["runtime_sec"], p["finished_at"] = end.Sub(began).Seconds(), mloc.Stamp(end.Std())
	}
	return p
}

// Log is part of bridge.Port: the output of a task is written to its folder when it ended.
func (w *bridged) Log(context.Context, bridge.Job, []string) error { return nil }

// Finished is asked after a crash: whether the host has the final report.
func (w *bridged) Finished(ctx context.Context, j bridge.Job) (bool, error) {
	m, err := metaOf(j)
	if err != nil {
		return false, err
	}
	if w.standing(ctx, m.Message) != over {
		return false, nil
	}
	w.over(j.ID)
	w.session.tellStatus(ctx)
	return true, nil
}
