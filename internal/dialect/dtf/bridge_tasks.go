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
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	maxOffers  = 1000 // tests whose files are not uploaded yet
	maxNotices = 1000
)

// handleOffer accepts or refuses a task of the coordinator. It ignores known tasks.
func (b *Bridge) handleOffer(ctx context.Context, l *coordinatorConn, t wireTask) {
	if t.TaskID == "" || b.core.Known(t.TaskID) || b.stopping() {
		return
	}
	if err := b.acceptTask(ctx, t); err != nil {
		b.log.Warn("task refused", slog.String("task", t.TaskID), slog.String("type", lenient.Name(t.TaskType)), slog.Any("why", err))
		if muster.CodeOf(err) == muster.Unavailable {
			return // the coordinator offers it again
		}
		failure := &message{
			Type: typeTaskResult, WorkerID: b.currentState().WorkerID, TaskID: t.TaskID, Status: statusFailed, Seconds: new(float64), Error: err.Error(), Timestamp: time.Now().Unix(),
		}
		if err := l.writeSigned(ctx, failure); err != nil {
			b.log.Warn("cannot report a refused task", slog.Any("why", err))
		}
	}
}

// acceptTask accepts a task, or stores it in offers until its files are uploaded.
func (b *Bridge) acceptTask(ctx context.Context, t wireTask) error {
	spec, err := b.spec(t)
	if err != nil {
		return err
	}
	if !b.canRun(t.TaskType) {
		return muster.Errorf(muster.Invalid, "Unknown task type: %s", t.TaskType)
	}
	if t.TaskType != taskTest || b.testDir(t.Config) == "" {
		return b.accept(ctx, t, spec)
	}
	if b.isWaiting(t.TaskID) {
		return nil
	}
	path := b.offerPath(t.TaskID)
	pending, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(pending) >= maxOffers {
		return muster.Errorf(muster.Unavailable, "too many tests wait for their files: %d", len(pending))
	}
	if err := writeState(path, lenient.MustMarshal(t)); err != nil {
		return err
	}
	wake.Set(b.offersReady)
	return nil
}

// canRun reports whether the bridge accepts tasks of a type: a fleet accepts all, since workers may join, a single worker those of its kinds.
func (b *Bridge) canRun(taskType string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cfg.Core.Worker == "" || len(b.capacity.Workers) == 0 || slices.Contains(b.capacity.Kinds, taskType)
}

func (b *Bridge) spec(t wireTask) (*muster.Spec, error) {
	stage, err := toMuster(t.TaskType, t.Config)
	if err != nil {
		return nil, err
	}
	if limit := muster.Duration(b.cfg.TaskTimeout); limit > 0 && (stage.Timeout == 0 || stage.Timeout > limit) {
		stage.Timeout = limit
	}
	return &muster.Spec{Name: lenient.Name("dtf-" + t.TaskType), Labels: map[string]string{labelTask: lenient.Name(t.TaskID), labelType: t.TaskType}, Tasks: []muster.TaskSpec{stage}}, nil
}

func (b *Bridge) accept(ctx context.Context, t wireTask, spec *muster.Spec) error {
	accepted, err := b.core.Accept(ctx, bridge.Job{ID: t.TaskID, Spec: *spec, Meta: lenient.MustMarshal(taskMeta{Type: t.TaskType, Config: t.Config})})
	if accepted {
		b.log.Info("task accepted", slog.String("task", t.TaskID), slog.String("type", t.TaskType))
	}
	return err
}

func (b *Bridge) offerPath(id string) string {
	return filepath.Join(b.cfg.Dir, "offers", sha256Hex(id)+".json")
}

