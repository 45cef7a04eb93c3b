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
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// peer is a worker of MLOC. Its fields belong to its goroutine, which run is, but for those that say otherwise.
type peer struct {
	g     *Gateway
	id    string
	inbox chan news     // what it said
	swept chan sight    // the last look at it
	kick  chan struct{} // whether it is disabled may have changed

	last    sight     // for others to show; under Gateway.mu, as the next two
	idle    time.Time // since when it is
	toggled time.Time // when it was enabled or disabled last
	load    atomic.Pointer[muster.Load]
	worker  atomic.Pointer[fleet.Worker] // nil until it is registered

	known    map[string]string // its hash as it was last whole
	hash     mloc.WorkerHash
	raw      map[string]string
	alive    bool
	facts    string    // as they were registered
	before   [2]string // the last task that is over: its id on the wire, and in the fleet
	refused  string    // why it was not registered, told already
	disabled bool      // it was told to the fleet
	deaf     bool      // it was told to the fleet that it does not answer
	now      *dispatch
	next     time.Time // when there is something to do without news
	odd      time.Time // since when its hash does not fit to what it should do
}

// news is one event of a worker: one of both is set.
type news struct {
	task   *mloc.TaskEvent
	worker *mloc.WorkerEvent
}

// dispatch is a task that a worker was given, or is about to be.
type dispatch struct {
	peer   *peer
	task   *fleet.Task
	id     string // as the worker knows it
	record bool   // a client of MLOC submitted it: id is that of the ledger
	doc    mloc.Document

	began     bool
	published int
	at        time.Time // of the last time
}

// seen takes a look that was had at the worker. It does not block.
func (p *peer) seen(s sight) {
	if w := p.worker.Load(); w != nil && s.alive {
		w.Touch(p.load.Load())
	}
	for {
		select {
		case p.swept <- s:
			return
		default:
		}
		select {
		case <-p.swept: // an older look
		default:
		}
	}
}

// run serves the worker until the gateway ends, or the worker is gone.
func (p *peer) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var changed, over <-chan struct{}
		if w := p.worker.Load(); w != nil {
			changed = w.Changed()
		}
		if p.now != nil {
			over = p.now.task.Over()
		}
		p.next = time.Now().Add(p.g.pace.sweep)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-p.inbox:
			p.hear(ctx, n)
		case s := <-p.swept:
			p.meet(ctx, s)
			if p.gone(s) {
				return nil
			}
		case <-changed:
		case <-over:
		case <-p.kick:
		case <-timer.C:
		}
		p.step(ctx)
		timer.Reset(max(time.Until(p.next), time.Millisecond))
	}
}

