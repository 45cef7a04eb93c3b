package trainforge

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
)

const (
	batchBytes = 512 << 10 // of the texts of lines in one request
	tailLines  = 20        // of a log, among which is the last one that is not empty
	maxUploads = 5         // of one job's results: TrainForge's server ends every request that takes longer than 30 s
)

func (b *Bridge) report(ctx context.Context, id, status, message string) error {
	path, u := b.jobPath(id)+"/status", update{Status: status, Message: lenient.Text(message, maxMessage)}
	if b.legacy.Load() {
		path, u = b.jobPath(id), update{Status: status, CompletedAt: time.Now().Format(lenient.NaiveTime), Error: u.Message}
		if status == statusCompleted {
			u.Progress, u.Error = new(100.0), ""
		}
	}
	a, err := b.server.call(ctx, http.MethodPut, path, u)
	return cmp.Or(err, a.Err("a report"))
}

// Progress implements bridge.Reporter: the status with what the job does now.
func (b *Bridge) Progress(ctx context.Context, j bridge.Job, now muster.Job, tasks []muster.Task) error {
	if now.State != muster.JobRunning || len(tasks) == 0 {
		return nil
	}
	t := &tasks[0]
	u := update{Progress: toPercent(t.Progress)}
	path := b.jobPath(j.ID)
	if b.current.Load() {
		// The server takes any status at any time: one that it was given by others is not to be written over.
		if remote := b.fetchJob(ctx, j.ID); remote != nil && remote.Status == statusCancelled {
			return b.core.Cancel(ctx, j.ID)
		}
		path += "/status"
		u.Status, u.Message = statusRunning, cmp.Or(t.Step, "Running")
	} else if u.Progress == nil {
		return nil
	}
	a, err := b.server.call(ctx, http.MethodPut, path, u)
	if err := cmp.Or(err, a.Err("progress")); err != nil {
		return err
	}
	return b.sendMetrics(ctx, t)
}

// toPercent converts a progress to TrainForge's 0 to 100.
func toPercent(progress *float64) *float64 {
	if progress == nil {
		return nil
	}
	return new(100 * *progress)
}

// sendMetrics reports the metrics of a task that TrainForge has fields for.
func (b *Bridge) sendMetrics(ctx context.Context, t *muster.Task) error {
	p, found := workerProgress{Progress: toPercent(t.Progress)}, false
	for name, dst := range map[string]**float64{"epoch": &p.Epoch, "loss": &p.Loss, "accuracy": &p.Accuracy} {
		if v, ok := t.Metrics[name]; ok {
			*dst, found = &v, true
		}
	}
	if b.legacy.Load() || !found {
		return nil
	}
	_, err := b.server.call(ctx, http.MethodPut, b.workerPath()+"/progress", p)
	return err
}

// Log implements bridge.LogReporter.
func (b *Bridge) Log(ctx context.Context, j bridge.Job, lines []string) error {
	for len(lines) > 0 {
		n, size := 0, 0
		for n < len(lines) && size < batchBytes {
			size += len(lines[n])
			n++
		}
		if err := b.sendLines(ctx, j.ID, lines[:n]); err != nil {
			return err
		}
		lines = lines[n:]
	}
	return nil
}

