package bridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/wake"
)

// Config configures a Bridge.
type Config struct {
	Client           *client.Client
	Dir              string        // of this bridge alone; created if it is missing
	System           string        // such as "qubix": a part of idempotency keys, and the label dialect of jobs
	Origin           string        // the foreign server and this bridge's identity there: a part of idempotency keys
	Worker           string        // id or name of the only worker that runs the jobs and counts for Capacity; "" means the fleet
	ProgressInterval time.Duration // between reports of progress while the state does not change; 0 means 10 s
	RetryDelay       time.Duration // before the first retry, doubling up to a minute; 0 means 1 s
	LogDrainTimeout  time.Duration // without new lines of the log of a task that has ended; 0 means 30 s
	LogLimiter       *LogLimiter   // shared by the bridges that use one API key; nil means one of its own
	Metrics          Metrics       // shared by the bridges of one process; nil measures nothing
	Log              *slog.Logger
}

// Metrics counts what bridges do. Its methods are called concurrently and must not block.
type Metrics interface {
	// Accepted counts a job of the foreign server.
	Accepted()
	// Pending changes the number of jobs without a final report.
	Pending(more int)
	// Reported counts a final report that the foreign server accepted or permanently refused.
	Reported(accepted bool)
	// Retried counts a failed step that is repeated: submit, follow or report.
	Retried(step string)
}

type noMetrics struct{}

func (noMetrics) Accepted()      {}
func (noMetrics) Pending(int)    {}
func (noMetrics) Reported(bool)  {}
func (noMetrics) Retried(string) {}

// Job is one job of the foreign server.
type Job struct {
	ID        string          // in the foreign system
	Spec      muster.Spec     // for Accept only
	Meta      json.RawMessage // of the foreign system, kept until the final report is accepted; one JSON value or nil
	MusterJob muster.JobID    // 0 until the job is submitted
}

// Reporter sends reports to the foreign server. Its methods are called concurrently for different jobs; for one job Progress, Finish
// and LogReporter.Log do not overlap.
type Reporter interface {
	// Progress reports the state of a job. It is not retried. tasks are up to MaxReportedTasks of the job, by number.
	Progress(ctx context.Context, j Job, now muster.Job, tasks []muster.Task) error
	// Finish sends the final report. It is retried after an error other than Conflict, NotFound, Invalid and Forbidden, by which the
	// foreign server permanently refuses it.
	Finish(ctx context.Context, j Job, end FinalReport) error
}

// LogReporter is a Reporter that also sends the output of jobs.
type LogReporter interface {
	// Log sends new lines of the first task's output, without line ends and in order. After Unavailable it is retried until it succeeds,
	// and the final report waits for that. After another error it is retried a few times, but not after one by which the foreign
	// server refuses final reports; then the lines are dropped.
	Log(ctx context.Context, j Job, lines []string) error
}

// FinishChecker is a Reporter that can ask whether the foreign server has the final report of a job.
type FinishChecker interface {
	Finished(ctx context.Context, j Job) (bool, error)
}

// MaxReportedTasks is the maximum number of tasks of a job that a Reporter gets.
const MaxReportedTasks = 1000

// Bridge runs jobs of one foreign server on Muster. Its methods may be called concurrently.
type Bridge struct {
	cfg      Config
	reporter Reporter
	outbox   *outbox

	mu          sync.Mutex
	jobs        map[string]*job          // without a final report, by foreign id
	byMusterJob map[muster.JobID]*job    // those of jobs that are submitted
	closed      map[string]time.Time     // when the other jobs were closed, by foreign id
	accepting   map[string]chan struct{} // foreign ids that Accept writes now; closed afterwards
	queue       []*job                   // without a follower
	queueReady  chan struct{}            // a token if queue may have jobs
	pruneNeeded chan struct{}            // a token if closed has too many
}

type job struct {
	record                 // guarded by Bridge.mu; written to disk by Accept and then by the follower only
	failures int           // in a row
	wake     chan struct{} // a token if the job may have changed
}

// New opens the outbox in cfg.Dir. It is a Conflict if another process uses it. A caller that does not call Run closes the Bridge.
func New(cfg Config, reporter Reporter) (*Bridge, error) {
	cfg.ProgressInterval = cmp.Or(cfg.ProgressInterval, 10*time.Second)
	cfg.RetryDelay = cmp.Or(cfg.RetryDelay, time.Second)
	cfg.LogDrainTimeout = cmp.Or(cfg.LogDrainTimeout, 30*time.Second)
	out, err := openOutbox(cfg.Dir)
	if err != nil {
		return nil, err
	}
	records, err := out.load(time.Now())
	if err != nil {
		return nil, errors.Join(err, out.db.Close())
	}
	if cfg.LogLimiter == nil {
		cfg.LogLimiter = NewLogLimiter()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = noMetrics{}
	}
	b := &Bridge{
		cfg: cfg, reporter: reporter, outbox: out, queueReady: wake.New(), pruneNeeded: wake.New(),
		jobs: map[string]*job{}, byMusterJob: map[muster.JobID]*job{}, closed: map[string]time.Time{}, accepting: map[string]chan struct{}{},
	}
	for _, r := range records {
		b.track(r)
	}
	return b, nil
}

