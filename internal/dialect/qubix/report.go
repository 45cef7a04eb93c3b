package qubix

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

const (
	maxTailLines   = 100     // of each stream, in the result of a script
	maxImageBytes  = 6 << 20 // bytes of images that travel in a report
	statusInterval = 30 * time.Second
)

// Progress implements bridge.Reporter. It sends nothing before the job runs or prints, because the first report means that it runs.
func (b *Bridge) Progress(ctx context.Context, j bridge.Job, _ muster.Job, tasks []muster.Task) error {
	_, reported := b.lastReports.Get(j.ID)
	if len(tasks) == 0 || tasks[0].StartedAt == 0 && !reported {
		return nil
	}
	t, r := &tasks[0], b.lastReport(j.ID)
	r.percent, r.metrics = 1, b.taskMetrics(ctx, t)
	if t.Progress != nil {
		r.percent = min(max(int(*t.Progress*100), 1), 99) // 100 is for the final report
	}
	check := time.Since(r.checkedAt) >= b.scaled(statusInterval)
	if check {
		r.checkedAt = time.Now()
	}
	step := "preparing"
	if t.StartedAt != 0 {
		step = orDefault(t.Step, "running")
	}
	if err := b.sendProgress(ctx, j.ID, &progress{CurrentOperation: &step}); err != nil {
		return err
	}
	if !check {
		return nil
	}
	status, err := b.remoteStatus(ctx, j.ID)
	if err == nil && status == statusCancelled {
		b.cancelJob(ctx, j.ID)
	}
	return nil // not every backend has the state
}

// lastReport returns the last report of a job, which may be new.
func (b *Bridge) lastReport(id string) *lastReport {
	return b.lastReports.Add(id, &lastReport{percent: 1, metrics: json.RawMessage("{}")})
}

// sendProgress sends a report of progress with the last values.
func (b *Bridge) sendProgress(ctx context.Context, id string, p *progress) error {
	r := b.lastReport(id)
	p.WorkerID, p.WorkerIDSnake, p.Progress, p.Metrics, p.Timestamp = b.id, b.id, new(float64(r.percent)), r.metrics, lenient.NaiveUTC(time.Now())
	a, err := b.call(ctx, http.MethodPost, jobPath(id, "/progress"), p, callTimeout)
	if err != nil {
		return err
	}
	if lenient.String(lenient.Object(a.Body)["status"]) == statusCancelled { // from Muster's gateway
		b.cancelJob(ctx, id)
	}
	return a.Err("the progress")
}

func (b *Bridge) cancelJob(ctx context.Context, id string) {
	if err := b.core.Cancel(ctx, id); err != nil {
		b.log.Warn("cannot cancel a job", slog.String("job", id), slog.Any("why", err))
	}
}

// remoteStatus returns the backend's state of a job, "" if it is unknown.
func (b *Bridge) remoteStatus(ctx context.Context, id string) (string, error) {
	a, err := b.call(ctx, http.MethodGet, jobPath(id, ""), nil, callTimeout)
	if err != nil || a.Status != http.StatusOK {
		return "", err
	}
	fields := lenient.Object(a.Body)
	status := cmp.Or(lenient.String(fields["status"]), lenient.String(lenient.Object(fields["job"])["status"]))
	return strings.ToUpper(status), nil
}

// jobPath returns the path of a part of a job, or of the job for "".
func jobPath(id, part string) string { return "/api/jobs/" + url.PathEscape(id) + part }

func (b *Bridge) taskMetrics(ctx context.Context, t *muster.Task) json.RawMessage {
	all := map[string]any{}
	for name, v := range t.Metrics {
		all[name] = v
	}
	if t.Grant != nil && len(t.Grant.GPUs) > 0 && t.Worker != "" {
		if w, err := b.cfg.Core.Client.Worker(ctx, string(t.Worker)); err == nil && w.Load != nil {
			for i := range w.Load.GPUs {
				if l := &w.Load.GPUs[i]; l.UUID == t.Grant.GPUs[0] {
					_ = json.Unmarshal(lenient.MustMarshal(toGPUMetrics(l, gpuMemory(w.Resources.GPUs, l.UUID))), &all)
				}
			}
		}
	}
	return lenient.MustMarshal(all)
}