func (b *Bridge) sendLines(ctx context.Context, id string, lines []string) error {
	path := b.jobPath(id) + "/logs/batch"
	var body any
	if b.legacy.Load() {
		text := strings.TrimRight(strings.Join(lines, "\n"), "\n ")
		if strings.TrimSpace(text) == "" {
			return nil // it takes no empty one
		}
		path, body = b.jobPath(id)+"/logs", logEntry{Message: text}
	} else {
		batch, now := logBatch{}, lenient.UnixSeconds(time.Now())
		for _, line := range lines {
			batch.Logs = append(batch.Logs, logEntry{Message: line, Timestamp: now})
		}
		body = batch
	}
	a, err := b.server.call(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	if a.IsTemporary() || a.Status == http.StatusRequestTimeout {
		return a.Err("lines of a log")
	}
	return nil // what it does not take now it never will
}

// Finish implements bridge.Reporter: the results, then the status.
func (b *Bridge) Finish(ctx context.Context, j bridge.Job, end bridge.FinalReport) error {
	if t := end.Task(); t != nil {
		if err := b.sendMetrics(ctx, t); err != nil {
			return err
		}
	}
	if err := b.sendResults(ctx, j, &end); err != nil {
		return err
	}
	switch {
	case end.Succeeded():
		return b.report(ctx, j.ID, statusCompleted, "Training completed")
	case end.State == muster.JobCancelled && b.cancelling.Load():
		return b.report(ctx, j.ID, statusCancelled, shutdownMessage)
	case end.State == muster.JobCancelled:
		return b.report(ctx, j.ID, statusCancelled, cmp.Or(end.Message(), "cancelled"))
	default:
		return b.report(ctx, j.ID, statusFailed, b.failureText(ctx, &end))
	}
}

// failureText is the message of a failure. For that of a program which printed nothing on standard error it has the last line of its output.
func (b *Bridge) failureText(ctx context.Context, end *bridge.FinalReport) string {
	message := end.Message()
	if t := end.Task(); t == nil || t.Reason != muster.ExitCode || t.ExitCode == nil || message != fmt.Sprintf("exit code %d", *t.ExitCode) {
		return message
	}
	tail, err := end.LogTail(ctx, "", tailLines)
	if err != nil {
		b.log.Debug("a log cannot be read", slog.Any("error", err))
	}
	for _, line := range slices.Backward(tail) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, controlPrefix) {
			return message + ": " + line
		}
	}
	return message
}

// Finished implements bridge.FinishChecker, if the server shows the job.
func (b *Bridge) Finished(ctx context.Context, j bridge.Job) (bool, error) {
	remote := b.fetchJob(ctx, j.ID)
	return remote != nil && isFinal(remote.Status), nil
}

// sendResults uploads the artifacts and the result, as the kaggle worker does.
func (b *Bridge) sendResults(ctx context.Context, j bridge.Job, end *bridge.FinalReport) error {
	t := end.Task()
	if t == nil || len(t.Artifacts) == 0 && len(t.Result) == 0 {
		return nil
	}
	if b.legacy.Load() {
		return nil // it has no way for them: they are in Muster
	}
	f, err := os.CreateTemp(b.claimsDir(), "results-*")
	if err != nil {
		return muster.Errorf(muster.Unavailable, "cannot create a file for the results: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // at the next start at the latest
	defer f.Close()
	z := archive.NewWriter(f, resultLimits.Bytes)
	if len(t.Result) > 0 {
		if err := z.Add("result.json", t.Result); err != nil {
			return err
		}
	}
	var skipped []string
	for _, a := range t.Artifacts {
		if a.Size > z.Remaining() {
			skipped = append(skipped, a.Name)
			continue
		}
		if err := z.Stream(a.Name, func(w io.Writer) error { return end.Download(ctx, t, a, w) }); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size > maxResults || len(skipped) > 0 {
		b.log.Warn("results exceed TrainForge's limit and stay in Muster", slog.String("job", j.ID), slog.String("size", muster.Size(size).String()), slog.Int("left", len(skipped)))
		_ = b.Log(ctx, j, []string{fmt.Sprintf("results of %s are larger than TrainForge takes: they are artifacts of Muster's job %s", muster.Size(size), j.MusterJob)})
		if size > maxResults {
			return nil
		}
	}
	a, err := b.server.upload(ctx, b.jobPath(j.ID)+"/results", resultsField, "results.zip", f, size)
	if err != nil {
		return err
	}
	if a.OK() {
		return nil
	}
	err = a.Err("the upload of results")
	if muster.CodeOf(err) == muster.Unavailable && a.Status != http.StatusTooManyRequests &&
		b.uploadTries.Update(j.ID, func(tries int, _ bool) int { return tries + 1 }) < maxUploads {
		return err
	}
	b.log.Warn("the server does not take results, which stay in Muster", slog.String("job", j.ID), slog.Any("error", err))
	_ = b.Log(ctx, j, []string{fmt.Sprintf("the server does not take the results, which are artifacts of Muster's job %s: %v", j.MusterJob, err)})
	return nil
}