// Close closes the outbox. Run does so at its end.
func (b *Bridge) Close() error {
	b.cfg.Metrics.Pending(-b.Pending()) // the next Bridge in the directory counts them
	return b.outbox.db.Close()
}

// track adds a record to the maps. The caller holds mu, or is alone.
func (b *Bridge) track(r *record) {
	if r.isClosed() {
		b.closed[r.ID] = r.At.Std()
		return
	}
	j := &job{record: *r, wake: wake.New()}
	b.jobs[r.ID] = j
	b.cfg.Metrics.Pending(1)
	if r.Job != 0 {
		b.byMusterJob[r.Job] = j
	}
	b.queue = append(b.queue, j)
	wake.Set(b.queueReady)
}

// Accept accepts a job of the foreign server. When it returns true the job is on disk, and will be run and reported. It returns
// false for an id that was accepted before. Spec is submitted with the label dialect. The error is Unavailable if the disk
// or the bounded outbox is full.
func (b *Bridge) Accept(_ context.Context, j Job) (accepted bool, err error) {
	if j.ID == "" || len(j.ID) > maxForeignID {
		return false, muster.Errorf(muster.Invalid, "the job id has %d bytes, not 1 to %d", len(j.ID), maxForeignID)
	}
	spec := j.Spec
	spec.Labels = map[string]string{"dialect": b.cfg.System}
	maps.Copy(spec.Labels, j.Spec.Labels)
	if b.cfg.Worker != "" {
		spec.Tasks = slices.Clone(spec.Tasks)
		for i := range spec.Tasks {
			spec.Tasks[i].Where.Workers = []string{b.cfg.Worker}
		}
	}
	r, err := newRecord(&record{ID: j.ID, State: stateAccepted, At: muster.NewTime(time.Now()), Spec: &spec, Meta: j.Meta})
	if err != nil {
		return false, err
	}
	done, err := b.reserve(j.ID)
	if done == nil || err != nil {
		return false, err
	}
	err = b.outbox.put(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.accepting, j.ID)
	close(done)
	if err != nil {
		return false, err
	}
	b.track(r)
	b.cfg.Metrics.Accepted()
	return true, nil
}

// reserve returns a channel that its caller closes once the job is written, nil for a job that was accepted before. It waits for
// other calls with the same id.
func (b *Bridge) reserve(id string) (done chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.accepting[id] != nil {
		other := b.accepting[id]
		b.mu.Unlock()
		<-other
		b.mu.Lock()
	}
	if b.known(id) {
		return nil, nil
	}
	if n := len(b.jobs) + len(b.accepting); n >= maxOpenJobs {
		return nil, muster.Errorf(muster.Unavailable, "%d jobs wait for their final report: not accepting more", n)
	}
	done = make(chan struct{})
	b.accepting[id] = done
	return done, nil
}

// Known reports whether a job with this id was accepted, also if it has ended.
func (b *Bridge) Known(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known(id)
}

func (b *Bridge) known(id string) bool {
	_, closed := b.closed[id]
	return closed || b.jobs[id] != nil
}

// Jobs lists the jobs without a final report, by id.
func (b *Bridge) Jobs() []Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []Job
	for _, j := range b.jobs {
		list = append(list, j.job())
	}
	slices.SortFunc(list, func(x, y Job) int { return cmp.Compare(x.ID, y.ID) })
	return list
}

// Pending returns the number of jobs without a final report.
func (b *Bridge) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.jobs)
}

func (r *record) job() Job { return Job{ID: r.ID, Meta: r.Meta, MusterJob: r.Job} }

// Cancel cancels a job for the foreign server. Its end is reported like any other. The error is NotFound for an unknown job and
// Unavailable for one that is not submitted yet. Nothing happens to a job that has ended.
func (b *Bridge) Cancel(ctx context.Context, id string) error {
	b.mu.Lock()
	known := b.known(id)
	var r record
	if j := b.jobs[id]; j != nil {
		r = j.record
	}
	b.mu.Unlock()
	switch {
	case !known:
		return muster.Errorf(muster.NotFound, "unknown job %s", id)
	case r.State == stateAccepted:
		return muster.Errorf(muster.Unavailable, "job %s is not submitted yet: try again", id)
	case r.State != stateSubmitted:
		return nil
	}
	_, err := b.cfg.Client.Cancel(ctx, r.Job, nil)
	return err
}

