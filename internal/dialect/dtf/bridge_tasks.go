package dtf

import (
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
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
)

const (
	maxOffers  = 1000 // tests whose files wait to be uploaded
	maxNotices = 1000
)

// offer takes a task of the coordinator. The same one again changes nothing.
func (b *Bridge) offer(ctx context.Context, l *line, t wireTask) {
	if t.TaskID == "" || b.core.Known(t.TaskID) || b.stopping() {
		return
	}
	if err := b.take(ctx, t); err != nil {
		b.log.Warn("a task is not taken", slog.String("task", t.TaskID), slog.String("type", cut(t.TaskType)), slog.Any("why", err))
		if muster.CodeOf(err) == muster.Unavailable {
			return // it may be offered again
		}
		if err := l.writeSigned(ctx, refusal(b.workerID(), t.TaskID, err.Error())); err != nil {
			b.log.Warn("the coordinator is not told", slog.Any("why", err))
		}
	}
}

// take accepts a task, or notes on disk that its files are to be uploaded first.
func (b *Bridge) take(ctx context.Context, t wireTask) error {
	spec, err := b.spec(t)
	if err != nil {
		return err
	}
	if !b.runs(t.TaskType) {
		return muster.Errorf(muster.Invalid, "Unknown task type: %s", t.TaskType)
	}
	if t.TaskType != taskTest || b.testFolder(t.Config) == "" {
		return b.accept(ctx, t, spec)
	}
	path := b.offerPath(t.TaskID)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	waiting, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(waiting) >= maxOffers {
		return muster.Errorf(muster.Unavailable, "%d tests wait for their files", len(waiting))
	}
	if err := writeFile(path, jsonOf(t)); err != nil {
		return err
	}
	token(b.wake)
	return nil
}

// runs reports whether tasks of a type may be taken: by a fleet of any, since workers may join; by one worker of it of those that it runs.
func (b *Bridge) runs(taskType string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cfg.Core.Worker == "" || len(b.health.Workers) == 0 || slices.Contains(b.health.Kinds, taskType)
}

// spec is the job for a task.
func (b *Bridge) spec(t wireTask) (*muster.Spec, error) {
	stage, err := toMuster(t.TaskType, t.Config)
	if err != nil {
		return nil, err
	}
	if most := muster.Duration(b.cfg.TaskTimeout); most > 0 && (stage.Timeout == 0 || stage.Timeout > most) {
		stage.Timeout = most
	}
	return &muster.Spec{Name: cut("dtf-" + t.TaskType), Labels: map[string]string{labelTask: cut(t.TaskID), labelType: t.TaskType}, Tasks: []muster.TaskSpec{stage}}, nil
}

func (b *Bridge) accept(ctx context.Context, t wireTask, spec *muster.Spec) error {
	taken, err := b.core.Accept(ctx, bridge.Job{ID: t.TaskID, Spec: *spec, Meta: jsonOf(meta{Type: t.TaskType, Config: t.Config})})
	if taken {
		b.log.Info("task", slog.String("task", t.TaskID), slog.String("type", t.TaskType))
	}
	return err
}

func (b *Bridge) offerPath(id string) string {
	return filepath.Join(b.cfg.Dir, "offers", hashOf(id)+".json")
}

