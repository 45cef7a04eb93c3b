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
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
)

// Why a worker does not belong to the fleet.
const (
	awayLeft    = "it left"
	awayDrained = "it was drained"
)

// Worker is one foreign worker. Its methods may be called at the same time.
type Worker struct {
	fleet    *Fleet
	id       string
	log      *slog.Logger
	changed  chan struct{}
	wake     chan struct{} // has a token when a worker that is away comes back
	saving   sync.Mutex    // held while its record is written
	place    string        // the name of its folder, and of its part of the keep: one that joins again has another
	gone     chan struct{} // closed once it was removed
	goneOnce sync.Once

	mu      sync.Mutex
	facts   Facts
	away    string
	removed bool
	left    []*Task // that it held when it was removed
	seen    time.Time
	load    *muster.Load
	silent  bool
	tasks   map[string]*Task // that are not over
	strays  map[string]string
	limits  map[string]string
	key     string // its own, for transfers
	gate    *gate
	agent   *agent.Agent       // of the session that goes on; nil for none
	goodbye context.CancelFunc // ends that with a goodbye
	ended   chan struct{}      // closed when that has ended
}

func newWorker(f *Fleet, r *workerRecord) *Worker {
	return &Worker{
		place: cmp.Or(r.Place, newID()), gone: make(chan struct{}),
		fleet: f, id: r.Facts.ID, log: f.log.With(slog.String("foreign", r.Facts.ID)), changed: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		facts: r.Facts, away: r.Away, strays: maps.Clone(r.Strays), tasks: map[string]*Task{}, limits: map[string]string{}, silent: true,
	}
}

// check fills in and checks what a worker says of itself.
func (f *Fleet) check(facts *Facts) error {
	if facts.ID == "" {
		return muster.Errorf(muster.Invalid, "a worker needs an id")
	}
	facts.Name = cmp.Or(facts.Name, facts.ID)
	w := &Worker{fleet: f, facts: *facts}
	h := &link.Hello{Version: link.Version, Worker: muster.WorkerID("w"), Name: facts.Name, Build: w.build(), Tags: w.tags(), Labels: w.labels(), Kinds: facts.Kinds,
		Price: facts.Price, Resources: facts.Resources, Lacks: w.lacks(), Projects: f.cfg.Projects}
	if _, err := new(link.WorkerCodec).Encode(&link.ToServer{Hello: h}); err != nil {
		return muster.Errorf(muster.Invalid, "what the worker says of itself cannot be used: %w", err)
	}
	const mostID = 256
	if len(facts.ID) > mostID {
		return muster.Errorf(muster.Invalid, "the worker's id has %d bytes: the most is %d", len(facts.ID), mostID)
	}
	return nil
}

// equal compares what is kept of them on disk, which does not tell an empty list from none.
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
	slices.Sort(all)
	return slices.Compact(all)
}

// takes returns the kinds for which new tasks are taken. A noop is never given to anyone.
func (w *Worker) takes() []string {
	allowed := w.fleet.cfg.Kinds
	return slices.DeleteFunc(slices.Clone(w.facts.Kinds), func(kind string) bool {
		return kind == muster.KindNoop || allowed != nil && !slices.Contains(allowed, kind)
	})
}

func (w *Worker) folder() string { return filepath.Join(w.fleet.cfg.Dir, "workers", w.place) }

// EventID is the worker's id in its system.
func (w *Worker) ID() string { return w.id }

// Facts returns what it said of itself last.
func (w *Worker) Facts() Facts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.facts
}

// Err returns nil while the worker belongs to the fleet, else why not: it left, was drained, or was removed.
func (w *Worker) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away == "" {
		return nil
	}
	return muster.Errorf(muster.Conflict, "worker %s does not take part: %s", w.id, w.away)
}