// idempotencyKey returns the same key for each submission of a foreign job.
func (b *Bridge) idempotencyKey(id string) string {
	sum := sha256.Sum256([]byte(b.cfg.System + "\x00" + b.cfg.Origin + "\x00" + id))
	return "bridge-" + hex.EncodeToString(sum[:])
}

// Run submits, follows and reports jobs until ctx ends, and closes the outbox. The next Bridge in the directory reports the rest.
func (b *Bridge) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { b.watchEvents(ctx) })
	for ctx.Err() == nil {
		b.mu.Lock()
		list := b.queue
		b.queue = nil
		b.mu.Unlock()
		for _, j := range list {
			group.Go(func() { b.follow(ctx, j) })
		}
		select {
		case <-b.queueReady:
		case <-b.pruneNeeded:
			b.pruneClosed(time.Now())
		case <-ctx.Done():
		}
	}
	group.Wait()
	return b.Close()
}

// RunWith is Run beside serve: when one of them returns, the context of the other ends.
func (b *Bridge) RunWith(ctx context.Context, serve func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() error { return b.Run(ctx) })
	group.Go(func() error {
		defer cancel()
		return serve(ctx)
	})
	return group.Wait()
}

func (b *Bridge) pruneClosed(now time.Time) {
	b.mu.Lock()
	old := selectExpired(b.closed, now)
	b.mu.Unlock()
	if err := b.outbox.remove(old); err != nil {
		b.cfg.Log.Error("cannot remove old jobs from the outbox", slog.Any("error", err))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range old {
		delete(b.closed, id)
	}
}

// watchEvents wakes the followers of jobs whose state changes. Without events they poll.
func (b *Bridge) watchEvents(ctx context.Context) {
	types := []muster.EventType{muster.EventJob}
	for ctx.Err() == nil {
		for e, err := range b.cfg.Client.Events(ctx, client.EventQuery{Types: types}) {
			if err != nil {
				if ctx.Err() == nil {
					b.cfg.Log.Debug("event stream ended", slog.Any("error", err))
				}
				break
			}
			b.wakeFollowers(e.Job)
		}
		if backoff.Sleep(ctx, b.cfg.RetryDelay) != nil {
			return
		}
	}
}

// wakeFollowers wakes the follower of a job, or all of them for 0.
func (b *Bridge) wakeFollowers(id muster.JobID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id == 0 {
		for _, j := range b.jobs {
			wake.Set(j.wake)
		}
	} else if j := b.byMusterJob[id]; j != nil {
		wake.Set(j.wake)
	}
}

// Capacity sums up the workers that serve a bridge.
type Capacity struct {
	Workers   []muster.Worker // active ones
	Resources muster.Resources
	Free      muster.Resources // not used by tasks
	Kinds     []string         // that at least one worker runs
	Running   int              // tasks
	Load      *muster.Load     // CPU is a mean weighted by cores, Memory a sum; nil if no worker reports it
}

// Capacity returns the capacity of the fleet, or of Config.Worker.
func (b *Bridge) Capacity(ctx context.Context) (Capacity, error) {
	var all []muster.Worker
	var err error
	if b.cfg.Worker == "" {
		all, err = b.cfg.Client.Workers(ctx)
	} else {
		all = make([]muster.Worker, 1)
		all[0], err = b.cfg.Client.Worker(ctx, b.cfg.Worker)
	}
	if err != nil {
		return Capacity{}, err
	}
	return SumCapacity(all), nil
}

// SumCapacity returns the capacity of the active workers.
func SumCapacity(all []muster.Worker) Capacity {
	var c Capacity
	cores, load := 0.0, muster.Load{}
	for i := range all {
		w := &all[i]
		if w.State != muster.WorkerActive {
			continue
		}
		c.Workers = append(c.Workers, *w)
		addResources(&c.Resources, &w.Resources)
		if w.Free != nil && w.Constrained == "" {
			addResources(&c.Free, w.Free)
		}
		c.Running += w.Running
		for _, k := range w.Kinds {
			if !slices.Contains(c.Kinds, k) {
				c.Kinds = append(c.Kinds, k)
			}
		}
		if w.Load != nil {
			cores += w.Resources.CPUs
			load.CPU += w.Load.CPU * w.Resources.CPUs
			load.Memory += w.Load.Memory
			load.GPUs = append(load.GPUs, w.Load.GPUs...)
		}
	}
	if cores > 0 {
		load.CPU /= cores
		c.Load = &load
	}
	slices.Sort(c.Kinds)
	return c
}

func addResources(sum, r *muster.Resources) {
	sum.CPUs += r.CPUs
	sum.Memory += r.Memory
	sum.Disk += r.Disk
	sum.Slots += r.Slots
	sum.GPUs = append(sum.GPUs, r.GPUs...)
}