// prepare uploads the files of tests, also of those that an earlier life left, and accepts them then.
func (b *Bridge) prepare(ctx context.Context) error {
	for {
		left, err := os.ReadDir(filepath.Join(b.cfg.Dir, "offers"))
		if err != nil {
			return muster.Errorf(muster.Unavailable, "the bridge's folder cannot be read: %w", err)
		}
		again := false
		for _, e := range left {
			if strings.HasSuffix(e.Name(), ".json") && !b.prepareOne(ctx, filepath.Join(b.cfg.Dir, "offers", e.Name())) {
				again = true
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		wait := time.Hour
		if again {
			wait = b.cfg.ReconnectInterval
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-b.wake:
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// prepareOne accepts one test, with its folder. It reports whether nothing more is to be done for it.
func (b *Bridge) prepareOne(ctx context.Context, path string) bool {
	raw, err := os.ReadFile(path)
	var t wireTask
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil {
		b.log.Warn("a task that was noted cannot be read", slog.Any("why", err))
		return os.Remove(path) == nil
	}
	spec, err := b.spec(t)
	if err == nil {
		err = b.bring(ctx, t, spec)
	}
	if err == nil {
		err = b.accept(ctx, t, spec)
	}
	if err != nil && ctx.Err() == nil {
		b.log.Warn("a test is not taken yet", slog.String("task", t.TaskID), slog.Any("why", err))
		if code := muster.CodeOf(err); code != muster.Invalid && code != muster.TooLarge && code != muster.InvalidSpec {
			return false
		}
		spec.Tasks[0].Files = "" // it then says itself that the file is not there
		if b.accept(ctx, t, spec) != nil {
			return false
		}
	}
	return err == nil && os.Remove(path) == nil
}

// bring uploads the folder of a test and names the file within it.
func (b *Bridge) bring(ctx context.Context, t wireTask, spec *muster.Spec) error {
	dir := b.testFolder(t.Config)
	if dir == "" {
		return nil
	}
	tree, err := b.cfg.Core.Client.UploadFolder(ctx, dir, nil)
	if err != nil {
		return err
	}
	spec.Tasks[0].Files = tree
	return nil
}

// testFolder is the folder that goes with a test: that of --tests, if the file that the task names is in it, else "".
func (b *Bridge) testFolder(config json.RawMessage) string {
	c, err := object(config)
	if err != nil || b.cfg.Tests == "" {
		return ""
	}
	file, _, _ := strings.Cut(text(c["test_file"]), "::")
	if file == "" || !filepath.IsLocal(file) {
		return ""
	}
	root, err := os.OpenRoot(b.cfg.Tests)
	if err != nil {
		return ""
	}
	_, err = root.Stat(file)
	if errors.Join(err, root.Close()) != nil {
		return ""
	}
	return b.cfg.Tests
}

// cancel stops a task for the coordinator, soon. Heartbeats speak of it no more, as a coordinator would take it for running again.
func (b *Bridge) cancel(id, reason string) {
	if !b.open(id) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, twice := b.cancelled[id]; twice {
		return
	}
	b.cancelled[id] = cmp.Or(reason, "user_request")
	b.asked = append(b.asked, id)
	delete(b.progress, id)
	token(b.wakeCancel)
}

// open reports whether a task was taken, or waits for its files, and is not reported.
func (b *Bridge) open(id string) bool {
	return slices.ContainsFunc(b.core.Jobs(), func(j bridge.Job) bool { return j.ID == id }) || b.waits(id)
}

// waits reports whether a test waits for its files.
func (b *Bridge) waits(id string) bool {
	_, err := os.Stat(b.offerPath(id))
	return err == nil
}

// cancels stops tasks until ctx ends, again where Muster cannot be asked yet.
func (b *Bridge) cancels(ctx context.Context) error {
	for {
		b.mu.Lock()
		asked := b.asked
		b.asked = nil
		b.mu.Unlock()
		var again []string
		for _, id := range asked {
			asking, cancel := context.WithTimeout(ctx, dialWait)
			err := b.core.Cancel(asking, id)
			cancel()
			if code := muster.CodeOf(err); err != nil && (code == muster.Unavailable || code == muster.Undetermined || code == muster.NotFound && b.waits(id)) {
				again = append(again, id)
			} else if err != nil && ctx.Err() == nil {
				b.log.Warn("a task is not cancelled", slog.String("task", id), slog.Any("why", err))
			}
		}
		wait := time.Hour
		if len(again) > 0 {
			wait = 200 * time.Millisecond
			b.mu.Lock()
			b.asked = append(again, b.asked...)
			b.mu.Unlock()
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-b.wakeCancel:
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// token puts one into c unless it holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// unsent takes a heartbeat back: what only it said is said by the next one.
func (b *Bridge) unsent(m *message) {
	if m.Cancelled == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notices = append([]taskNotice{*m.Cancelled}, b.notices...)
}

// beat is the next heartbeat. It speaks of one of the running tasks, of each in turn.
func (b *Bridge) beat() *message {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &message{Type: typeHeartbeat, WorkerID: b.state.WorkerID, Timestamp: time.Now().Unix(), Metrics: b.metrics()}
	healthy, auto := b.healthy(), true
	m.Health = &health{
		Healthy: &healthy,
		Metrics: &healthMetrics{
			Healthy: healthy, ResourceHealthy: &healthy, ConnectionHealthy: true, CPUPercent: &m.Metrics.CPUPercent, MemoryPercent: &m.Metrics.MemoryPercent,
			CheckTime: *naive(b.checked),
		},
		Recovery: &recovery{Auto: auto},
	}
	if ids := slices.Sorted(maps.Keys(b.progress)); len(ids) > 0 {
		i := slices.IndexFunc(ids, func(id string) bool { return id > b.turn })
		b.turn = ids[max(i, 0)]
		m.Task = &taskStatus{TaskID: b.turn, Status: statusRunning, Progress: b.progress[b.turn]}
		m.Health.Metrics.CurrentTask = &m.Task.TaskID
	}
	if len(b.notices) > 0 {
		notice := b.notices[0]
		b.notices = b.notices[1:]
		m.Cancelled, m.Health = &notice, nil
	}
	return m
}

// metrics is the use of the fleet. mu is held.
func (b *Bridge) metrics() *metrics {
	m := &metrics{}
	h := &b.health
	if h.Load == nil || h.Resources.Memory == 0 {
		return m
	}
	m.CPUPercent = round(h.Load.CPU * 100)
	m.MemoryPercent = round(float64(h.Load.Memory) / float64(h.Resources.Memory) * 100)
	m.MemoryUsedGB = round(float64(h.Load.Memory) / gigabytes)
	m.MemoryAvailableGB = round(float64(max(h.Resources.Memory-h.Load.Memory, 0)) / gigabytes)
	for i := range h.Resources.GPUs {
		g := &h.Resources.GPUs[i]
		at := slices.IndexFunc(h.Load.GPUs, func(l muster.GPULoad) bool { return l.UUID == g.UUID })
		if at < 0 || h.Load.GPUs[at].Memory == nil || g.Memory == 0 {
			continue
		}
		used := float64(*h.Load.GPUs[at].Memory)
		m.GPU = append(m.GPU, gpuMetric{
			Index: i, MemoryAllocatedGB: round(used / gigabytes), MemoryReservedGB: round(used / gigabytes), MemoryTotalGB: round(float64(g.Memory) / gigabytes),
			MemoryUtilization: round(used / float64(g.Memory) * 100),
		})
	}
	return m
}

// healthy reports whether there is a worker that takes tasks. mu is held.
func (b *Bridge) healthy() bool {
	return slices.ContainsFunc(b.health.Workers, func(w muster.Worker) bool { return w.Constrained == "" })
}

// port is how the core speaks to the coordinator.
type port Bridge

// Progress implements bridge.Port: heartbeats carry it.
func (p *port) Progress(_ context.Context, j bridge.Job, _ muster.Job, tasks []muster.Task) error {
	if len(tasks) == 0 || !tasks[0].State.HoldsResources() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, cancelled := p.cancelled[j.ID]; cancelled {
		return nil
	}
	percent := 0.0
	if tasks[0].Progress != nil {
		percent = round(*tasks[0].Progress * 100)
	}
	p.progress[j.ID] = percent
	return nil
}

// Log implements bridge.Port. DTF has no logs: what a failed task said last is in its error.
func (p *port) Log(context.Context, bridge.Job, []string) error { return nil }

// Finish implements bridge.Port.
func (p *port) Finish(ctx context.Context, j bridge.Job, end bridge.Ending) error {
	b := (*Bridge)(p)
	var m meta
	if err := json.Unmarshal(j.Meta, &m); err != nil {
		return muster.Errorf(muster.Invalid, "what was noted of task %s cannot be read: %w", j.ID, err)
	}
	b.mu.Lock()
	delete(b.progress, j.ID)
	reason, cancelled := b.cancelled[j.ID]
	out := &message{Type: typeTaskResult, WorkerID: b.state.WorkerID, TaskID: j.ID, Metrics: b.metrics(), Timestamp: time.Now().Unix()}
	b.mu.Unlock()
	seconds := 0.0
	if t := end.Task(); t != nil && t.StartedAt != 0 && t.FinishedAt > t.StartedAt {
		seconds = t.FinishedAt.Sub(t.StartedAt).Std().Seconds()
	}
	out.Seconds = &seconds
	if end.Succeeded() {
		out.Status = statusCompleted
		out.Result = toDTF(m.Type, m.Config, end.Result())
	} else {
		out.Status, out.Error = statusFailed, b.failure(ctx, &end)
	}
	if b.results != nil {
		status := out.Status
		if end.State == muster.JobCancelled {
			status = statusCancelled
		}
		if err := b.results.put(&stored{
			TaskID: j.ID, TaskType: m.Type, Config: m.Config, Status: status, Result: out.Result, Error: out.Error, Seconds: seconds,
			WorkerID: out.WorkerID, Coordinator: b.lastCoordinator(), Job: j.Muster, Ended: time.Now(),
		}); err != nil {
			b.log.Warn("a result is not kept in the file", slog.String("task", j.ID), slog.Any("why", err))
		}
	}
	if cancelled && end.State == muster.JobCancelled { // DTF's workers send no result then
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.cancelled, j.ID)
		if len(b.notices) < maxNotices {
			b.notices = append(b.notices, taskNotice{TaskID: j.ID, Reason: reason, Timestamp: *naive(time.Now())})
		}
		return nil
	}
	l, err := b.current(ctx)
	if err != nil {
		return err
	}
	err = l.report(ctx, out)
	if err == nil || muster.CodeOf(err) == muster.NotFound { // the coordinator has it, or will never take it
		b.mu.Lock()
		delete(b.cancelled, j.ID)
		b.mu.Unlock()
	}
	return err
}

// failure is why a task failed, with the last lines of what it said.
func (b *Bridge) failure(ctx context.Context, end *bridge.Ending) string {
	why := end.Message()
	lines, err := end.LogTail(ctx, "", 20)
	if err != nil || len(lines) == 0 {
		return why
	}
	tail := strings.Join(lines, "\n")
	if len(tail) > 16<<10 {
		tail = strings.ToValidUTF8(tail[len(tail)-16<<10:], "")
	}
	return why + "\n" + tail
}