// Log implements bridge.LogReporter: it sends lines with a report of progress.
func (b *Bridge) Log(ctx context.Context, j bridge.Job, lines []string) error {
	r := b.lastReport(j.ID)
	wait := time.Until(r.loggedAt.Add(b.scaled(progressInterval) / 5))
	if backoff.Sleep(ctx, max(wait, 0)) != nil {
		return ctx.Err()
	}
	r.loggedAt = time.Now()
	p := &progress{}
	for _, l := range lines {
		p.LogLines = append(p.LogLines, logLine{Level: "info", Message: l, Timestamp: lenient.NaiveUTC(time.Now())})
	}
	return b.sendProgress(ctx, j.ID, p)
}

// Finished implements bridge.FinishChecker.
func (b *Bridge) Finished(ctx context.Context, j bridge.Job) (bool, error) {
	status, err := b.remoteStatus(ctx, j.ID)
	return status == statusCompleted || status == statusFailed, err
}

// Finish implements bridge.Reporter.
func (b *Bridge) Finish(ctx context.Context, j bridge.Job, end bridge.FinalReport) error {
	c, err := b.buildCompletion(ctx, &end)
	if err != nil {
		return err
	}
	a, err := b.postCompletion(ctx, j.ID, c)
	if err == nil && a.Status == http.StatusRequestEntityTooLarge {
		c.Result = withoutImages(c.Result)
		a, err = b.postCompletion(ctx, j.ID, c)
	}
	if err != nil {
		return err
	}
	if a.Status == http.StatusTooManyRequests {
		_ = backoff.Sleep(ctx, a.RetryAfter)
	}
	if err := a.Err("the final report"); err != nil {
		return err
	}
	b.lastReports.Remove(j.ID)
	return nil
}

func (b *Bridge) postCompletion(ctx context.Context, id string, c *completion) (*bridge.Response, error) {
	return b.call(ctx, http.MethodPost, jobPath(id, "/complete"), c, reportTimeout)
}

func (b *Bridge) newCompletion() *completion {
	return &completion{WorkerID: b.id, WorkerIDSnake: b.id, Metrics: json.RawMessage("{}"), Timestamp: lenient.NaiveUTC(time.Now())}
}

// fail makes c the report of a failure. Without details they are the message.
func (c *completion) fail(message, details string) {
	c.Status, c.Error = reportFailed, &message
	c.Result = lenient.MustMarshal(map[string]string{"error": message, "errorDetails": orDefault(details, message)})
}

func (b *Bridge) buildCompletion(ctx context.Context, end *bridge.FinalReport) (*completion, error) {
	c := b.newCompletion()
	c.Status = reportCompleted
	t := end.Task()
	metrics := map[string]any{}
	if t != nil && t.Usage != nil {
		c.FinalMetrics = lenient.MustMarshal(usageMetrics(t.Usage))
		metrics["processingTimeSeconds"] = t.Usage.WallSeconds
		metrics["cpuCoresAvg"] = t.Usage.CPUAvg
		if t.Usage.GPUAvg > 0 {
			metrics["gpuUsageAvg"] = t.Usage.GPUAvg * 100
		}
	}
	c.Metrics = lenient.MustMarshal(metrics)
	if !end.Succeeded() {
		return c, b.fillFailure(ctx, end, c)
	}
	result, err := b.result(ctx, end, t)
	if err != nil {
		return nil, err
	}
	result["metrics"] = metrics
	c.Result = lenient.MustMarshal(result)
	return c, nil
}

// fillFailure fills in why a job failed, with the end of its output, which has the traceback.
func (b *Bridge) fillFailure(ctx context.Context, end *bridge.FinalReport, c *completion) error {
	trace, err := end.LogTail(ctx, "", maxTailLines)
	if err != nil {
		return err
	}
	message := end.Message()
	if t := end.Task(); end.State != muster.JobCancelled && t != nil && t.Kind == muster.KindScript && t.Reason != muster.StartFailed && t.ExitCode != nil && *t.ExitCode != 0 {
		stderr, err := end.LogTail(ctx, client.Stderr, maxTailLines)
		if err != nil {
			return err
		}
		message = fmt.Sprintf("%s%d: %s", scriptFailedPrefix, *t.ExitCode, strings.Join(stderr, "\n"))
	}
	if end.State == muster.JobCancelled {
		message = "the job was cancelled"
	}
	c.fail(message, strings.Join(trace, "\n"))
	return nil
}

