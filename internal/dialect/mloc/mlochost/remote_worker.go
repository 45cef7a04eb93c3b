package mlochost

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

// remoteWorker is a worker of MLOC. Its fields belong to its goroutine, which run is, but for those that say otherwise.
type remoteWorker struct {
	g      *Gateway
	id     string
	events chan workerNews // what it said
	looked chan struct{}   // last is a new look at it
	wake   chan struct{}   // whether it is disabled may have changed

	last      workerSnapshot // the last look at it; under Gateway.mu, as the next two
	idleSince time.Time      // since when it is
	toggledAt time.Time      // when it was enabled or disabled last
	load      atomic.Pointer[muster.Load]
	worker    atomic.Pointer[fleet.Worker] // nil until it is registered

	raw             map[string]string // its hash as it was last whole
	hash            mloc.WorkerHash   // the same, read
	alive           bool
	registeredFacts string    // as they were registered
	lastTask        [2]string // the last task that is over: its id on the wire, and in the fleet
	refusedReason   string    // why it was not registered, as it was last logged
	disabled        bool      // reported to the fleet
	unresponsive    bool      // reported to the fleet as unresponsive
	current         *dispatch
	nextStep        time.Time // when there is something to do without news
	mismatchSince   time.Time // since when its hash does not fit to what it should do
}

// workerNews is one event of a worker: one of both is set.
type workerNews struct {
	task   *mloc.TaskEvent
	worker *mloc.WorkerEvent
}

// dispatch is a task that a worker was given, or is about to be.
type dispatch struct {
	worker     *remoteWorker
	task       *fleet.Task
	id         string // as the worker knows it
	fromClient bool   // a client of MLOC submitted it: id is that of the ledger
	doc        mloc.Document

	started      bool
	publishCount int
	publishedAt  time.Time // of the last time
}

// run serves the worker until the gateway ends, or the worker is removed.
func (p *remoteWorker) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var changed, over <-chan struct{}
		if w := p.worker.Load(); w != nil {
			changed = w.Changed()
		}
		if p.current != nil {
			over = p.current.task.Done()
		}
		p.nextStep = time.Now().Add(p.g.intervals.sweep)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-p.events:
			p.handleNews(ctx, n)
		case <-p.looked:
			p.g.mu.Lock()
			s := p.last
			p.g.mu.Unlock()
			p.applySnapshot(ctx, s)
			if p.removeIfGone(s) {
				return nil
			}
		case <-changed:
		case <-over:
		case <-p.wake:
		case <-timer.C:
		}
		p.step(ctx)
		timer.Reset(max(time.Until(p.nextStep), time.Millisecond))
	}
}