// Seen is when it was last touched; zero if never since the server started.
func (w *Worker) Seen() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// Touch says that the worker was just heard of. load is what its machine does, nil if it did not say.
func (w *Worker) Touch(load *muster.Load) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = time.Now()
	if load != nil {
		w.load = load
	}
	if w.silent {
		w.silent = false
		if w.gate != nil {
			w.gate.set(true)
		}
	}
}

// look ends the session if the worker is silent.
func (w *Worker) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := w.fleet.cfg.Silence
	for _, t := range w.tasks {
		if t.Began() {
			limit = max(limit, w.fleet.cfg.Busy)
			break
		}
	}
	if w.silent || now.Sub(w.seen) <= limit {
		return
	}
	w.silent = true
	if w.gate != nil {
		w.log.Info("a foreign worker is silent", slog.Duration("for", now.Sub(w.seen).Round(time.Millisecond)))
		w.gate.set(false)
	}
}

// Idle says that the worker asked for work and runs nothing: if tasks that are over kept it, it is free.
func (w *Worker) Idle() {
	w.mu.Lock()
	n := len(w.strays)
	w.strays = nil
	w.constrainStrays()
	w.mu.Unlock()
	if n > 0 {
		w.fleet.later(chore{worker: w})
	}
}

// found says that the worker does not run a task that is over.
func (w *Worker) found(task string) {
	w.mu.Lock()
	_, was := w.strays[task]
	delete(w.strays, task)
	w.constrainStrays()
	w.mu.Unlock()
	if was {
		w.fleet.later(chore{worker: w})
	}
}

const sourceStrays = "still busy"

// constrainStrays has the worker take nothing while it may be busy with tasks that are over. The lock is held.
func (w *Worker) constrainStrays() {
	why := strings.Join(slices.Sorted(maps.Values(w.strays)), "; ")
	if why == "" {
		delete(w.limits, sourceStrays)
	} else {
		w.limits[sourceStrays] = why
	}
	if w.agent != nil {
		w.agent.Constrain(sourceStrays, why)
	}
}

// Constrain has the worker take nothing new, for the reason why of one of several sources; "" takes that source's word back.
func (w *Worker) Constrain(source, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limits[source] = why; why == "" {
		delete(w.limits, source)
	}
	if w.agent != nil {
		w.agent.Constrain(source, why)
	}
}

// Tasks returns what it holds and what is neither over nor finished: what did not begin first, and of each the oldest first.
func (w *Worker) Tasks() []*Task {
	w.mu.Lock()
	list := make([]*Task, 0, len(w.tasks))
	began := make(map[*Task]bool, len(w.tasks))
	for _, t := range w.tasks {
		if b, open := t.stage(); open {
			list, began[t] = append(list, t), b
		}
	}
	w.mu.Unlock()
	slices.SortFunc(list, func(a, b *Task) int {
		switch {
		case began[a] != began[b] && began[b]:
			return -1
		case began[a] != began[b]:
			return 1
		}
		return cmp.Or(a.offered.Compare(b.offered), cmp.Compare(a.id, b.id))
	})
	return list
}

// Changed has a token after Tasks changed. One goroutine waits for it, and looks at Tasks before it does.
func (w *Worker) Changed() <-chan struct{} { return w.changed }

// Leave hands back what the worker holds, and says goodbye to the server. It is known until it registers again.
func (w *Worker) Leave(ctx context.Context) error {
	w.mu.Lock()
	if w.away != "" {
		w.mu.Unlock()
		return nil
	}
	w.away = awayLeft
	w.strays = nil
	if w.gate != nil {
		w.gate.set(true) // the goodbye is to get through
	}
	goodbye, ended := w.goodbye, w.ended
	w.mu.Unlock()
	w.save()
	if goodbye == nil {
		return nil
	}
	goodbye()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return muster.Errorf(muster.Unavailable, "worker %s is still about to leave: %w", w.id, ctx.Err())
	}
}

