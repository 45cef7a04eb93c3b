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

// Config is what a Bridge is made of.
type Config struct {
	Client           *client.Client
	Dir              string            // of this bridge alone; made if it is not there
	System           string            // such as "qubix": a part of idempotency keys, and the label dialect of jobs
	Origin           string            // the foreign server and this bridge's identity there: a part of idempotency keys
	Project          string            // of jobs; "" leaves what their specs say
	Labels           map[string]string // of jobs, besides those of their specs
	Worker           string            // id or name of the only worker that runs the jobs and counts for Capacity; "" means the fleet
	ProgressInterval time.Duration     // between two reports of progress of a job whose state does not change; 0 means 10 s
	RetryDelay       time.Duration     // before the first repetition of a final report, doubling up to a minute; 0 means 1 s
	LogDrainTimeout  time.Duration     // how long the end of a log may take after its task's while nothing of it comes; 0 means 30 s
	LogLimiter       *LogLimiter       // shared by the bridges that use one API key; nil means some of its own
	Metrics          Metrics           // shared by the bridges of one process; nil measures nothing
	Log              *slog.Logger
}

// Metrics counts what bridges do. Its methods may be called at any time and return at once.
type Metrics interface {
	// Accepted counts a job of the foreign server.
	Accepted()
	// Pending counts jobs that are to be reported, or with a negative number those that were.
	Pending(more int)
	// Reported counts a final report that the foreign server accepted, or refused for good.
	Reported(accepted bool)
	// Retried counts a failed attempt that is repeated; step is submit, follow or report.
	Retried(step string)
}

// noMetrics is the Metrics of a Bridge that is given none.
type noMetrics struct{}

func (noMetrics) Accepted()      {}
func (noMetrics) Pending(int)    {}
func (noMetrics) Reported(bool)  {}
func (noMetrics) Retried(string) {}

// Job is one job of the foreign server.
type Job struct {
	ID        string          // in its own system
	Spec      muster.Spec     // what Muster runs; absent in what a Port is given
	Meta      json.RawMessage // the system's own, kept until the final report was taken; one JSON value or nil
	MusterJob muster.JobID    // once it was submitted
}

// Reporter is how a system's bridge speaks to the foreign server. Its methods may be called at the same time for different
// jobs; for one job Progress, Finish and Logger.Log do not overlap.
type Reporter interface {
	// Progress says how a job stands. It is not repeated: the next one replaces it. tasks are up to MaxReportedTasks of the job, by number.
	Progress(ctx context.Context, j Job, now muster.Job, tasks []muster.Task) error
	// Finish is the final report. After an error it is repeated, unless that is Conflict, NotFound, Invalid or Forbidden: then the
	// foreign server will never take it.
	Finish(ctx context.Context, j Job, end FinalReport) error
}

// LogReporter is a Port that takes the output of jobs.
type LogReporter interface {
	// Log brings new whole lines of the first task's output without their ends, in order. After Unavailable the same lines are brought
	// again until they are taken, and the final report waits for that. After another error they are brought some times more, and
	// not at all if it is one with which Finish is given up; then they are dropped.
	Log(ctx context.Context, j Job, lines []string) error
}

// FinishChecker is a Port that can ask whether the foreign server has the final report of a job already.
type FinishChecker interface {
	Finished(ctx context.Context, j Job) (bool, error)
}

// MaxReportedTasks is how many tasks of a job a Port is told of.
const MaxReportedTasks = 1000

// Bridge brings jobs of one foreign server to Muster. Its methods may be called at the same time.
type Bridge struct {
	cfg      Config
	reporter Reporter
	outbox   *outbox

	mu          sync.Mutex
	jobs        map[string]*job          // that are not finally reported, by foreign id
	byMusterJob map[muster.JobID]*job    // those of them that were submitted
	closed      map[string]time.Time     // when the others were, by foreign id
	accepting   map[string]chan struct{} // ids that are being written, closed when they were
	queue       []*job                   // to be followed
	queueReady  chan struct{}            // holds one token if there may be some
	pruneNeeded chan struct{}            // holds one token if too many closed jobs are remembered
}

// job is a record and who follows it.
type job struct {
	record                 // guarded by Bridge.mu; written to disk by the job's follower, and by Accept before there is one
	failures int           // of its follower in a row
	wake     chan struct{} // holds one token if something about it may have changed
}

// New opens the outbox in cfg.Dir. It is a Conflict if another process has it. Without Run the caller closes the Bridge.
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
		return nil, errors.Join(err, out.close())
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

// Close closes the outbox of a Bridge. Run does so at its end.
func (b *Bridge) Close() error {
	b.cfg.Metrics.Pending(-b.Pending()) // they are those of the next Bridge on the folder
	return b.outbox.close()
}