// removeIfGone removes a worker that has no data in Redis and was never registered, or left.
func (p *remoteWorker) removeIfGone(s workerSnapshot) bool {
	if p.worker.Load() != nil || p.current != nil || s.err == nil || s.alive {
		return false
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if len(p.events) > 0 {
		return false
	}
	delete(p.g.remoteWorkers, p.id)
	return true
}

// scheduleStep has step called again after d at the latest.
func (p *remoteWorker) scheduleStep(d time.Duration) {
	if at := time.Now().Add(d); at.Before(p.nextStep) {
		p.nextStep = at
	}
}

func (p *remoteWorker) refresh(ctx context.Context) bool {
	snapshots, err := p.g.readWorkers(ctx, []string{p.id})
	if err != nil {
		return false
	}
	p.g.mu.Lock()
	p.last = snapshots[0]
	p.g.mu.Unlock()
	p.applySnapshot(ctx, snapshots[0])
	return snapshots[0].err == nil
}

// applySnapshot takes in what Redis has of the worker.
func (p *remoteWorker) applySnapshot(ctx context.Context, s workerSnapshot) {
	p.alive = s.alive && s.err == nil
	if s.err != nil {
		if s.alive && p.raw != nil && muster.CodeOf(s.err) == muster.NotFound {
			p.restore(ctx)
		}
		return
	}
	p.raw, p.hash = s.raw, s.hash
	if !s.alive {
		return
	}
	p.register(ctx)
	p.reconcile(ctx)
	if w := p.worker.Load(); w != nil && p.current == nil && p.hash.Status == mloc.StatusIdle {
		w.MarkIdle()
	}
}

// restore puts a worker back into a database that was emptied: genuine workers never register again. What it says of itself was
// remembered, and that it lives its heartbeat has just shown.
func (p *remoteWorker) restore(ctx context.Context) {
	values := maps.Clone(p.raw)
	delete(values, "last_seen") // its heartbeat has just written it
	values["status"] = mloc.StatusIdle
	if p.current != nil && p.current.started {
		values["status"] = mloc.StatusRunning
	}
	_, err := p.g.control.TxPipelined(ctx, func(r redis.Pipeliner) error {
		r.SAdd(ctx, mloc.KeyWorkers, p.id)
		for k, v := range values {
			r.HSetNX(ctx, mloc.WorkerKey(p.id), k, v)
		}
		return nil
	})
	if err != nil {
		p.g.log.Warn("MLOC: a worker cannot be put back into Redis", slog.String("worker", p.id), slog.Any("why", err))
		return
	}
	p.g.metrics.count(&p.g.metrics.counters.Restored, 1)
	p.g.log.Info("MLOC: a worker is put back into Redis, which was emptied", slog.String("worker", p.id))
}

// register makes the worker one of the server's, or tells what has changed of it.
func (p *remoteWorker) register(ctx context.Context) {
	f := newFacts(p.hash, p.g.settings.merge)
	facts := mloc.EncodeString(f)
	if w := p.worker.Load(); w != nil && facts == p.registeredFacts {
		return
	}
	w, err := p.g.Fleet.Register(ctx, f)
	if err != nil {
		if reason := err.Error(); reason != p.refusedReason {
			p.refusedReason = reason
			p.g.log.Warn("MLOC: worker refused", slog.String("worker", p.id), slog.Any("why", err))
		}
		return
	}
	p.worker.Store(w)
	p.registeredFacts, p.refusedReason = facts, ""
	w.Touch(p.load.Load())
}

const (
	maxGPUs   = 64 // devices of a worker that are believed
	maxCached = 32 // models and data sets of a worker that are noted
)

// newFacts returns what a worker joins the server with. What it says of its hardware is believed within bounds.
func newFacts(h mloc.WorkerHash, merges bool) fleet.Facts {
	f := fleet.Facts{ID: h.WorkerID, Name: mloc.Truncate(h.WorkerID, muster.MaxNameSize), Price: h.CostPerHour, Labels: map[string]string{"mloc.worker": mloc.Truncate(h.WorkerID, mloc.MaxID)}}
	for _, tag := range h.Tags {
		if tag = strings.TrimSpace(tag); tag != "" && len(tag) <= muster.MaxNameSize && len(f.Tags) < 32 {
			f.Tags = append(f.Tags, tag)
		}
	}
	if merges && mergesTasks(h) {
		f.Tags = append(f.Tags, tagMerges)
	}
	f.Resources = muster.Resources{MaxTasks: 1, Slots: 1, CPUs: float64(max(1, min(h.Hardware.CPU.LogicalCores, 4096)))}
	f.Resources.Memory = muster.Size(max(0, min(h.Hardware.Memory.TotalBytes, 1<<50)))
	seen := map[string]bool{}
	for i, d := range h.Hardware.GPU.GPUs {
		if i == maxGPUs {
			break
		}
		uuid := mloc.Truncate(d.UUID, 100)
		if uuid == "" || seen[uuid] {
			uuid = "mloc-" + strconv.Itoa(i)
		}
		seen[uuid] = true
		f.Resources.GPUs = append(f.Resources.GPUs, muster.GPU{UUID: uuid, Index: i, Vendor: "nvidia", Name: mloc.Truncate(d.Name, 100), Memory: muster.Size(max(0, min(d.Memory, 1<<45)))})
	}
	f.Kinds = []string{"echo", "inference", "sft", "lora_sft", mloc.KindForeign}
	if len(f.Resources.GPUs) > 0 {
		f.Kinds = append(f.Kinds, "ppo", "dpo") // genuine workers have them only with CUDA
	}
	f.Remote, _ = netip.ParseAddr(h.Hardware.Network.IP)
	if b := h.Hardware.Network.Bandwidth; b != nil && *b > 0 {
		f.Labels["bandwidth_bytes_per_sec"] = mloc.FormatPythonFloat(*b)
	}
	return f
}

func (p *remoteWorker) handleNews(ctx context.Context, n workerNews) {
	if w := p.worker.Load(); w != nil {
		w.Touch(p.load.Load())
	}
	if n.task != nil {
		p.handleTaskEvent(ctx, n.task)
		return
	}
	switch e := n.worker; e.Type {
	case mloc.EventUnregister:
		p.leave(ctx)
	case mloc.EventHeartbeat:
		p.load.Store(parseLoad(e.Metrics, p.hash))
	default:
		if p.unresponsive {
			p.unresponsive = false
			if w := p.worker.Load(); w != nil {
				w.Constrain("deaf", "")
			}
		}
		startedAt := p.hash.StartedAt
		if e.Type == mloc.EventRegister {
			p.registeredFacts = "" // it comes back, even if it was drained
		}
		p.refresh(ctx)
		if p.g.settings.merge && p.hash.Status == mloc.StatusIdle {
			wake.Set(p.g.wake) // tasks may be held for it
		}
		if e.Type == mloc.EventRegister && p.current != nil && p.current.started && startedAt != "" && p.hash.StartedAt != startedAt {
			p.finish(ctx, p.current, fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.WorkerRestarted, Message: "the worker " + p.id + " registered again: it was restarted"})
		}
	}
}