// gone ends a worker that is no more: nothing of it is in Redis, and it was never registered, or left.
func (p *peer) gone(s sight) bool {
	if p.worker.Load() != nil || p.now != nil || s.err == nil || s.alive {
		return false
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if len(p.inbox) > 0 {
		return false
	}
	delete(p.g.peers, p.id)
	return true
}

// soon has step called again after d at the latest.
func (p *peer) soon(d time.Duration) {
	if at := time.Now().Add(d); at.Before(p.next) {
		p.next = at
	}
}

// refresh looks at the worker now.
func (p *peer) refresh(ctx context.Context) bool {
	seen, err := p.g.lookAt(ctx, []string{p.id})
	if err != nil {
		return false
	}
	p.g.mu.Lock()
	p.last = seen[0]
	p.g.mu.Unlock()
	p.meet(ctx, seen[0])
	return seen[0].err == nil
}

// meet takes in what Redis has of the worker.
func (p *peer) meet(ctx context.Context, s sight) {
	p.alive = s.alive && s.err == nil
	if s.err != nil {
		if s.alive && p.known != nil && muster.CodeOf(s.err) == muster.NotFound {
			p.restore(ctx)
		}
		return
	}
	p.known, p.hash, p.raw = s.raw, s.hash, s.raw
	if !s.alive {
		return
	}
	p.register(ctx)
	p.doubt(ctx)
	if w := p.worker.Load(); w != nil && p.now == nil && p.hash.Status == mloc.StatusIdle {
		w.Idle()
	}
}

// restore puts a worker back into a database that was emptied: genuine workers never register again. What it says of itself was
// remembered, and that it lives its heartbeat has just shown.
func (p *peer) restore(ctx context.Context) {
	values := maps.Clone(p.known)
	values["status"] = mloc.StatusIdle
	if p.now != nil && p.now.began {
		values["status"] = mloc.StatusRunning
	}
	if s := p.raw["last_seen"]; s != "" {
		delete(values, "last_seen")
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
	p.g.figures.count(&p.g.figures.restored)
	p.g.log.Info("MLOC: a worker is put back into Redis, which was emptied", slog.String("worker", p.id))
}

// register makes the worker one of the server's, or tells what has changed of it.
func (p *peer) register(ctx context.Context) {
	f := factsOf(p.hash, p.g.set.merge)
	said := mloc.Compact(f)
	if w := p.worker.Load(); w != nil && said == p.facts {
		return
	}
	w, err := p.g.fleet.Register(ctx, f)
	if err != nil {
		if why := err.Error(); why != p.refused {
			p.refused = why
			p.g.log.Warn("MLOC: a worker is not taken", slog.String("worker", p.id), slog.Any("why", err))
		}
		return
	}
	p.worker.Store(w)
	p.facts, p.refused = said, ""
	w.Touch(p.load.Load())
}

// maxGPUs is how many devices of a worker are believed.
const maxGPUs = 64

// factsOf returns what a worker joins the server with. What it says of its hardware is believed within bounds.
func factsOf(h mloc.WorkerHash, merges bool) fleet.Facts {
	f := fleet.Facts{ID: h.WorkerID, Name: mloc.Cut(h.WorkerID, muster.MaxNameSize), Price: h.CostPerHour, Labels: map[string]string{"mloc.worker": mloc.Cut(h.WorkerID, mloc.MaxID)}}
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
		uuid := mloc.Cut(d.UUID, 100)
		if uuid == "" || seen[uuid] {
			uuid = "mloc-" + strconv.Itoa(i)
		}
		seen[uuid] = true
		f.Resources.GPUs = append(f.Resources.GPUs, muster.GPU{UUID: uuid, Index: i, Vendor: "nvidia", Name: mloc.Cut(d.Name, 100), Memory: muster.Size(max(0, min(d.Memory, 1<<45)))})
	}
	f.Kinds = []string{"echo", "inference", "sft", "lora_sft", mloc.KindForeign}
	if len(f.Resources.GPUs) > 0 {
		f.Kinds = append(f.Kinds, "ppo", "dpo") // genuine workers have them only with CUDA
	}
	f.Remote, _ = netip.ParseAddr(h.Hardware.Network.IP)
	if b := h.Hardware.Network.Bandwidth; b != nil && *b > 0 {
		f.Labels["bandwidth_bytes_per_sec"] = mloc.PythonFloat(*b)
	}
	return f
}

// hear takes in what the worker said.
func (p *peer) hear(ctx context.Context, n news) {
	if w := p.worker.Load(); w != nil {
		w.Touch(p.load.Load())
	}
	if n.task != nil {
		p.told(ctx, n.task)
		return
	}
	switch e := n.worker; e.Type {
	case mloc.EventUnregister:
		p.leave(ctx)
	case mloc.EventHeartbeat:
		p.load.Store(loadOfHost(e.Metrics, p.hash))
	default:
		if p.deaf {
			p.deaf = false
			if w := p.worker.Load(); w != nil {
				w.Constrain("deaf", "")
			}
		}
		before := p.hash.StartedAt
		if e.Type == mloc.EventRegister {
			p.facts = "" // it comes back, even if it was drained
		}
		p.refresh(ctx)
		if p.g.set.merge && p.hash.Status == mloc.StatusIdle {
			p.g.nudge() // tasks may be held for it
		}
		if e.Type == mloc.EventRegister && p.now != nil && p.now.began && before != "" && p.hash.StartedAt != before {
			p.finish(ctx, p.now, fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.WorkerRestarted, Message: "the worker " + p.id + " registered again: it was restarted"})
		}
	}
}

