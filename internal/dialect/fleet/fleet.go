package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/transfer"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/wake"
)

// Config is what a Fleet is made of.
type Config struct {
	Server         dialect.Server
	Dir            string // of this fleet alone; made if it is not there
	Log            *slog.Logger
	System         string        // such as "qubix": each worker has the tag dialect:qubix and the label dialect=qubix
	SilenceTimeout time.Duration // without a Touch for so long a worker is unreachable
	BusyTimeout    time.Duration // the same while it runs a task that began; 0 means Silence
	Lacks          []string      // what none of its workers can carry out: see muster.Worker
	Projects       []string      // whose tasks are taken; nil means all. See dialect.Config.Projects
	Kinds          []string      // that are allowed; nil means all. See dialect.Config.Kinds
	Price          float64       // per hour, of workers that name none
	MaxWorkers     int           // workers; 0 means 1000
}

// Facts is what a worker says of itself.
type Facts struct {
	ID        string            `json:"id"`             // in its own system, and there unique
	Name      string            `json:"name,omitempty"` // shown to people; "" means EventID
	Version   string            `json:"version,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Kinds     []string          `json:"kinds,omitempty"` // of Muster, that it runs
	Price     float64           `json:"price,omitempty"` // per hour; 0 means Config.Price
	Resources muster.Resources  `json:"resources"`
	Lacks     []string          `json:"lacks,omitempty"` // beside Config.Lacks
	Remote    netip.Addr        `json:"remote,omitzero"` // where it is; members of gangs meet there
	Key       string            `json:"key,omitempty"`   // the id of the key with which it registered, "" for none. With another one its id can only be taken over while it is not used
}

const (
	defaultMaxWorkers = 1000
	evictAfter        = 24 * time.Hour        // a worker that is away makes room for another one
	joinTimeout       = 20 * time.Second      // for the server to make a new worker
	minSilenceCheck   = 10 * time.Millisecond // between two looks for silent workers
	maxSilenceCheck   = time.Second
	cacheBudget       = 2 << 30 // bytes of files for tasks, over all workers
)

// Fleet is all workers of one gateway. Its methods may be called at the same time.
type Fleet struct {
	cfg     Config
	server  *url.URL
	log     *slog.Logger
	store   *store
	reports *agent.ReportStore
	logs    *tasklog.Dir
	blobs   *transfer.Client

	registerMu   sync.Mutex // held while a worker is entered
	evicted      int        // workers that made room since evictedSince; guarded by registering
	evictedSince time.Time

	mu       sync.Mutex
	workers  map[string]*Worker
	tasks    map[string]*Task        // that are not over
	finished map[string]finishedTask // that are over, until that is on disk
	pending  []diskWrite
	acks     []reportAck
	loops    *sync.WaitGroup // of the workers' loops; nil unless Run runs
	ctx      context.Context //nolint:containedctx // of Run, for loops that begin later

	pendingReady chan struct{} // has a token if there are chores
	acksReady    chan struct{} // has a token if there are settlements
}

// diskWrite is what is to be put on disk after the fact.
type diskWrite struct {
	task   *Task   // that is over; nil for none
	worker *Worker // that changed; nil for none
}

// Open reads the state in cfg.Dir: workers, and the tasks that they hold. Nothing is said to the server before Run. It is a
// Conflict if another process has the folder.
func Open(cfg Config) (*Fleet, error) {
	cfg.BusyTimeout, cfg.MaxWorkers = cmp.Or(cfg.BusyTimeout, cfg.SilenceTimeout), cmp.Or(cfg.MaxWorkers, defaultMaxWorkers)
	server, err := url.Parse(cfg.Server.URL)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "the server's URL cannot be used: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, uploadsDir), 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the folder of foreign workers cannot be made: %w", err)
	}
	f := &Fleet{
		cfg: cfg, server: server, log: cfg.Log, workers: map[string]*Worker{}, tasks: map[string]*Task{}, finished: map[string]finishedTask{}, pendingReady: wake.New(),
		acksReady: wake.New(),
	}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fleet) open() error {
	var err error
	if f.reports, err = agent.OpenReportStore(f.cfg.Dir); err != nil { // the lock on the folder
		return err
	}
	if f.store, err = openStore(f.cfg.Dir); err != nil {
		return err
	}
	if f.logs, err = tasklog.OpenDir(filepath.Join(f.cfg.Dir, "logs")); err != nil {
		return err
	}
	f.blobs, err = transfer.New(transfer.Config{Server: f.server, HTTP: f.cfg.Server.HTTP, Dir: filepath.Join(f.cfg.Dir, "cache"), Budget: cacheBudget, Log: f.log})
	if err != nil {
		return err
	}
	return f.load()
}

// load takes up what an earlier Fleet left.
func (f *Fleet) load() error {
	onBad := func(id string, err error) {
		f.log.Error("a record of a foreign worker cannot be read and is left out", slog.String("id", id), slog.Any("error", err))
	}
	unowned := map[string]taskRecord{} // their workers are gone
	err := f.store.load(func(id string, r workerRecord) {
		f.workers[id] = newWorker(f, &r)
	}, func(id string, r taskRecord) {
		w := f.workers[r.Worker]
		if w == nil {
			unowned[id] = r
			return
		}
		t, err := restoreTask(w, id, &r)
		if err != nil {
			onBad(id, err)
			return
		}
		w.tasks[id], f.tasks[id] = t, t
	}, onBad)
	if err != nil {
		return muster.Errorf(muster.Internal, "the state of foreign workers cannot be read: %w", err)
	}
	return f.sweep(unowned)
}

func (f *Fleet) tasksDir() string { return filepath.Join(f.cfg.Dir, "tasks") }

// Close closes the state of a Fleet that is not run.
func (f *Fleet) Close() error {
	var errs []error
	if f.logs != nil {
		errs = append(errs, f.logs.Close())
	}
	if f.store != nil {
		errs = append(errs, f.store.close())
	}
	if f.reports != nil {
		errs = append(errs, f.reports.Close())
	}
	return errors.Join(errs...)
}

// Run keeps the sessions of all workers until ctx ends. Then it leaves their tasks to the next Fleet on the folder, and
// closes the state.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f.loadLogSizes(ctx)
	var loops, background sync.WaitGroup
	f.mu.Lock()
	f.loops, f.ctx = &loops, ctx
	for _, w := range f.workers {
		loops.Go(func() { w.loop(ctx) })
	}
	f.mu.Unlock()
	writeCtx, stopWrites := context.WithCancel(context.WithoutCancel(ctx))
	var ackGroup sync.WaitGroup
	ackCtx, stopAcks := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAcks()
	ackGroup.Go(func() { f.ackLoop(ackCtx) })
	background.Go(func() { f.writeLoop(writeCtx) })
	background.Go(func() { f.watchSilence(ctx) })
	<-ctx.Done()
	f.mu.Lock()
	f.loops = nil
	f.mu.Unlock()
	loops.Wait()
	stopAcks()
	ackGroup.Wait() // before what that leaves to do on disk is done
	stopWrites()
	background.Wait()
	return f.Close()
}

// loadLogSizes looks up how long the logs of the tasks are that were taken up.
func (f *Fleet) loadLogSizes(ctx context.Context) {
	f.mu.Lock()
	list := slices.Collect(maps.Values(f.tasks))
	f.mu.Unlock()
	for _, t := range list {
		t.logMu.Lock()
		if err := t.loadLogSize(ctx); err != nil {
			f.log.Error("the log of a task cannot be read", slog.String("attempt", t.run.Attempt.String()), slog.Any("error", err))
		}
		t.logMu.Unlock()
	}
}

// startWorker has a new worker's loop run.
func (f *Fleet) startWorker(w *Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[w.id] = w
	if f.loops != nil {
		ctx := f.ctx
		f.loops.Go(func() { w.loop(ctx) })
	}
}

// watchSilence ends the sessions of workers that are silent.
func (f *Fleet) watchSilence(ctx context.Context) {
	tick := time.NewTicker(max(minSilenceCheck, min(f.cfg.SilenceTimeout/4, maxSilenceCheck)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, w := range f.Workers() {
			w.checkSilence(time.Now())
		}
	}
}

// writeLoop puts on disk what is over, until ctx ends and nothing is left to do.
func (f *Fleet) writeLoop(ctx context.Context) {
	for done := false; !done; {
		select {
		case <-f.pendingReady:
		case <-ctx.Done():
			done = true
		}
		f.flush()
	}
}

func (f *Fleet) flush() {
	f.mu.Lock()
	list := f.pending
	f.pending = nil
	f.mu.Unlock()
	var workers, tasks []func()
	saved := map[*Worker]bool{}
	for _, c := range list {
		if c.worker != nil && !saved[c.worker] {
			saved[c.worker] = true
			workers = append(workers, c.worker.save)
		}
		if c.task != nil {
			tasks = append(tasks, c.task.cleanup)
		}
	}
	runBatched(workers) // their orphans, before the records of the tasks that these were
	runBatched(tasks)
}

// runBatched calls functions, some at a time, so that they share transactions.
func runBatched(list []func()) {
	for chunk := range slices.Chunk(list, 64) {
		var group sync.WaitGroup
		for _, f := range chunk {
			group.Go(f)
		}
		group.Wait()
	}
}

// enqueue puts something on disk soon.
func (f *Fleet) enqueue(c diskWrite) {
	f.mu.Lock()
	f.pending = append(f.pending, c)
	f.mu.Unlock()
	wake.Set(f.pendingReady)
}

// Register enters a worker, or changes the facts of a known one and touches it; one that had left comes back. A change of facts
// opens its session anew, and what it holds stays. It is Forbidden if another key registered the id and still uses it, Conflict if there are
// too many workers, and Invalid for facts that the server would not take.
func (f *Fleet) Register(ctx context.Context, facts Facts) (*Worker, error) {
	if err := f.validate(&facts); err != nil {
		return nil, err
	}
	f.registerMu.Lock()
	defer f.registerMu.Unlock()
	for {
		w := f.Worker(facts.ID)
		if w == nil {
			break
		}
		if !w.isRemoved() && w.removedByAdmin(ctx) {
			w.remove("an administrator removed it")
		}
		if !w.isRemoved() {
			return w, w.update(facts)
		}
		select {
		case <-w.removedCh:
		case <-ctx.Done():
			return nil, muster.Errorf(muster.Unavailable, "worker %s is still being removed", facts.ID)
		}
	}
	if err := f.ensureCapacity(facts.Remote); err != nil {
		return nil, err
	}
	w := newWorker(f, &workerRecord{Facts: facts})
	if err := w.joinServer(ctx); err != nil {
		return nil, err
	}
	if err := f.store.putWorker(w.id, w.record()); err != nil {
		return nil, err
	}
	w.Touch(nil)
	f.startWorker(w) //nolint:contextcheck // its loop lives as long as Run
	f.log.Info("a foreign worker registered", slog.String("id", facts.ID), slog.String("name", facts.Name))
	return w, nil
}

// ensureCapacity forgets a worker that was away for long if there are as many as there may be. Three quarters of them may be from
// one address, and in an hour no more are forgotten than there may be: each new one leaves something at the server.
func (f *Fleet) ensureCapacity(addr netip.Addr) error {
	all := f.Workers()
	sameAddr := 0
	for _, w := range all {
		if addr.IsValid() && w.Facts().Remote == addr && w.Err() == nil {
			sameAddr++
		}
	}
	if limit := f.cfg.MaxWorkers * 3 / 4; sameAddr > limit {
		return muster.Errorf(muster.Conflict, "there are %d workers from %s already, which is the most from one address", sameAddr, addr)
	}
	if len(all) < f.cfg.MaxWorkers {
		return nil
	}
	if now := time.Now(); now.Sub(f.evictedSince) > time.Hour {
		f.evictedSince, f.evicted = now, 0
	}
	if f.evicted >= f.cfg.MaxWorkers {
		return muster.Errorf(muster.Conflict, "%d workers made room for others within an hour, which is the most", f.evicted)
	}
	var oldest *Worker
	for _, w := range all {
		if w.evictable() && (oldest == nil || w.LastSeen().Before(oldest.LastSeen())) {
			oldest = w
		}
	}
	if oldest == nil {
		return muster.Errorf(muster.Conflict, "there are %d workers already, which is the most of a gateway", len(all))
	}
	f.evicted++
	oldest.remove("its place was needed")
	return nil
}

// Worker returns the worker with this id in its system, nil if it is unknown or was removed by an administrator. One that
// left or was drained is known: see Worker.Err.
func (f *Fleet) Worker(id string) *Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers[id]
}

// Workers returns all workers by id.
func (f *Fleet) Workers() []*Worker {
	f.mu.Lock()
	list := slices.Collect(maps.Values(f.workers))
	f.mu.Unlock()
	slices.SortFunc(list, func(a, b *Worker) int { return cmp.Compare(a.id, b.id) })
	return list
}

// Task returns the task with this id, nil if it is unknown or over: then Late says more.
func (f *Fleet) Task(id string) *Task {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tasks[id]
}

// ReportLate takes note that a worker sent a final report of a task that is over: whatever it did, it does not run the task any
// more. It returns why the task is over, a Conflict with one of the Err… in its chain, or NotFound if nobody remembers such a task.
func (f *Fleet) ReportLate(id string) error {
	f.mu.Lock()
	p, ok := f.finished[id]
	f.mu.Unlock()
	if !ok {
		if p, ok = f.store.findFinished(id); !ok {
			return muster.Errorf(muster.NotFound, "there is no task %q", id)
		}
	}
	if w := f.Worker(p.Worker); w != nil {
		w.clearOrphan(id)
	}
	return doneError(p.Task, parseCause(p.Cause))
}