// leave removes the worker from the server; what it held goes back.
func (p *remoteWorker) leave(ctx context.Context) {
	w := p.worker.Swap(nil)
	if w == nil {
		return
	}
	p.clearTask()
	p.registeredFacts, p.raw, p.alive, p.hash = "", nil, false, mloc.WorkerHash{}
	if err := w.Leave(ctx); err != nil {
		p.g.log.Warn("MLOC: cannot report that a worker left", slog.String("worker", p.id), slog.Any("why", err))
	}
}

// parseLoad reads what a heartbeat says of the machine.
func parseLoad(metrics mloc.Object, h mloc.WorkerHash) *muster.Load {
	load, cores := mloc.Lookup(metrics, "loadavg")["1m"], h.Hardware.CPU.LogicalCores
	if mloc.NumberText(load) == "" || mloc.Float(load) < 0 || cores <= 0 {
		return nil
	}
	return &muster.Load{CPU: min(1, mloc.Float(load)/float64(cores))}
}

// handleTaskEvent takes in news of a task. What is not of the task that the worker has now is late, and has no effect.
func (p *remoteWorker) handleTaskEvent(ctx context.Context, e *mloc.TaskEvent) {
	d := p.current
	if d == nil || d.id != e.TaskID {
		p.g.metrics.count(&p.g.metrics.counters.Late, 1)
		p.g.log.Debug("MLOC: event of a task that the worker does not have", slog.String("worker", p.id), slog.String("task", e.TaskID), slog.String("type", e.Type))
		if e.Type == mloc.EventSucceeded || e.Type == mloc.EventFailed {
			id := e.TaskID
			if p.lastTask[0] == id {
				id = p.lastTask[1]
			}
			if w := p.worker.Load(); w != nil && (d == nil || d.task.ID() != id) {
				_ = p.g.Fleet.ReportLate(id) // the fleet counts it; there is no answer
			}
		}
		return
	}
	if synthetic, _ := e.Payload["synthetic"].(bool); synthetic {
		return // another host's watchdog; this one has its own
	}
	switch e.Type {
	case mloc.EventStarted:
		p.markStarted(d)
	case mloc.EventSucceeded:
		p.markStarted(d)
		p.finish(ctx, d, p.g.successReport(ctx, d, e))
		p.recordCache(ctx, d.doc.Spec)
	case mloc.EventFailed:
		p.markStarted(d)
		message := "the worker gave no reason"
		if e.Error != nil && *e.Error != "" {
			message = *e.Error
		}
		p.finish(ctx, d, failureReport(message))
	}
}

// recordCache notes in the worker's hash which models and data sets it has used, last ones last, as hosts do. Muster's scheduler
// does not read it.
func (p *remoteWorker) recordCache(ctx context.Context, spec mloc.Object) {
	source, data := mloc.Lookup(spec, "model", "source"), mloc.Lookup(spec, "data")
	models := appendName(p.hash.CacheModels, mloc.Text(source["identifier"]))
	sets := appendName(p.hash.CacheDatasets, cmp.Or(mloc.Text(data["dataset_name"]), mloc.Text(data["name"]), mloc.Text(data["url"])))
	if slices.Equal(models, p.hash.CacheModels) && slices.Equal(sets, p.hash.CacheDatasets) {
		return
	}
	err := p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "cache_models_json", mloc.EncodeString(mloc.NonNilList(models)), "cache_datasets_json", mloc.EncodeString(mloc.NonNilList(sets)), "cache_updated_ts", mloc.FormatTime(time.Now())).Err()
	if err != nil {
		p.g.log.Debug("MLOC: the models of a worker are not noted in Redis", slog.String("worker", p.id), slog.Any("why", err))
	}
}

// appendName returns a list with name at its end.
func appendName(list []string, name string) []string {
	if name == "" || len(name) > 500 || slices.Contains(list, name) {
		return list
	}
	list = append(slices.Clone(list), name)
	return list[max(0, len(list)-maxCached):]
}