// yields reports whether a registration with this key may have the worker's id: that with its own key, and each one once it has left.
// Another key gets it where none was needed so far, and where the worker is unreachable and holds nothing. The lock is held.
func (w *Worker) yields(key string) bool {
	if key == w.facts.Key || w.away != "" {
		return true
	}
	return key != "" && (w.facts.Key == "" || w.silent && len(w.tasks) == 0)
}

// update takes new facts of a known worker. With an error nothing has changed.
func (w *Worker) update(facts Facts) error {
	current, changed, err := w.enter(facts)
	if err != nil {
		return err
	}
	w.Touch(nil)
	if !changed {
		return nil
	}
	if current != nil {
		current.Detach() // and the loop begins again, with the new facts
	}
	token(w.wake)
	return nil
}

// enter writes new facts before they count. It returns the agent with the old ones, nil if there is none, and whether anything changed.
func (w *Worker) enter(facts Facts) (current *agent.Agent, changed bool, err error) {
	w.saving.Lock()
	defer w.saving.Unlock()
	w.mu.Lock()
	removed, yields, name := w.removed, w.yields(facts.Key), w.facts.Name
	same := w.away == "" && facts.equal(&w.facts)
	r := &workerRecord{Facts: facts, Place: w.place, Strays: maps.Clone(w.strays)}
	w.mu.Unlock()
	switch {
	case !yields:
		return nil, false, muster.Errorf(muster.Forbidden, "worker %s was registered with another key: it can be taken over once it has left, is unreachable and runs nothing, "+
			"or was removed with muster workers remove %s", facts.ID, name)
	case removed:
		return nil, false, muster.Errorf(muster.Unavailable, "worker %s is being removed", w.id)
	case same:
		return nil, false, nil
	}
	if err := w.fleet.state.putWorker(w.id, r); err != nil {
		return nil, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts, w.away = facts, ""
	return w.agent, true, nil
}

func (w *Worker) record() *workerRecord {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &workerRecord{Facts: w.facts, Place: w.place, Away: w.away, Strays: maps.Clone(w.strays)}
}

// save writes the worker's record soon after it changed. It is written again with the next change.
func (w *Worker) save() {
	if err := w.write(); err != nil && !w.isRemoved() {
		w.log.Error("a foreign worker cannot be written to disk", slog.Any("error", err))
	}
}

// write writes the worker's record, unless it was removed.
func (w *Worker) write() error {
	w.saving.Lock()
	defer w.saving.Unlock()
	if w.isRemoved() {
		return muster.Errorf(muster.Unavailable, "worker %s is being removed", w.id)
	}
	return w.fleet.state.putWorker(w.id, w.record())
}

func (w *Worker) isRemoved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removed
}

// dismissed reports whether an administrator removed the worker while it had no session, which would have ended then.
func (w *Worker) dismissed(ctx context.Context) bool {
	w.mu.Lock()
	connected := w.away == "" && !w.silent
	w.mu.Unlock()
	if connected {
		return false
	}
	id, ok, err := agent.LoadIdentity(w.folder())
	if err != nil || !ok {
		return false
	}
	c, err := w.fleet.cfg.Server.Client(id.Key)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	_, err = c.Whoami(ctx)
	return err != nil && unknown(err)
}

// unknown reports whether err says that the server does not take a worker's key any more.
func unknown(err error) bool {
	code := muster.CodeOf(err)
	return code == muster.Unauthenticated || code == muster.Forbidden
}

// forgettable reports whether the worker may make room for another one.
func (w *Worker) forgettable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tasks) == 0 && (w.away != "" || w.silent && time.Since(w.seen) > forgetAfter)
}

// join makes the worker known to the server.
func (w *Worker) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	if err := os.MkdirAll(w.folder(), 0o700); err != nil {
		return muster.Errorf(muster.Unavailable, "the worker's folder cannot be made: %w", err)
	}
	_, err := agent.Join(ctx, w.fleet.cfg.Server.HTTP, w.fleet.server, w.fleet.cfg.Server.Join, w.facts.Name, w.folder(), w.log)
	if err != nil && ctx.Err() != nil {
		return muster.Errorf(muster.Unavailable, "the server did not make the worker in time: %w", err)
	}
	return err
}