// track notes a record. The lock is held, or no other goroutine knows b.
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

// Accept takes a job of the foreign server. When it returns true the job is on disk, and will be run and reported. It returns
// false for an id that was taken before, whatever became of it. Spec is submitted with the labels of the bridge. It is
// Unavailable if the disk or the bounded outbox is full.
func (b *Bridge) Accept(_ context.Context, j Job) (accepted bool, err error) {
	if j.ID == "" || len(j.ID) > maxForeignID {
		return false, muster.Errorf(muster.Invalid, "the job's id has %d bytes: 1 to %d are possible", len(j.ID), maxForeignID)
	}
	spec := j.Spec
	spec.Labels = b.labels(j)
	spec.Project = cmp.Or(b.cfg.Project, spec.Project)
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

// reserve returns what its caller closes once the job is written, and nil for one that was taken before. It waits for another call
// that takes the same job.
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
		return nil, muster.Errorf(muster.Unavailable, "%d jobs wait for their final report: no more are taken", n)
	}
	done = make(chan struct{})
	b.accepting[id] = done
	return done, nil
}

// labels of a job: where it comes from, and what the bridge's owner says.
func (b *Bridge) labels(j Job) map[string]string {
	labels := map[string]string{"dialect": b.cfg.System}
	for _, src := range []map[string]string{j.Spec.Labels, b.cfg.Labels} {
		maps.Copy(labels, src)
	}
	return labels
}

// Known reports whether a job with this id was accepted, be it over or not.
func (b *Bridge) Known(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known(id)
}

func (b *Bridge) known(id string) bool {
	_, closed := b.closed[id]
	return closed || b.jobs[id] != nil
}

// Jobs lists the jobs that are not finally reported, by id.
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

// Pending is the number of jobs that are not finally reported.
func (b *Bridge) Pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.jobs)
}

func (r *record) job() Job { return Job{ID: r.ID, Meta: r.Meta, MusterJob: r.Job} }

// Cancel stops a job for the foreign server. Its end is reported as that of any other. It is NotFound for a job that is not known,
// and does nothing for one that ended.
func (b *Bridge) Cancel(ctx context.Context, id string) error {
	b.mu.Lock()
	known := b.known(id)
	r := record{State: stateReported}
	if j := b.jobs[id]; j != nil {
		r = j.record
	}
	b.mu.Unlock()
	switch {
	case !known:
		return muster.Errorf(muster.NotFound, "job %s is not known here", id)
	case r.State == stateAccepted:
		return muster.Errorf(muster.Unavailable, "job %s is being submitted: try again", id)
	case r.State != stateSubmitted:
		return nil
	}
	_, err := b.cfg.Client.Cancel(ctx, r.Job, nil)
	return err
}

// idempotencyKey names the submission of a foreign job for ever.
func (b *Bridge) idempotencyKey(id string) string {
	sum := sha256.Sum256([]byte(b.cfg.System + "\x00" + b.cfg.Origin + "\x00" + id))
	return "bridge-" + hex.EncodeToString(sum[:])
}

// Run follows jobs until ctx ends, and closes the outbox. What is not reported then is in the next Bridge on the folder.
func (b *Bridge) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		b.watchEvents(ctx)
		return nil
	})
	group.Go(func() error {
		for {
			b.mu.Lock()
			list := b.queue
			b.queue = nil
			b.mu.Unlock()
			for _, j := range list {
				group.Go(func() error {
					b.follow(ctx, j)
					return nil
				})
			}
			select {
			case <-b.queueReady:
			case <-b.pruneNeeded:
				b.pruneClosed(time.Now())
			case <-ctx.Done():
				return nil
			}
		}
	})
	return errors.Join(group.Wait(), b.Close())
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

// pruneClosed removes closed jobs that need not be remembered.
func (b *Bridge) pruneClosed(now time.Time) {
	b.mu.Lock()
	old := selectExpired(b.closed, now)
	b.mu.Unlock()
	if err := b.outbox.remove(old); err != nil {
		b.cfg.Log.Error("old jobs cannot be removed from the outbox", slog.Any("error", err))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range old {
		delete(b.closed, id)
	}
}

// watchEvents wakes the followers of jobs whose state changes. Where no event comes they look by themselves.
func (b *Bridge) watchEvents(ctx context.Context) {
	types := []muster.EventType{muster.EventJob}
	for ctx.Err() == nil {
		for e, err := range b.cfg.Client.Events(ctx, client.EventQuery{Types: types}) {
			if err != nil {
				if ctx.Err() == nil {
					b.cfg.Log.Debug("the events of the server ended", slog.Any("error", err))
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

// wakeFollowers wakes those of a job, or of all for 0.
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