// result returns the result in the form of QUBIX's enhanced worker, with the fields of Muster's result.
func (b *Bridge) result(ctx context.Context, end *bridge.FinalReport, t *muster.Task) (map[string]any, error) {
	all := map[string]any{}
	if raw := end.Result(); lenient.HasValue(raw) && (t == nil || !t.OnlyOutput()) {
		if json.Unmarshal(raw, &all) != nil || all == nil {
			all = map[string]any{"result": raw}
		}
	}
	if _, exists := all["status"]; !exists {
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
		images, err := encodeImages(ctx, end, t)
		if err != nil {
			return nil, err
		}
		all["images"], all["numImages"] = images, len(images)
	case muster.KindScript, muster.KindProcess:
		all["exitCode"] = 0
		for name, stream := range map[string]string{"stdout": client.Stdout, "stderr": client.Stderr} {
			lines, err := end.LogTail(ctx, stream, maxTailLines)
			if err != nil {
				return nil, err
			}
			all[name] = append([]string{}, lines...) // not null
		}
	default:
		if _, exists := all["jobType"]; !exists {
			all["jobType"] = t.Kind
		}
	}
	return all, nil
}

// encodeImages returns the images of a job as data URLs, and the names of those that do not fit into a report.
func encodeImages(ctx context.Context, end *bridge.FinalReport, t *muster.Task) ([]string, error) {
	list := []string{}
	free := int64(maxImageBytes)
	for _, a := range t.Artifacts {
		if !strings.HasSuffix(a.Name, ".png") || strings.HasPrefix(a.Name, muster.LiveDir+"/") || a.Name == "preview.png" {
			continue
		}
		if a.Size > free {
			list = append(list, a.Name)
			continue
		}
		var data bytes.Buffer
		if err := end.Download(ctx, t, a, &data); err != nil {
			return nil, err
		}
		free -= a.Size
		list = append(list, "data:image/png;base64,"+base64.StdEncoding.EncodeToString(data.Bytes()))
	}
	return list, nil
}

// withoutImages removes the images from a result, for backends that refuse large bodies.
func withoutImages(raw json.RawMessage) json.RawMessage {
	fields := lenient.Object(raw)
	if _, exists := fields["images"]; !exists {
		return raw
	}
	fields["images"] = json.RawMessage("[]")
	fields["note"] = lenient.MustMarshal("the images do not fit into a report: they are artifacts of the job on the Muster server")
	return lenient.MustMarshal(fields)
}

// usageMetrics returns the GPU metrics that the TS backend stores.
func usageMetrics(u *muster.Usage) gpuMetrics {
	positive := func(v float64) *float64 { return lenient.NonZero(max(v, 0)) }
	return gpuMetrics{
		Utilization: positive(u.GPUAvg * 100), MemoryUsed: positive(float64(u.VRAMPeak) / (1 << 20)), Temperature: positive(u.GPUTempPeak), Power: positive(u.PowerAvg),
	}
}

// answerCodes are the codes of answers of the backend. Unauthenticated is retried, since a key may become valid again.
var answerCodes = map[int]muster.Code{ //nolint:gochecknoglobals // a constant table
	http.StatusBadRequest: muster.Invalid, http.StatusUnprocessableEntity: muster.Invalid, http.StatusRequestEntityTooLarge: muster.Invalid,
	http.StatusUnauthorized: muster.Unauthenticated, http.StatusForbidden: muster.Forbidden, http.StatusNotFound: muster.NotFound,
	http.StatusConflict: muster.Conflict, http.StatusInternalServerError: muster.Internal,
}

func newBackend(cfg *BridgeConfig) (*bridge.Remote, error) {
	return bridge.NewRemote(bridge.RemoteConfig{
		Name: "the QUBIX backend", URL: cfg.Backend, Option: "--backend", Codes: answerCodes,
		Header:  http.Header{"User-Agent": {"muster/" + cmp.Or(cfg.Version, "dev")}},
		KeyHint: "write a key into --backend, as http://HOST:3001/k/KEY",
	})
}

func (b *Bridge) call(ctx context.Context, method, path string, body any, timeout time.Duration) (*bridge.Response, error) {
	a, err := b.backend.Call(ctx, method, path, body, timeout)
	a.RetryAfter = min(a.RetryAfter, maxRetryAfter)
	return a, err
}

const maxRetryAfter = 5 * time.Minute

// parseJobs reads a list of jobs. It ignores other items.
func parseJobs(raw json.RawMessage) []job {
	list, _ := lenient.List[job](raw, maxListedJobs)
	return slices.DeleteFunc(list, func(j job) bool { return j.ID == "" })
}

const maxListedJobs = 1000 // of one answer: the mock server offers all of its jobs