// prepareLoop uploads the files of tests in offers, and accepts these tests.
func (b *Bridge) prepareLoop(ctx context.Context) error {
	for {
		files, err := os.ReadDir(filepath.Join(b.cfg.Dir, "offers"))
		if err != nil {
			return muster.Errorf(muster.Unavailable, "cannot read the bridge's directory: %w", err)
		}
		retry := false
		for _, e := range files {
			if strings.HasSuffix(e.Name(), ".json") && !b.prepareOne(ctx, filepath.Join(b.cfg.Dir, "offers", e.Name())) {
				retry = true
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		wait := time.Hour
		if retry {
			wait = b.cfg.ReconnectInterval
		}
		if err := wake.Wait(ctx, b.offersReady, wait); err != nil {
			return err
		}
	}
}

// prepareOne uploads the files of one test and accepts it. It reports whether that is done.
func (b *Bridge) prepareOne(ctx context.Context, path string) bool {
	raw, err := os.ReadFile(path)
	var t wireTask
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil {
		b.log.Warn("cannot read a stored task, removing it", slog.Any("why", err))
		return os.Remove(path) == nil
	}
	spec, err := b.spec(t)
	if dir := b.testDir(t.Config); err == nil && dir != "" {
		spec.Tasks[0].Files, err = b.cfg.Core.Client.UploadFolder(ctx, dir, nil)
	}
	if err == nil {
		err = b.accept(ctx, t, spec)
	}
	if err != nil && ctx.Err() == nil {
		b.log.Warn("cannot upload the files of a test", slog.String("task", t.TaskID), slog.Any("why", err))
		if code := muster.CodeOf(err); code != muster.Invalid && code != muster.TooLarge && code != muster.InvalidSpec {
			return false
		}
		spec.Tasks[0].Files = "" // the task fails with a message about the missing file
		err = b.accept(ctx, t, spec)
	}
	return err == nil && os.Remove(path) == nil
}

// testDir returns TestsDir if it has the test file of the task, otherwise "".
func (b *Bridge) testDir(config json.RawMessage) string {
	c, err := object(config)
	if err != nil || b.cfg.TestsDir == "" {
		return ""
	}
	file, _, _ := strings.Cut(lenient.String(c["test_file"]), "::")
	if file == "" || !filepath.IsLocal(file) {
		return ""
	}
	root, err := os.OpenRoot(b.cfg.TestsDir)
	if err != nil {
		return ""
	}
	_, err = root.Stat(file)
	if errors.Join(err, root.Close()) != nil {
		return ""
	}
	return b.cfg.TestsDir
}

// cancel has a task cancelled for the coordinator. Heartbeats do not mention it any more, because a coordinator would consider it running.
func (b *Bridge) cancel(id, reason string) {
	if !b.isOpen(id) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, exists := b.cancelled[id]; exists {
		return
	}
	b.cancelled[id] = cmp.Or(reason, "user_request")
	b.cancelQueue = append(b.cancelQueue, id)
	delete(b.progress, id)
	wake.Set(b.cancelsReady)
}

// isOpen reports whether a task is accepted or in offers, and not reported.
func (b *Bridge) isOpen(id string) bool {
	return slices.ContainsFunc(b.core.Jobs(), func(j bridge.Job) bool { return j.ID == id }) || b.isWaiting(id)
}

func (b *Bridge) isWaiting(id string) bool {
	_, err := os.Stat(b.offerPath(id))
	return err == nil
}

// cancelLoop cancels tasks in Muster until ctx ends, and retries.
func (b *Bridge) cancelLoop(ctx context.Context) error {
	for {
		b.mu.Lock()
		queue := b.cancelQueue
		b.cancelQueue = nil
		b.mu.Unlock()
		var retry []string
		for _, id := range queue {
			asking, cancel := context.WithTimeout(ctx, dialTimeout)
			err := b.core.Cancel(asking, id)
			cancel()
			if code := muster.CodeOf(err); err != nil && (code == muster.Unavailable || code == muster.Undetermined || code == muster.NotFound && b.isWaiting(id)) {
				retry = append(retry, id)
			} else if err != nil && ctx.Err() == nil {
				b.log.Warn("cannot cancel a task", slog.String("task", id), slog.Any("why", err))
			}
		}
		wait := time.Hour
		if len(retry) > 0 {
			wait = 200 * time.Millisecond
			b.mu.Lock()
			b.cancelQueue = append(retry, b.cancelQueue...)
			b.mu.Unlock()
		}
		if err := wake.Wait(ctx, b.cancelsReady, wait); err != nil {
			return err
		}
	}
}

// requeueNotice puts back the notice of a heartbeat that was not sent.
func (b *Bridge) requeueNotice(m *message) {
	if m.Cancelled == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancelNotices = append([]taskNotice{*m.Cancelled}, b.cancelNotices...)
}

// nextHeartbeat returns the next heartbeat. It has the progress of one running task, of each in turn.
func (b *Bridge) nextHeartbeat() *message {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &message{Type: typeHeartbeat, WorkerID: b.state.WorkerID, Timestamp: time.Now().Unix(), Metrics: b.metrics()}
	healthy := b.healthy()
	m.Health = &health{
		Healthy: &healthy,
		Metrics: &healthMetrics{
			Healthy: healthy, ResourceHealthy: &healthy, ConnectionHealthy: true, CPUPercent: &m.Metrics.CPUPercent, MemoryPercent: &m.Metrics.MemoryPercent,
			CheckTime: lenient.NaiveUTC(b.checkedAt),
		},
		Recovery: &recovery{Auto: true},
	}
	if ids := slices.Sorted(maps.Keys(b.progress)); len(ids) > 0 {
		i := slices.IndexFunc(ids, func(id string) bool { return id > b.heartbeatTask })
		b.heartbeatTask = ids[max(i, 0)]
		m.Task = &taskStatus{TaskID: b.heartbeatTask, Status: statusRunning, Progress: b.progress[b.heartbeatTask]}
		m.Health.Metrics.CurrentTask = &m.Task.TaskID
	}
	if len(b.cancelNotices) > 0 {
		notice := b.cancelNotices[0]
		b.cancelNotices = b.cancelNotices[1:]
		m.Cancelled, m.Health = &notice, nil
	}
	return m
}

// metrics returns the load of the fleet. The caller holds mu.
func (b *Bridge) metrics() *metrics {
	m := &metrics{}
	h := &b.capacity
	if h.Load == nil || h.Resources.Memory == 0 {
		return m
	}
	m.CPUPercent = round(h.Load.CPU * 100)
	m.MemoryPercent = round(float64(h.Load.Memory) / float64(h.Resources.Memory) * 100)
	m.MemoryUsedGB = lenient.InGiB(h.Load.Memory)
	m.MemoryAvailableGB = lenient.InGiB(max(h.Resources.Memory-h.Load.Memory, 0))
	for i := range h.Resources.GPUs {
		g := &h.Resources.GPUs[i]
		at := slices.IndexFunc(h.Load.GPUs, func(l muster.GPULoad) bool { return l.UUID == g.UUID })
		if at < 0 || h.Load.GPUs[at].Memory == nil || g.Memory == 0 {
			continue
		}
		used := float64(*h.Load.GPUs[at].Memory)
		m.GPU = append(m.GPU, gpuMetric{
			Index: i, MemoryAllocatedGB: round(used / gigabytes), MemoryReservedGB: round(used / gigabytes), MemoryTotalGB: lenient.InGiB(g.Memory),
			MemoryUtilization: round(used / float64(g.Memory) * 100),
		})
	}
	return m
}

// healthy reports whether a worker accepts tasks. The caller holds mu.
func (b *Bridge) healthy() bool {
	return slices.ContainsFunc(b.capacity.Workers, func(w muster.Worker) bool { return w.Constrained == "" })
}

// reporter is the bridge.Reporter of a Bridge.
type reporter Bridge

// Progress implements bridge.Reporter: the next heartbeats send it.
func (p *reporter) Progress(_ context.Context, j bridge.Job, _ muster.Job, tasks []muster.Task) error {
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

// Log implements bridge.LogReporter. DTF has no logs: the error of a failed task has its last lines.
func (p *reporter) Log(context.Context, bridge.Job, []string) error { return nil }

func (p *reporter) Finish(ctx context.Context, j bridge.Job, end bridge.FinalReport) error {
	b := (*Bridge)(p)
	var m taskMeta
	if err := json.Unmarshal(j.Meta, &m); err != nil {
		return muster.Errorf(muster.Invalid, "cannot decode the state of task %s: %w", j.ID, err)
	}
	b.mu.Lock()
	delete(b.progress, j.ID)
	reason, cancelled := b.cancelled[j.ID]
	result := &message{Type: typeTaskResult, WorkerID: b.state.WorkerID, TaskID: j.ID, Metrics: b.metrics(), Timestamp: time.Now().Unix()}
	b.mu.Unlock()
	seconds := 0.0
	if t := end.Task(); t != nil && t.StartedAt != 0 && t.FinishedAt > t.StartedAt {
		seconds = t.FinishedAt.Sub(t.StartedAt).Std().Seconds()
	}
	result.Seconds = &seconds
	if end.Succeeded() {
		result.Status = statusCompleted
		result.Result = toDTF(m.Type, m.Config, end.Result())
	} else {
		result.Status, result.Error = statusFailed, b.failureText(ctx, &end)
	}
	if b.results != nil {
		status := result.Status
		if end.State == muster.JobCancelled {
			status = statusCancelled
		}
		if err := b.results.put(context.WithoutCancel(ctx), &storedResult{
			TaskID: j.ID, TaskType: m.Type, Config: m.Config, Status: status, Result: result.Result, Error: result.Error, Seconds: seconds,
			WorkerID: result.WorkerID, Coordinator: b.currentState().Coordinator, Job: j.MusterJob, Ended: time.Now(),
		}); err != nil {
			b.log.Warn("cannot write a result to the file", slog.String("task", j.ID), slog.Any("why", err))
		}
	}
	if cancelled && end.State == muster.JobCancelled { // DTF's workers send no result then
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.cancelled, j.ID)
		if len(b.cancelNotices) < maxNotices {
			b.cancelNotices = append(b.cancelNotices, taskNotice{TaskID: j.ID, Reason: reason, Timestamp: lenient.NaiveUTC(time.Now())})
		}
		return nil
	}
	l, err := b.awaitConn(ctx)
	if err != nil {
		return err
	}
	err = l.report(ctx, result)
	if err == nil || muster.CodeOf(err) == muster.NotFound { // the coordinator has it, or will never accept it
		b.mu.Lock()
		delete(b.cancelled, j.ID)
		b.mu.Unlock()
	}
	return err
}

// failureText returns why a task failed, with the last lines of its log.
func (b *Bridge) failureText(ctx context.Context, end *bridge.FinalReport) string {
	reason := end.Message()
	lines, err := end.LogTail(ctx, "", 20)
	if err != nil || len(lines) == 0 {
		return reason
	}
	tail := strings.Join(lines, "\n")
	if len(tail) > 16<<10 {
		tail = strings.ToValidUTF8(tail[len(tail)-16<<10:], "")
	}
	return muster.Headline(reason) + "\n" + tail
}
