package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/wake"
)

// Why a worker is inactive.
const (
	reasonLeft    = "it left"
	reasonDrained = "it was drained"
)

// Worker is a foreign worker. Its methods may be called concurrently.
type Worker struct {
	fleet       *Fleet
	id          string
	log         *slog.Logger
	changed     chan struct{}
	wake        chan struct{} // a token if inactive or removed changed
	saveMu      sync.Mutex    // held while its record is written
	dirName     string        // of its directory and in the report store; a worker that joins again has another
	removedCh   chan struct{} // closed once it is removed
	removedOnce sync.Once

	mu            sync.Mutex
	facts         Facts
	inactive      string // why it is not part of the fleet; "" if it is
	removed       bool
	heldAtRemoval []*Task
	lastSeen      time.Time
	load          *muster.Load
	silent        bool
	tasks         map[string]*Task // that are not done
	orphans       map[string]string
	constraints   map[string]string
	credentials   *agent.Credentials // of the current session
	dialer        *switchDialer
	agent         *agent.Agent       // of the current session; nil for none
	leaveSession  context.CancelFunc // ends the session with a goodbye
	sessionEnded  chan struct{}      // closed when the session has ended
}

func newWorker(f *Fleet, r *workerRecord) *Worker {
	return &Worker{
		dirName: cmp.Or(r.Dir, dialect.NewUUID()), removedCh: make(chan struct{}),
		fleet: f, id: r.Facts.ID, log: f.log.With(slog.String("foreign", r.Facts.ID)), changed: wake.New(), wake: wake.New(),
		facts: r.Facts, inactive: r.Inactive, orphans: maps.Clone(r.Orphans), tasks: map[string]*Task{}, constraints: map[string]string{}, silent: true,
	}
}

// validate sets defaults in facts and checks them.
func (f *Fleet) validate(facts *Facts) error {
	if facts.ID == "" {
		return muster.Errorf(muster.Invalid, "a worker needs an id")
	}
	facts.Name = cmp.Or(facts.Name, facts.ID)
	w := &Worker{fleet: f, facts: *facts}
	h := &link.Hello{Version: link.Version, Worker: muster.WorkerID("w"), Name: facts.Name, Build: w.build(), Labels: w.labels(), Price: facts.Price,
		Offer: muster.Offer{Tags: w.tags(), Kinds: facts.Kinds, Resources: facts.Resources, Lacks: w.lacks(), Projects: f.cfg.Projects}}
	if _, err := new(link.WorkerCodec).Encode(&link.ToServer{Hello: h}); err != nil {
		return muster.Errorf(muster.Invalid, "invalid worker: %w", err)
	}
	const maxID = 256
	if len(facts.ID) > maxID {
		return muster.Errorf(muster.Invalid, "the worker id has %d bytes, more than %d", len(facts.ID), maxID)
	}
	return nil
}

// equal compares facts as they are on disk, where an empty list equals none.
func (f *Facts) equal(other *Facts) bool {
	a, errA := json.Marshal(f)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

func (w *Worker) build() string { return w.fleet.cfg.System + " " + cmp.Or(w.facts.Version, "worker") }

func (w *Worker) tags() []string {
	tag := "dialect:" + w.fleet.cfg.System
	return append([]string{tag}, slices.DeleteFunc(slices.Clone(w.facts.Tags), func(t string) bool { return t == tag })...)
}

func (w *Worker) labels() map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, w.facts.Labels)
	labels["dialect"] = w.fleet.cfg.System
	return labels
}

func (w *Worker) lacks() []string {
	all := append(slices.Clone(w.fleet.cfg.Lacks), w.facts.Lacks...)
	all = append(all, muster.FeatureExec, muster.FeatureStdin, muster.FeatureSecrets) // no foreign protocol has them
	slices.Sort(all)
	return slices.Compact(all)
}

// acceptedKinds returns the kinds of new tasks. noop is never among them.
func (w *Worker) acceptedKinds() []string {
	allowed := w.fleet.cfg.Kinds
	return slices.DeleteFunc(slices.Clone(w.facts.Kinds), func(kind string) bool {
		return kind == muster.KindNoop || allowed != nil && !slices.Contains(allowed, kind)
	})
}

func (w *Worker) dir() string { return filepath.Join(w.fleet.cfg.Dir, "workers", w.dirName) }