// leave removes the worker from the server; what it held goes back.
func (p *peer) leave(ctx context.Context) {
	w := p.worker.Swap(nil)
	if w == nil {
		return
	}
	p.drop()
	p.facts, p.known, p.alive, p.hash = "", nil, false, mloc.WorkerHash{}
	if err := w.Leave(ctx); err != nil {
		p.g.log.Warn("MLOC: the server was not told that a worker left", slog.String("worker", p.id), slog.Any("why", err))
	}
}

// loadOfHost reads what a heartbeat says of the machine.
func loadOfHost(metrics mloc.Object, h mloc.WorkerHash) *muster.Load {
	n, ok := mloc.Number(mloc.Under(metrics, "loadavg")["1m"]), h.Hardware.CPU.LogicalCores > 0
	f, err := strconv.ParseFloat(n, 64)
	if !ok || err != nil || f < 0 {
		return nil
	}
	return &muster.Load{CPU: min(1, f/float64(h.Hardware.CPU.LogicalCores))}
}

// told takes in news of a task. What is not of the task that the worker has now is late, and has no effect.
func (p *peer) told(ctx context.Context, e *mloc.TaskEvent) {
	d := p.now
	if d == nil || d.id != e.TaskID {
		p.g.figures.count(&p.g.figures.late)
		p.g.log.Debug("MLOC: news of a task that the worker does not have", slog.String("worker", p.id), slog.String("task", e.TaskID), slog.String("type", e.Type))
		if e.Type == mloc.EventSucceeded || e.Type == mloc.EventFailed {
			id := e.TaskID
			if p.before[0] == id {
				id = p.before[1]
			}
			if w := p.worker.Load(); w != nil && (d == nil || d.task.ID() != id) {
				_ = p.g.fleet.Late(id) // the fleet counts it; there is no answer
			}
		}
		return
	}
	if synthetic, _ := e.Payload["synthetic"].(bool); synthetic {
		return // another host's watchdog; this one has its own
	}
	switch e.Type {
	case mloc.EventStarted:
		p.begin(d)
	case mloc.EventSucceeded:
		p.begin(d)
		p.finish(ctx, d, p.g.success(ctx, d, e))
		p.cached(ctx, d.doc.Spec)
	case mloc.EventFailed:
		p.begin(d)
		message := "the worker gave no reason"
		if e.Error != nil && *e.Error != "" {
			message = *e.Error
		}
		p.finish(ctx, d, failure(message))
	}
}

// maxCached is how many models and data sets of a worker are noted.
const maxCached = 32

// cached notes in the worker's hash which models and data sets it has used, last ones last, as hosts do. Muster's scheduler
// does not read it.
func (p *peer) cached(ctx context.Context, spec mloc.Object) {
	source, data := mloc.Under(spec, "model", "source"), mloc.Under(spec, "data")
	models := noted(p.hash.CacheModels, mloc.Text(source["identifier"]))
	sets := noted(p.hash.CacheDatasets, cmp.Or(mloc.Text(data["dataset_name"]), mloc.Text(data["name"]), mloc.Text(data["url"])))
	if slices.Equal(models, p.hash.CacheModels) && slices.Equal(sets, p.hash.CacheDatasets) {
		return
	}
	err := p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "cache_models_json", mloc.Compact(mloc.OrList(models)), "cache_datasets_json", mloc.Compact(mloc.OrList(sets)), "cache_updated_ts", mloc.Stamp(time.Now())).Err()
	if err != nil {
		p.g.log.Debug("MLOC: the models of a worker are not noted in Redis", slog.String("worker", p.id), slog.Any("why", err))
	}
}

// noted returns a list with name at its end.
func noted(list []string, name string) []string {
	if name == "" || len(name) > 500 || slices.Contains(list, name) {
		return list
	}
	list = append(slices.Clone(list), name)
	return list[max(0, len(list)-maxCached):]
}

// begin tells the server that the worker runs the task.
func (p *peer) begin(d *dispatch) {
	if d.began {
		return
	}
	d.began = true
	if err := d.task.Begin(); err != nil && muster.CodeOf(err) != muster.Conflict {
		p.g.log.Warn("MLOC: the server was not told that a task began", slog.String("task", d.id), slog.Any("why", err))
	}
}

