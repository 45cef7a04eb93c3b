package qubix

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/bridge"
)

const (
	mostLines  = 100     // of each stream, in the result of a script
	mostImages = 6 << 20 // bytes of images that travel in a report
	askEvery   = 30 * time.Second
)

// Progress says how a job stands. Before it runs or has printed something the backend is told nothing: to it the first report means that it
// runs.
func (b *Bridge) Progress(ctx context.Context, j bridge.Job, _ muster.Job, tasks []muster.Task) error {
	if len(tasks) == 0 || tasks[0].StartedAt == 0 && !b.begun(j.ID) {
		return nil
	}
	t := &tasks[0]
	percent := 1
	if t.Progress != nil {
		percent = min(max(int(*t.Progress*100), 1), 99) // 100 is what the final report says
	}
	metrics := b.figures(ctx, t)
	b.mu.Lock()
	r := b.reports[j.ID]
	if r == nil {
		r = &reported{}
		b.reports[j.ID] = r
	}
	r.percent, r.metrics = percent, metrics
	ask := time.Since(r.asked) >= b.every(askEvery)
	if ask {
		r.asked = time.Now()
	}
	b.mu.Unlock()
	step := "preparing"
	if t.StartedAt != 0 {
		step = or(t.Step, "running")
	}
	if err := b.say(ctx, j.ID, &progress{CurrentOperation: &step}); err != nil {
		return err
	}
	if !ask {
		return nil
	}
	status, err := b.state(ctx, j.ID)
	if err == nil && status == cancelled {
		b.abandon(ctx, j.ID)
	}
	return nil // not every backend tells
}

// begun reports whether the backend was told of a job.
func (b *Bridge) begun(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reports[id] != nil
}

// say sends a report of progress with what was said last.
func (b *Bridge) say(ctx context.Context, id string, p *progress) error {
	b.mu.Lock()
	percent, metrics := 1, json.RawMessage("{}")
	if r := b.reports[id]; r != nil {
		percent = max(r.percent, 1)
		if r.metrics != nil {
			metrics = r.metrics
		}
	}
	b.mu.Unlock()
	done := float64(percent)
	p.WorkerID, p.WorkerIDSnake, p.Progress, p.Metrics, p.Timestamp = b.id, b.id, &done, metrics, naive(time.Now())
	a, err := b.remote.send(ctx, http.MethodPost, "/api/jobs/"+url.PathEscape(id)+"/progress", p, shortLimit)
	if err != nil {
		return err
	}
	if text(object(a.body), "status") == cancelled { // as Muster's gateway tells
		b.abandon(ctx, id)
	}
	return a.fault("progress")
}

// abandon stops a job that the backend has cancelled.
func (b *Bridge) abandon(ctx context.Context, id string) {
	if err := b.core.Cancel(ctx, id); err != nil {
		b.log.Warn("a job that the backend cancelled goes on", slog.String("job", id), slog.Any("why", err))
	}
}

// state asks the backend for the state of a job; "" if it does not say.
func (b *Bridge) state(ctx context.Context, id string) (string, error) {
	a, err := b.remote.send(ctx, http.MethodGet, "/api/jobs/"+url.PathEscape(id), nil, shortLimit)
	if err != nil || a.status != http.StatusOK {
		return "", err
	}
	fields := object(a.body)
	status := text(fields, "status")
	if status == "" {
		status = text(object(fields["job"]), "status")
	}
	return strings.ToUpper(status), nil
}

// figures are the metrics of a report: those of the task, and what its GPU does.
func (b *Bridge) figures(ctx context.Context, t *muster.Task) json.RawMessage {
	all := map[string]any{}
	for name, v := range t.Metrics {
		all[name] = v
	}
	if t.Grant != nil && len(t.Grant.GPUs) > 0 && t.Worker != "" {
		if w, err := b.cfg.Core.Client.Worker(ctx, string(t.Worker)); err == nil && w.Load != nil {
			for i := range w.Load.GPUs {
				if l := &w.Load.GPUs[i]; l.UUID == t.Grant.GPUs[0] {
					_ = json.Unmarshal(mustJSON(gpuFigures(l, memoryOf(w.Resources.GPUs, l.UUID))), &all)
				}
			}
		}
	}
	return mustJSON(all)
}

// Log sends lines of output with a report of progress.
func (b *Bridge) Log(ctx context.Context, j bridge.Job, lines []string) error {
	b.mu.Lock()
	r := b.reports[j.ID]
	if r == nil {
		r = &reported{}
		b.reports[j.ID] = r
	}
	wait := time.Until(r.logged.Add(b.every(progressEvery) / 5))
	b.mu.Unlock()
	if !sleep(ctx, max(wait, 0)) {
		return ctx.Err()
	}
	b.mu.Lock()
	r.logged = time.Now()
	b.mu.Unlock()
	p := &progress{}
	for _, l := range lines {
		p.LogLines = append(p.LogLines, logLine{Level: "info", Message: l, Timestamp: naive(time.Now())})
	}
	return b.say(ctx, j.ID, p)
}

// Finished reports whether the backend has a final report of a job.
func (b *Bridge) Finished(ctx context.Context, j bridge.Job) (bool, error) {
	status, err := b.state(ctx, j.ID)
	return status == completed || status == failed, err
}

// Finish sends the final report. The same one is sent again until the backend answers: a job that succeeded is never
// reported as failed because an answer was lost.
func (b *Bridge) Finish(ctx context.Context, j bridge.Job, end bridge.Ending) error {
	c, err := b.final(ctx, &end)
	if err != nil {
		return err
	}
	a, err := b.complete(ctx, j.ID, c)
	if err == nil && a.status == http.StatusRequestEntityTooLarge {
		c.Result = slim(c.Result)
		a, err = b.complete(ctx, j.ID, c)
	}
	if err != nil {
		return err
	}
	if a.status == http.StatusTooManyRequests {
		sleep(ctx, a.after)
	}
	if err := a.fault("final report"); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.reports, j.ID)
	return nil
}