// ID returns the worker's id in its system.
func (w *Worker) ID() string { return w.id }

// Facts returns the facts of the last registration.
func (w *Worker) Facts() Facts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.facts
}

// Err returns nil while the worker is part of the fleet, and a Conflict once it left, was drained or was removed.
func (w *Worker) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inactive == "" {
		return nil
	}
	return muster.Errorf(muster.Conflict, "worker %s is inactive: %s", w.id, w.inactive)
}

// LastSeen returns the time of the last Touch since the server started, zero for none.
func (w *Worker) LastSeen() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastSeen
}

// Touch records a sign of life of the worker. load is nil if the worker did not report it.
func (w *Worker) Touch(load *muster.Load) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastSeen = time.Now()
	if load != nil {
		w.load = load
	}
	if w.silent {
		w.silent = false
		if w.dialer != nil {
			w.dialer.setOpen(true)
		}
	}
}

// checkSilence cuts the session if there was no Touch for too long.
func (w *Worker) checkSilence(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := w.fleet.cfg.SilenceTimeout
	if w.runsTask() {
		limit = max(limit, w.fleet.cfg.BusyTimeout)
	}
	if w.silent || now.Sub(w.lastSeen) <= limit {
		return
	}
	w.silent = true
	if w.dialer != nil {
		w.log.Info("foreign worker unreachable", slog.Duration("for", now.Sub(w.lastSeen).Round(time.Millisecond)))
		w.dialer.setOpen(false)
	}
}

// MarkIdle records that the worker runs nothing. It has no orphans then.
func (w *Worker) MarkIdle() {
	w.mu.Lock()
	n := len(w.orphans)
	w.orphans = nil
	w.constrainOrphans()
	w.mu.Unlock()
	if n > 0 {
		w.fleet.writes.add(diskWrite{worker: w})
	}
}

func (w *Worker) clearOrphan(task string) {
	w.mu.Lock()
	_, known := w.orphans[task]
	delete(w.orphans, task)
	w.constrainOrphans()
	w.mu.Unlock()
	if known {
		w.fleet.writes.add(diskWrite{worker: w})
	}
}

const sourceOrphans = "still busy"

// constrainOrphans constrains the worker while it has orphans. The caller holds mu.
func (w *Worker) constrainOrphans() {
	w.constrain(sourceOrphans, strings.Join(slices.Sorted(maps.Values(w.orphans)), "; "))
}

// Constrain stops the worker from accepting new tasks, with a reason of one of several sources. "" removes the reason of the source.
func (w *Worker) Constrain(source, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.constrain(source, reason)
}

// constrain is Constrain with mu held.
func (w *Worker) constrain(source, reason string) {
	if w.constraints[source] = reason; reason == "" {
		delete(w.constraints, source)
	}
	if w.agent != nil {
		w.agent.Constrain(source, reason)
	}
}

// Tasks returns the tasks without a report: those that have not started first, then by age, oldest first.
func (w *Worker) Tasks() []*Task {
	w.mu.Lock()
	var waiting, started []*Task
	for _, t := range w.tasks {
		switch isStarted, open := t.status(); {
		case !open:
		case isStarted:
			started = append(started, t)
		default:
			waiting = append(waiting, t)
		}
	}
	w.mu.Unlock()
	byAge := func(a, b *Task) int { return cmp.Or(a.offeredAt.Compare(b.offeredAt), cmp.Compare(a.id, b.id)) }
	slices.SortFunc(waiting, byAge)
	slices.SortFunc(started, byAge)
	return append(waiting, started...)
}

// Changed returns a channel that has a token after Tasks changed. One goroutine receives from it.
func (w *Worker) Changed() <-chan struct{} { return w.changed }

// Leave requeues the worker's tasks and ends its session with a goodbye. The worker is inactive until it registers again.
func (w *Worker) Leave(ctx context.Context) error {
	w.mu.Lock()
	if w.inactive != "" {
		w.mu.Unlock()
		return nil
	}
	w.inactive = reasonLeft
	w.orphans = nil
	if w.dialer != nil {
		w.dialer.setOpen(true) // for the goodbye
	}
	leave, ended := w.leaveSession, w.sessionEnded
	w.mu.Unlock()
	w.save()
	if leave == nil {
		return nil
	}
	leave()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return muster.Errorf(muster.Unavailable, "worker %s is still leaving: %w", w.id, ctx.Err())
	}
}