const (
	retryFirst = time.Second // after a session that could not be kept up
	retryMost  = 30 * time.Second
)

// loop keeps the worker's session up until ctx ends or the worker is removed.
func (w *Worker) loop(ctx context.Context) {
	defer w.clear(context.WithoutCancel(ctx))
	pause := retryFirst
	for ctx.Err() == nil {
		w.mu.Lock()
		away, removed := w.away != "", w.removed
		w.mu.Unlock()
		if removed {
			return
		}
		if away {
			select {
			case <-w.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := w.session(ctx)
		switch {
		case errors.Is(err, run.ErrDetach), errors.Is(err, errLeft):
			pause = retryFirst
		case err == nil:
			w.setAway(awayDrained)
		case unknown(err):
			w.drop("the server does not know it any more, or an administrator removed it")
			return
		default:
			w.log.Error("the session of a foreign worker failed; trying again", slog.Any("error", err))
			wait(ctx, pause)
			pause = min(2*pause, retryMost)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// setAway takes note that a worker does not belong to the fleet any more, unless something was noted already.
func (w *Worker) setAway(why string) {
	w.mu.Lock()
	if w.away == "" {
		w.away = why
	}
	w.mu.Unlock()
	w.save()
	token(w.changed)
}

// session runs one agent for the worker, from its facts, until ctx ends, they change or it leaves.
func (w *Worker) session(ctx context.Context) error {
	id, ok, err := agent.LoadIdentity(w.folder())
	if err != nil {
		return err
	}
	if !ok {
		return muster.Errorf(muster.Unauthenticated, "the worker has no identity")
	}
	keep, err := w.fleet.keep.ForWorker(w.place)
	if err != nil {
		return err
	}
	life, goodbye := context.WithCancel(context.WithoutCancel(ctx))
	defer goodbye()
	ended := make(chan struct{})
	w.mu.Lock()
	dial := &wslink.Dialer{Server: w.fleet.cfg.Server.URL, Key: id.Key, HTTP: w.fleet.cfg.Server.From(w.facts.Remote)}
	w.key, w.gate = id.Key, newGate(dial, !w.silent || w.began())
	if w.silent && w.began() { // it works, as far as is known, and may be silent for as long as that
		w.silent, w.seen = false, time.Now()
	}
	kinds := w.takes()
	a := agent.New(agent.Config{
		Identity: id, Name: w.facts.Name, Build: w.build(), Tags: w.tags(), Labels: w.labels(), Price: cmp.Or(w.facts.Price, w.fleet.cfg.Price),
		Resources: w.facts.Resources, Dir: w.folder(), Executors: w.executors(kinds), Kinds: kinds, Reports: keep, Lacks: w.lacks(), Projects: w.fleet.cfg.Projects,
		Supervisor: holder{w}, OnReportAcked: w.settled, RemoteTasks: true, Logs: w.fleet.logs, Dialer: w.gate, Load: w.latestLoad, Log: w.log,
	})
	w.constrainStrays()
	for source, why := range w.limits {
		a.Constrain(source, why)
	}
	w.agent, w.goodbye, w.ended = a, goodbye, ended
	left := w.away != ""
	w.mu.Unlock()
	if left {
		goodbye()
	}
	defer func() {
		w.mu.Lock()
		w.agent, w.goodbye, w.ended, w.gate = nil, nil, nil, nil
		w.mu.Unlock()
		close(ended)
	}()
	defer context.AfterFunc(ctx, a.Detach)()
	if err := a.Run(life); err != nil || life.Err() == nil {
		return err
	}
	return errLeft
}

// errLeft ends a session because the worker left.
var errLeft = errors.New("the worker has left")

// began reports whether the worker runs a task. The lock is held.
func (w *Worker) began() bool {
	for _, t := range w.tasks {
		if t.Began() {
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
