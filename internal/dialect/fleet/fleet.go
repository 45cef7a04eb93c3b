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
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/wake"
)

// Config configures a Fleet.
type Config struct {
	Server         dialect.Server
	Dir            string // of this fleet alone; created if it is missing
	Log            *slog.Logger
	System         string        // such as "qubix": each worker has the tag dialect:qubix and the label dialect=qubix
	SilenceTimeout time.Duration // without a Touch, after which a worker is unreachable
	BusyTimeout    time.Duration // the same while the worker runs a started task; 0 means SilenceTimeout
	Lacks          []string      // features that no worker has: see muster.Worker
	Projects       []string      // of accepted tasks; nil means all. See dialect.Config.Projects
	Kinds          []string      // of accepted tasks; nil means all. See dialect.Config.Kinds
	Price          float64       // per hour, of workers without a price
	MaxWorkers     int           // 0 means 1000
	OwnKeys        bool          // the gateway also accepts other keys than Muster's: it checks key=required itself
}

// Facts describes a worker.
type Facts struct {
	ID        string            `json:"id"`             // unique in the foreign system
	Name      string            `json:"name,omitempty"` // for people; "" means ID
	Version   string            `json:"version,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Kinds     []string          `json:"kinds,omitempty"` // of Muster
	Price     float64           `json:"price,omitempty"` // per hour; 0 means Config.Price
	Resources muster.Resources  `json:"resources"`
	Lacks     []string          `json:"lacks,omitempty"` // beside Config.Lacks
	Remote    netip.Addr        `json:"remote,omitzero"` // for the rendezvous of gangs
	Key       string            `json:"key,omitempty"`   // id of the key with which it registered, "" for none: see Worker.canTakeOver
}

const (
	defaultMaxWorkers = 1000
	evictAfter        = 24 * time.Hour        // without contact, after which a worker may be evicted
	joinTimeout       = 20 * time.Second      // for a worker to join the server
	minSilenceCheck   = 10 * time.Millisecond // between two checks for silent workers
	maxSilenceCheck   = time.Second
	cacheBudget       = 2 << 30 // bytes of files for tasks, over all workers
)

// Fleet holds the workers of one gateway. Its methods may be called concurrently.
type Fleet struct {
	cfg     Config
	server  *url.URL
	log     *slog.Logger
	store   *store
	reports *agent.ReportStore
	logs    *tasklog.Dir
	blobs   *transfer.Client

	registerMu   sync.Mutex // serializes Register
	evicted      int        // workers since evictedSince; guarded by registerMu
	evictedSince time.Time  // guarded by registerMu

	mu       sync.Mutex
	workers  map[string]*Worker
	tasks    map[string]*Task        // that are not done
	finished map[string]finishedTask // that are done, until that is on disk
	loops    *sync.WaitGroup         // of the workers' loops; nil unless Run runs
	ctx      context.Context         //nolint:containedctx // of Run, for loops that start later

	writes *queue[diskWrite]
	acks   *queue[func()] // acknowledgements of reports
}

// diskWrite is a change that is written later.
type diskWrite struct {
	task   *Task   // that is done; nil for none
	worker *Worker // that changed; nil for none
}

// Open reads the state in cfg.Dir: workers and their tasks. It does not contact the server before Run. It is a Conflict if another
// process uses the directory.
func Open(cfg Config) (*Fleet, error) {
	cfg.BusyTimeout, cfg.MaxWorkers = cmp.Or(cfg.BusyTimeout, cfg.SilenceTimeout), cmp.Or(cfg.MaxWorkers, defaultMaxWorkers)
	server, err := url.Parse(cfg.Server.URL)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%q is not the URL of a server", muster.HideCredentials(cfg.Server.URL))
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, uploadsDir), 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot create the directory of foreign workers: %w", err)
	}
	f := &Fleet{
		cfg: cfg, server: server, log: cfg.Log, workers: map[string]*Worker{}, tasks: map[string]*Task{}, finished: map[string]finishedTask{},
		writes: newQueue[diskWrite](), acks: newQueue[func()](),
	}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fleet) open() error {
	var err error
	if f.reports, err = agent.OpenReportStore(f.cfg.Dir); err != nil { // locks the directory
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

// load recovers workers and tasks.
func (f *Fleet) load() error {
	onBad := func(id string, err error) {
		f.log.Error("cannot read a record of a foreign worker, ignoring it", slog.String("id", id), slog.Any("error", err))
	}
	err := forEach(f.store, bucketWorkers, func(id string, r *workerRecord) error {
		f.workers[id] = newWorker(f, r)
		return nil
	}, onBad)
	unowned := map[string]*taskRecord{} // of removed workers
	err = errors.Join(err, forEach(f.store, bucketTasks, func(id string, r *taskRecord) error {
		w := f.workers[r.Worker]
		if w == nil {
			unowned[id] = r
			return nil
		}
		t, err := restoreTask(w, id, r)
		if err == nil {
			w.tasks[id], f.tasks[id] = t, t
		}
		return err
	}, onBad))
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot read the state of foreign workers: %w", err)
	}
	return f.sweep(unowned)
}

func (f *Fleet) tasksDir() string { return filepath.Join(f.cfg.Dir, "tasks") }

// Close closes the state of a Fleet without Run.
func (f *Fleet) Close() error {
	var errs []error
	if f.logs != nil {
		errs = append(errs, f.logs.Close())
	}
	if f.store != nil {
		errs = append(errs, f.store.db.Close())
	}
	if f.reports != nil {
		errs = append(errs, f.reports.Close())
	}
	return errors.Join(errs...)
}

// Run maintains the sessions of all workers until ctx ends, and closes the state. The next Fleet in the directory continues their tasks.
func (f *Fleet) Run(ctx context.Context) error {
	f.openLogs()
	var loops sync.WaitGroup
	f.mu.Lock()
	f.loops, f.ctx = &loops, ctx
	for _, w := range f.workers {
		loops.Go(func() { w.loop(ctx) })
	}
	f.mu.Unlock()
	stopAcks := f.acks.start(func(list []func()) {
		for _, acknowledge := range list {
			acknowledge()
		}
	})
	stopWrites := f.writes.start(f.flush)
	f.watchSilence(ctx)
	f.mu.Lock()
	f.loops = nil
	f.mu.Unlock()
	loops.Wait()
	stopAcks() // they add writes
	stopWrites()
	return f.Close()
}

// openLogs finds the ends of the logs of recovered tasks.
func (f *Fleet) openLogs() {
	f.mu.Lock()
	list := slices.Collect(maps.Values(f.tasks))
	f.mu.Unlock()
	for _, t := range list {
		t.logMu.Lock()
		if _, err := t.openLog(); err != nil {
			f.log.Error("cannot read the log of a task", slog.String("attempt", t.run.Attempt.String()), slog.Any("error", err))
		}
		t.logMu.Unlock()
	}
}

func (f *Fleet) startWorker(w *Worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[w.id] = w
	if f.loops != nil {
		ctx := f.ctx
		f.loops.Go(func() { w.loop(ctx) })
	}
}

func (f *Fleet) watchSilence(ctx context.Context) {
	for backoff.Sleep(ctx, max(minSilenceCheck, min(f.cfg.SilenceTimeout/4, maxSilenceCheck))) == nil {
		for _, w := range f.Workers() {
			w.checkSilence(time.Now())
		}
	}
}

func (f *Fleet) flush(list []diskWrite) {
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
	runBatched(workers) // their orphans are on disk before the records of these tasks are removed
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

// queue collects items for one goroutine.
type queue[T any] struct {
	ready chan struct{} // a token if items is not empty

	mu    sync.Mutex
	items []T
}

func newQueue[T any]() *queue[T] { return &queue[T]{ready: wake.New()} }

func (q *queue[T]) add(item T) {
	q.mu.Lock()
	q.items = append(q.items, item)
	q.mu.Unlock()
	wake.Set(q.ready)
}

// start calls handle with the items that were added, until stop is called and none is left.
func (q *queue[T]) start(handle func([]T)) (stop func()) {
	end := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		for ended := false; !ended; {
			select {
			case <-q.ready:
			case <-end:
				ended = true
			}
			q.mu.Lock()
			items := q.items
			q.items = nil
			q.mu.Unlock()
			handle(items)
		}
	})
	return func() {
		close(end)
		loop.Wait()
	}
}

// Register adds a worker, or changes the facts of a known one and touches it; one that left returns. After a change of facts the worker
// has a new session and keeps its tasks. It is Forbidden if another key uses the id, Conflict if there are too many workers, and Invalid
// for facts that the server does not accept.
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
			w.remove("removed by an administrator")
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
	f.startWorker(w) //nolint:contextcheck // the loop ends with Run
	f.log.Info("foreign worker registered", slog.String("id", facts.ID), slog.String("name", facts.Name))
	return w, nil
}

// ensureCapacity evicts the worker that was unreachable for longest if there are MaxWorkers. One address may have three quarters of them.
// It evicts at most MaxWorkers in an hour, because each new worker leaves traces on the server.
func (f *Fleet) ensureCapacity(addr netip.Addr) error {
	all := f.Workers()
	sameAddr := 0
	for _, w := range all {
		if addr.IsValid() && w.Facts().Remote == addr && w.Err() == nil {
			sameAddr++
		}
	}
	if limit := f.cfg.MaxWorkers * 3 / 4; sameAddr > limit {
		return muster.Errorf(muster.Conflict, "too many workers from %[2]s: %[1]d", sameAddr, addr)
	}
	if len(all) < f.cfg.MaxWorkers {
		return nil
	}
	if now := time.Now(); now.Sub(f.evictedSince) > time.Hour {
		f.evictedSince, f.evicted = now, 0
	}
	if f.evicted >= f.cfg.MaxWorkers {
		return muster.Errorf(muster.Conflict, "too many new workers: %d were evicted within an hour", f.evicted)
	}
	var oldest *Worker
	for _, w := range all {
		if w.evictable() && (oldest == nil || w.LastSeen().Before(oldest.LastSeen())) {
			oldest = w
		}
	}
	if oldest == nil {
		return muster.Errorf(muster.Conflict, "too many workers: the gateway has %d", len(all))
	}
	f.evicted++
	oldest.remove("evicted for another worker")
	return nil
}

// Worker returns the worker with this id in its system, nil if it is unknown or was removed. It also returns one that left or was
// drained: see Worker.Err.
func (f *Fleet) Worker(id string) *Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers[id]
}

// Workers returns all workers, sorted by id.
func (f *Fleet) Workers() []*Worker {
	f.mu.Lock()
	list := slices.Collect(maps.Values(f.workers))
	f.mu.Unlock()
	slices.SortFunc(list, func(a, b *Worker) int { return cmp.Compare(a.id, b.id) })
	return list
}

// Task returns the task with this id, nil if it is unknown or done: see ReportLate.
func (f *Fleet) Task(id string) *Task {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tasks[id]
}

// ReportLate records that a worker sent a final report of a task that is done: the worker does not run it any more. It returns why the
// task is done, a Conflict with one of the Err… in its chain, or NotFound for an unknown task.
func (f *Fleet) ReportLate(id string) error {
	f.mu.Lock()
	p, ok := f.finished[id]
	f.mu.Unlock()
	if !ok {
		if p, ok = f.store.findFinished(id); !ok {
			return muster.Errorf(muster.NotFound, "unknown task %q", id)
		}
	}
	if w := f.Worker(p.Worker); w != nil {
		w.clearOrphan(id)
	}
	return doneError(p.Task, parseCause(p.Cause))
}