// markStarted tells the server that the worker runs the task.
func (p *remoteWorker) markStarted(d *dispatch) {
	if d.started {
		return
	}
	d.started = true
	if err := d.task.MarkStarted(); err != nil && muster.CodeOf(err) != muster.Conflict {
		p.g.log.Warn("MLOC: cannot report that a task started", slog.String("task", d.id), slog.Any("why", err))
	}
}

// finish reports how a task ended, until the server has it on disk or does not want it any more.
func (p *remoteWorker) finish(ctx context.Context, d *dispatch, end fleet.FinalReport) {
	for wait := p.g.intervals.retry; ; wait = min(2*wait, 30*p.g.intervals.retry) {
		err := d.task.Finish(ctx, end)
		switch {
		case err == nil, muster.CodeOf(err) == muster.Conflict, muster.CodeOf(err) == muster.NotFound:
			p.clearTask()
			wake.Set(p.g.wake)
			return
		case muster.CodeOf(err) == muster.Invalid || muster.CodeOf(err) == muster.TooLarge:
			end = fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.ResultInvalid, Message: mloc.Truncate(err.Error(), 1000)}
		default:
			p.g.log.Warn("MLOC: the end of a task cannot be reported yet", slog.String("task", d.id), slog.Any("why", err))
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// clearTask forgets the task that the worker had.
func (p *remoteWorker) clearTask() {
	if p.current == nil {
		return
	}
	p.g.mu.Lock()
	for id, d := range p.g.dispatches {
		if d == p.current {
			delete(p.g.dispatches, id)
		}
	}
	p.g.mu.Unlock()
	p.lastTask = [2]string{p.current.id, p.current.task.ID()}
	if !p.current.fromClient { // the server has it; a client's result is for clients
		if err := p.g.results.forget(p.current.id); err != nil {
			p.g.log.Warn("MLOC: a result that was passed on cannot be removed", slog.Any("why", err))
		}
	}
	p.current = nil
	p.mismatchSince = time.Time{}
}

// knows reports whether the worker's hash says that it runs a task, or that it was its last one.
func (p *remoteWorker) knows(id string) bool {
	return p.raw["extra_task_id"] == id || p.raw["extra_last_task"] == id
}

// reconcile compares what the worker's hash says with what it should do: news may have been lost.
func (p *remoteWorker) reconcile(ctx context.Context) {
	d := p.current
	accepted := d != nil && p.knows(d.id)
	if d != nil && !d.started && p.hash.Status == mloc.StatusRunning && p.raw["extra_task_id"] == d.id {
		p.markStarted(d)
	}
	publishedByUs := p.hash.Status == mloc.StatusRunning && p.raw[fieldTask] != "" && !p.knows(p.raw[fieldTask])
	consistent := true
	switch {
	case d != nil && (d.started || accepted) && p.hash.Status != mloc.StatusRunning:
		consistent = false // it ended, or the worker was restarted
	case d != nil && p.g.isDelivered(d) && len(p.g.mergedIDs(d)) == 0:
		consistent = false // nothing comes between a result and the last event: Redis lost it
	case d == nil && publishedByUs:
		consistent = false // it never took what it was given, which is over
	}
	if consistent {
		p.mismatchSince = time.Time{}
		return
	}
	if p.mismatchSince.IsZero() {
		p.mismatchSince = time.Now()
	}
	grace := p.g.intervals.mismatchGrace
	if d != nil && p.hash.Status == mloc.StatusRunning {
		grace *= 3 // it may still be tidying up
	}
	if time.Since(p.mismatchSince) < grace {
		return
	}
	p.mismatchSince = time.Time{}
	switch {
	case d == nil:
		if err := p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "status", mloc.StatusIdle).Err(); err == nil {
			p.hash.Status = mloc.StatusIdle
		}
	case p.g.isDelivered(d):
		p.markStarted(d)
		p.finish(ctx, d, p.g.successReport(ctx, d, &mloc.TaskEvent{}))
		if p.hash.Status == mloc.StatusRunning { // its status was lost with the event
			_ = p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "status", mloc.StatusIdle, "extra_last_task", d.id).Err() // the next look tells
		}
	case p.raw["extra_last_task"] != d.id:
		p.finish(ctx, d, fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.WorkerRestarted, Message: "the worker " + p.id + " does not run it any more: it was restarted"})
	default:
		p.finish(ctx, d, fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.UploadFailed, Message: "it ended while the gateway or Redis was unreachable, and its result did not arrive"})
	}
}