// canTakeOver reports whether a registration with this key may use the worker's id: with the worker's own key, or if the worker is inactive.
// Another key may if the worker has none, or is unreachable without tasks. The caller holds mu.
func (w *Worker) canTakeOver(key string) bool {
	if key == w.facts.Key || w.inactive != "" {
		return true
	}
	return key != "" && (w.facts.Key == "" || w.silent && len(w.tasks) == 0)
}

// update changes the facts of a known worker. After an error nothing has changed.
func (w *Worker) update(facts Facts) error {
	current, changed, err := w.saveFacts(facts)
	if err != nil {
		return err
	}
	w.Touch(nil)
	if !changed {
		return nil
	}
	if current != nil {
		current.Detach() // the loop starts a session with the new facts
	}
	wake.Set(w.wake)
	return nil
}

// saveFacts writes new facts to disk and then changes them. It returns the agent with the old facts, nil for none, and whether they changed.
func (w *Worker) saveFacts(facts Facts) (current *agent.Agent, changed bool, err error) {
	w.saveMu.Lock()
	defer w.saveMu.Unlock()
	w.mu.Lock()
	removed, allowed, name := w.removed, w.canTakeOver(facts.Key), w.facts.Name
	same := w.inactive == "" && facts.equal(&w.facts)
	r := &workerRecord{Facts: facts, Dir: w.dirName, Orphans: maps.Clone(w.orphans)}
	w.mu.Unlock()
	switch {
	case !allowed:
		return nil, false, muster.Errorf(muster.Forbidden, "worker %s was registered with another key: wait until it has left or is unreachable and idle, "+
			"or run muster workers remove %s", facts.ID, name)
	case removed:
		return nil, false, muster.Errorf(muster.Unavailable, "worker %s is being removed", w.id)
	case same:
		return nil, false, nil
	}
	if err := w.fleet.store.putWorker(w.id, r); err != nil {
		return nil, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts, w.inactive = facts, ""
	return w.agent, true, nil
}

func (w *Worker) record() *workerRecord {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &workerRecord{Facts: w.facts, Dir: w.dirName, Inactive: w.inactive, Orphans: maps.Clone(w.orphans)}
}

// save writes the worker's record unless the worker was removed. After an error the next change writes it again.
func (w *Worker) save() {
	w.saveMu.Lock()
	defer w.saveMu.Unlock()
	if w.isRemoved() {
		return
	}
	if err := w.fleet.store.putWorker(w.id, w.record()); err != nil {
		w.log.Error("cannot write a foreign worker to disk", slog.Any("error", err))
	}
}

func (w *Worker) isRemoved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removed
}

// removedByAdmin reports whether an administrator removed a worker without a session.
func (w *Worker) removedByAdmin(ctx context.Context) bool {
	w.mu.Lock()
	connected := w.inactive == "" && !w.silent
	w.mu.Unlock()
	if connected {
		return false
	}
	id, ok, err := agent.LoadIdentity(w.dir())
	if err != nil || !ok {
		return false
	}
	current, err := agent.NewCredentials(id, w.fleet.server, w.fleet.cfg.Server.HTTP, w.dir(), w.log).Current(ctx)
	if err != nil {
		return keyRejected(err)
	}
	c, err := w.fleet.cfg.Server.Client(current.Token)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	_, err = c.Whoami(ctx)
	return err != nil && keyRejected(err)
}

func keyRejected(err error) bool {
	code := muster.CodeOf(err)
	return code == muster.Unauthenticated || code == muster.Forbidden
}

func (w *Worker) evictable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tasks) == 0 && (w.inactive != "" || w.silent && time.Since(w.lastSeen) > evictAfter)
}

func (w *Worker) joinServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if err := os.MkdirAll(w.dir(), 0o700); err != nil {
		return muster.Errorf(muster.Unavailable, "cannot create the worker's directory: %w", err)
	}
	_, err := agent.Join(ctx, w.fleet.cfg.Server.HTTP, w.fleet.server, w.fleet.cfg.Server.JoinToken, agent.Registration{Name: w.facts.Name}, w.dir(), w.log)
	if err != nil && ctx.Err() != nil {
		return muster.Errorf(muster.Unavailable, "the worker did not join the server in time: %w", err)
	}
	return err
}