func (b *Bridge) complete(ctx context.Context, id string, c *completion) (answer, error) {
	return b.remote.send(ctx, http.MethodPost, "/api/jobs/"+url.PathEscape(id)+"/complete", c, longLimit)
}

// final makes the final report of a job.
func (b *Bridge) final(ctx context.Context, end *bridge.Ending) (*completion, error) {
	c := &completion{WorkerID: b.id, WorkerIDSnake: b.id, Status: wordCompleted, Timestamp: naive(time.Now())}
	t := end.Task()
	metrics := map[string]any{}
	if t != nil && t.Usage != nil {
		c.FinalMetrics = mustJSON(finalMetrics(t.Usage))
		metrics["processingTimeSeconds"] = t.Usage.WallSeconds
		metrics["cpuCoresAvg"] = t.Usage.CPUAvg
		if t.Usage.GPUAvg > 0 {
			metrics["gpuUsageAvg"] = t.Usage.GPUAvg * 100
		}
	}
	c.Metrics = mustJSON(metrics)
	if !end.Succeeded() {
		return c, b.failure(ctx, end, c)
	}
	result, err := b.result(ctx, end, t)
	if err != nil {
		return nil, err
	}
	result["metrics"] = metrics
	c.Result = mustJSON(result)
	return c, nil
}

// failure says why a job failed, with the end of its output, which has the traceback.
func (b *Bridge) failure(ctx context.Context, end *bridge.Ending, c *completion) error {
	trace, err := end.LogTail(ctx, "", mostLines)
	if err != nil {
		return err
	}
	message := end.Message()
	if t := end.Task(); end.State != muster.JobCancelled && t != nil && t.Kind == muster.KindScript && t.ExitCode != nil && *t.ExitCode != 0 {
		wrong, err := end.LogTail(ctx, client.Stderr, mostLines)
		if err != nil {
			return err
		}
		message = fmt.Sprintf("%s%d: %s", scriptFailed, *t.ExitCode, strings.Join(wrong, "\n"))
	}
	if end.State == muster.JobCancelled {
		message = "the job was cancelled"
	}
	c.Status, c.Error = wordFailed, &message
	c.Result = mustJSON(map[string]string{"error": message, "errorDetails": or(strings.Join(trace, "\n"), message)})
	return nil
}

// result is what a job came to, in the form of QUBIX's enhanced worker, with all that Muster knows beside it.
func (b *Bridge) result(ctx context.Context, end *bridge.Ending, t *muster.Task) (map[string]any, error) {
	all := map[string]any{}
	if raw := end.Result(); present(raw) {
		if json.Unmarshal(raw, &all) != nil || all == nil {
			all = map[string]any{"result": raw}
		}
	}
	if _, there := all["status"]; !there {
		all["status"] = "success"
	}
	if t == nil {
		return all, nil
	}
	switch t.Kind {
	case kindMNIST:
		if epochs, ok := all["epochs"].([]any); ok {
			all["trainingMetrics"] = epochs
		}
	case kindDiffusion:
		images, err := pictures(ctx, end, t)
		if err != nil {
			return nil, err
		}
		all["images"], all["numImages"] = images, len(images)
	case muster.KindScript, muster.KindProcess:
		all["exitCode"] = 0
		for name, stream := range map[string]string{"stdout": client.Stdout, "stderr": client.Stderr} {
			lines, err := end.LogTail(ctx, stream, mostLines)
			if err != nil {
				return nil, err
			}
			if lines == nil {
				lines = []string{}
			}
			all[name] = lines
		}
	default:
		if _, there := all["jobType"]; !there {
			all["jobType"] = t.Kind
		}
	}
	return all, nil
}

// pictures are the images of a job as data URLs, as far as they fit into a report, and the names of the others.
func pictures(ctx context.Context, end *bridge.Ending, t *muster.Task) ([]string, error) {
	list := []string{}
	room := int64(mostImages)
	for _, a := range t.Artifacts {
		if !strings.HasSuffix(a.Name, ".png") || strings.HasPrefix(a.Name, muster.LiveDir+"/") || a.Name == "preview.png" {
			continue
		}
		if a.Size > room {
			list = append(list, a.Name)
			continue
		}
		var data bytes.Buffer
		if err := end.Download(ctx, t, a, &data); err != nil {
			return nil, err
		}
		room -= a.Size
		list = append(list, "data:image/png;base64,"+base64.StdEncoding.EncodeToString(data.Bytes()))
	}
	return list, nil
}

// slim is a result without the images in it, for backends that take no large bodies.
func slim(raw json.RawMessage) json.RawMessage {
	fields := object(raw)
	if _, there := fields["images"]; !there {
		return raw
	}
	fields["images"] = json.RawMessage("[]")
	fields["note"] = mustJSON("the backend takes no report with the images: they are artifacts of the job at the Muster server")
	return mustJSON(fields)
}

// finalMetrics is what the TS backend keeps of a job's GPU.
func finalMetrics(u *muster.Usage) gpuMetrics {
	m := gpuMetrics{}
	set := func(to **float64, v float64) {
		if v > 0 {
			*to = &v
		}
	}
	set(&m.Utilization, u.GPUAvg*100)
	set(&m.MemoryUsed, float64(u.VRAMPeak)/(1<<20))
	set(&m.Temperature, u.GPUTempPeak)
	set(&m.Power, u.PowerAvg)
	return m
}