// finish reports how a task ended, until the server has it on disk or does not want it any more.
func (p *peer) finish(ctx context.Context, d *dispatch, end fleet.Ending) {
	wait := p.g.pace.retry
	for {
		err := d.task.Finish(ctx, end)
		switch {
		case err == nil, muster.CodeOf(err) == muster.Conflict, muster.CodeOf(err) == muster.NotFound:
			p.drop()
			p.g.nudge()
			return
		case muster.CodeOf(err) == muster.Invalid || muster.CodeOf(err) == muster.TooLarge:
			end = fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.ResultInvalid, Message: mloc.Cut(err.Error(), 1000)}
		default:
			p.g.log.Warn("MLOC: the end of a task cannot be reported yet", slog.String("task", d.id), slog.Any("why", err))
		}
		if !rest(ctx, wait) {
			return
		}
		wait = min(2*wait, 30*p.g.pace.retry)
	}
}

// drop forgets the task that the worker had.
func (p *peer) drop() {
	if p.now == nil {
		return
	}
	p.g.mu.Lock()
	for id, d := range p.g.dispatches {
		if d == p.now {
			delete(p.g.dispatches, id)
		}
	}
	p.g.mu.Unlock()
	p.before = [2]string{p.now.id, p.now.task.ID()}
	if !p.now.record { // the server has it; a client's result is for clients
		if err := p.g.results.forget(p.now.id); err != nil {
			p.g.log.Warn("MLOC: a result that was passed on cannot be removed", slog.Any("why", err))
		}
	}
	p.now = nil
	p.odd = time.Time{}
}

// doubt compares what the worker's hash says with what it should do: news may have been lost.
func (p *peer) doubt(ctx context.Context) {
	d := p.now
	took := d != nil && (p.raw["extra_task_id"] == d.id || p.raw["extra_last_task"] == d.id)
	if d != nil && !d.began && p.hash.Status == mloc.StatusRunning && p.raw["extra_task_id"] == d.id {
		p.begin(d)
	}
	ours := p.hash.Status == mloc.StatusRunning && p.raw[fieldGiven] != "" && p.raw["extra_task_id"] != p.raw[fieldGiven] && p.raw["extra_last_task"] != p.raw[fieldGiven]
	fits := true
	switch {
	case d != nil && (d.began || took) && p.hash.Status != mloc.StatusRunning:
		fits = false // it ended, or the worker was restarted
	case d != nil && p.g.delivered(d) && len(p.g.childrenOf(d)) == 0:
		fits = false // nothing comes between a result and the last event: Redis lost it
	case d == nil && ours:
		fits = false // it never took what it was given, which is over
	}
	if fits {
		p.odd = time.Time{}
		return
	}
	if p.odd.IsZero() {
		p.odd = time.Now()
	}
	settle := p.g.pace.settle
	if d != nil && p.hash.Status == mloc.StatusRunning {
		settle *= 3 // it may still be tidying up
	}
	if time.Since(p.odd) < settle {
		return
	}
	p.odd = time.Time{}
	switch {
	case d == nil:
		if err := p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "status", mloc.StatusIdle).Err(); err == nil {
			p.hash.Status = mloc.StatusIdle
		}
	case p.g.delivered(d):
		p.begin(d)
		p.finish(ctx, d, p.g.success(ctx, d, &mloc.TaskEvent{}))
		if p.hash.Status == mloc.StatusRunning { // its status was lost with the event
			_ = p.g.control.HSet(ctx, mloc.WorkerKey(p.id), "status", mloc.StatusIdle, "extra_last_task", d.id).Err() // the next look tells
		}
	case p.raw["extra_last_task"] != d.id:
		p.finish(ctx, d, fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.WorkerRestarted, Message: "the worker " + p.id + " does not run it any more: it was restarted"})
	default:
		p.finish(ctx, d, fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.UploadFailed, Message: "it ended while the gateway or Redis was away, and its result did not arrive"})
	}
}