const (
	minRetryDelay = time.Second // after a session failed
	maxRetryDelay = 30 * time.Second
)

// loop maintains the worker's session until ctx ends or the worker is removed.
func (w *Worker) loop(ctx context.Context) {
	defer w.removeFiles(context.WithoutCancel(ctx))
	pause := minRetryDelay
	for ctx.Err() == nil {
		w.mu.Lock()
		inactive, removed := w.inactive != "", w.removed
		w.mu.Unlock()
		if removed {
			return
		}
		if inactive {
			_ = wake.Wait(ctx, w.wake, time.Hour)
			continue
		}
		err := w.runSession(ctx)
		switch {
		case errors.Is(err, run.ErrDetach), errors.Is(err, errLeft):
			pause = minRetryDelay
		case err == nil:
			w.deactivate(reasonDrained)
		case keyRejected(err):
			w.remove("rejected by the server, or removed by an administrator")
			return
		default:
			w.log.Error("session of a foreign worker failed, retrying", slog.Any("error", err))
			_ = backoff.Sleep(ctx, pause)
			pause = min(2*pause, maxRetryDelay)
		}
	}
}

func (w *Worker) deactivate(reason string) {
	w.mu.Lock()
	w.inactive = cmp.Or(w.inactive, reason)
	w.mu.Unlock()
	w.save()
	wake.Set(w.changed)
}

// runSession runs an agent with the worker's facts until ctx ends, the facts change or the worker leaves.
func (w *Worker) runSession(ctx context.Context) error {
	id, ok, err := agent.LoadIdentity(w.dir())
	if err != nil {
		return err
	}
	if !ok {
		return muster.Errorf(muster.Unauthenticated, "the worker has no identity")
	}
	reports, err := w.fleet.reports.ForWorker(w.dirName)
	if err != nil {
		return err
	}
	sessionCtx, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	ended := make(chan struct{})
	w.mu.Lock()
	from := w.fleet.cfg.Server.HTTPFrom(w.facts.Remote)
	w.credentials = agent.NewCredentials(id, w.fleet.server, from, w.dir(), w.log)
	dial := &wslink.Dialer{Server: w.fleet.cfg.Server.URL, Credentials: w.credentials, HTTP: from}
	w.dialer = &switchDialer{inner: dial, opened: make(chan struct{})}
	w.dialer.setOpen(!w.silent || w.runsTask())
	if w.silent && w.runsTask() { // BusyTimeout starts now
		w.silent, w.lastSeen = false, time.Now()
	}
	kinds := w.acceptedKinds()
	a := agent.New(agent.Config{
		Identity: id, Name: w.facts.Name, Build: w.build(), Tags: w.tags(), Labels: w.labels(), Price: cmp.Or(w.facts.Price, w.fleet.cfg.Price),
		Resources: w.facts.Resources, Dir: w.dir(), Executors: w.executors(kinds), Kinds: kinds, Reports: reports, Lacks: w.lacks(), Projects: w.fleet.cfg.Projects,
		Supervisor: supervisor{w}, OnReportAcked: w.onReportAck, RemoteTasks: true, Logs: w.fleet.logs, Dialer: w.dialer, Load: w.latestLoad, Log: w.log,
	})
	w.constrainOrphans()
	for source, reason := range w.constraints {
		a.Constrain(source, reason)
	}
	w.agent, w.leaveSession, w.sessionEnded = a, leave, ended
	inactive := w.inactive != ""
	w.mu.Unlock()
	if inactive {
		leave()
	}
	defer func() {
		w.mu.Lock()
		w.agent, w.leaveSession, w.sessionEnded, w.dialer = nil, nil, nil, nil
		w.mu.Unlock()
		close(ended)
	}()
	defer context.AfterFunc(ctx, a.Detach)()
	if err := a.Run(sessionCtx); err != nil || sessionCtx.Err() == nil {
		return err
	}
	return errLeft
}

var errLeft = errors.New("the worker has left")

// runsTask reports whether the worker runs a task. The caller holds mu.
func (w *Worker) runsTask() bool {
	for _, t := range w.tasks {
		if t.Started() {
			return true
		}
	}
	return false
}

func (w *Worker) latestLoad(context.Context) *muster.Load {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.load
}
