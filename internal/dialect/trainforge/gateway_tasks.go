package trainforge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
	"github.com/muster-dev/muster/internal/wake"
)

// controlPrefix begins the runner's own lines.
const controlPrefix = "::trainforge "

// control is what the runner says: see runner.py.
type control struct {
	Alive       bool            `json:"alive,omitempty"`
	End         bool            `json:"end,omitempty"`
	ExitCode    *int            `json:"exit_code,omitempty"`
	Signal      int             `json:"signal,omitempty"`
	Stopped     string          `json:"stopped,omitempty"` // timeout or shutdown
	Wall        float64         `json:"wall_seconds,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	ResultError string          `json:"result_error,omitempty"`
	Failure     *struct {
		Reason  muster.Reason `json:"reason"`
		Message string        `json:"message"`
	} `json:"failure,omitempty"`
	Missing     []string    `json:"missing,omitempty"`
	Outputs     [][2]string `json:"outputs,omitempty"` // name and path in the project, for those read from the shared folder
	UploadError string      `json:"upload_error,omitempty"`
}

// savedState is what is kept of a task over a restart of the server.
type savedState struct {
	Ticket string   `json:"ticket,omitempty"` // under which worker C knows it
	Placed bool     `json:"placed,omitempty"` // it has a folder in the shared one
	Offset int64    `json:"offset,omitempty"` // of the output in that folder that is in the log
	End    *control `json:"end,omitempty"`
}

// taskState is what the gateway knows of a task beside what the fleet does.
type taskState struct {
	path string

	reportMu sync.Mutex // held while lines are passed on and while it is finished

	ready      atomic.Bool // its files are here, and its folder is there if it needs one
	busy       atomic.Bool // its files are being brought
	runnerSeen atomic.Bool // its runner was heard of

	mu        sync.Mutex
	saved     savedState
	offeredAt time.Time // when it was first offered
	offers    int
	lastHeard time.Time // of the task itself
}

func (t *taskState) touch() {
	t.mu.Lock()
	t.lastHeard = time.Now()
	t.mu.Unlock()
}

// save changes what is kept. A failure to keep it costs what a restart would lose, and is the caller's only where it must not happen.
func (t *taskState) save(change func(*savedState)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.saved)
	if err := atomicfile.Write(t.path, lenient.MustMarshal(t.saved), 0o600); err != nil {
		return muster.Errorf(muster.StorageFull, "the gateway cannot write its notes: %w", err)
	}
	return nil
}

func (t *taskState) snapshot() savedState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.saved
}

// restoreStates reads the notes of tasks that the fleet still has, and removes the rest with their folders.
func (g *Gateway) restoreStates() {
	list, _ := os.ReadDir(g.tasksDir()) // what cannot be read is not recalled
	for _, e := range list {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		path := filepath.Join(g.tasksDir(), e.Name())
		t := &taskState{path: path, lastHeard: time.Now()}
		b, err := os.ReadFile(path)
		if !ok || err != nil || json.Unmarshal(b, &t.saved) != nil {
			_ = os.Remove(path) // half written
			continue
		}
		if g.Fleet.Task(id) == nil {
			g.removeState(id, t)
			continue
		}
		g.states[id] = t
		if t.saved.Ticket != "" {
			g.boundTickets[t.saved.Ticket] = id
		}
	}
}

func (g *Gateway) removeState(id string, t *taskState) {
	if t.snapshot().Placed {
		if err := os.RemoveAll(filepath.Join(g.sharedDir, id)); err != nil {
			g.Deps.Log.Warn("a project cannot be removed from the shared folder", slog.String("job", id), slog.Any("error", err))
			return
		}
	}
	_ = os.Remove(t.path) // one that is not there was never noted
}

func (g *Gateway) state(t *fleet.Task) *taskState {
	g.mu.Lock()
	defer g.mu.Unlock()
	ts := g.states[t.ID()]
	if ts == nil {
		ts = &taskState{path: filepath.Join(g.tasksDir(), t.ID()+".json"), lastHeard: time.Now()}
		g.states[t.ID()] = ts
	}
	return ts
}

// resolve returns the task's own id for what a worker calls it.
func (g *Gateway) resolve(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return cmp.Or(g.boundTickets[id], id)
}

// task returns the task that a request names, nil if it is not assigned to a worker of this caller, or has ended.
func (g *Gateway) task(req *request, id string) *fleet.Task {
	t := g.Fleet.Task(g.resolve(id))
	if t == nil || t.Worker().Facts().Key != req.caller.Key {
		return nil
	}
	return t
}

// isLate takes note of a report of a task that is over. It returns whether there was such a task.
func (g *Gateway) isLate(id string) bool {
	return muster.CodeOf(g.Fleet.ReportLate(g.resolve(id))) == muster.Conflict
}

// markStarted notes that the worker runs the task.
func (g *Gateway) markStarted(t *fleet.Task, ts *taskState) error {
	ts.touch()
	if t.Started() {
		return nil
	}
	if err := t.MarkStarted(); err != nil {
		return err
	}
	g.clearDrops(t.Worker())
	return nil
}

// clearDrops takes back that a worker drops jobs.
func (g *Gateway) clearDrops(w *fleet.Worker) {
	g.droppedJobs.Remove(w.ID())
	w.Constrain("dropped", "")
}

// handleLines passes lines of output on: those for Muster as what they mean, the others to the log.
func (g *Gateway) handleLines(ctx context.Context, t *fleet.Task, ts *taskState, lines []string) error {
	ts.reportMu.Lock()
	defer ts.reportMu.Unlock()
	return g.processLines(ctx, t, ts, lines)
}

func (g *Gateway) processLines(ctx context.Context, t *fleet.Task, ts *taskState, lines []string) error {
	if err := g.markStarted(t, ts); err != nil {
		return err
	}
	t.Worker().Touch(nil)
	var plain []string
	for _, line := range lines {
		line = truncateLine(line)
		if payload, ok := strings.CutPrefix(line, controlPrefix); ok {
			if c := parseControl(payload); c != nil {
				if err := g.applyControl(ts, c); err != nil {
					return err
				}
				continue
			}
		}
		if progress.IsEvent([]byte(line)) {
			if p, err := progress.ParseLine([]byte(line)); err == nil {
				if err := t.Progress(p); err != nil {
					return err
				}
				continue
			}
		}
		plain = append(plain, line)
	}
	return t.Log(ctx, plain...)
}

func truncateLine(line string) string {
	line = strings.TrimRight(line, "\r\n")
	return strings.ToValidUTF8(line[:min(len(line), maxLogLine)], "\uFFFD")
}

// parseControl reads a line of the runner after its prefix, nil for other lines.
func parseControl(payload string) *control {
	c := &control{}
	if json.Unmarshal([]byte(payload), c) != nil || !c.Alive && !c.End {
		return nil
	}
	if !lenient.HasValue(c.Result) {
		c.Result = nil
	}
	c.Wall = max(c.Wall, 0)
	return c
}

func (g *Gateway) applyControl(ts *taskState, c *control) error {
	ts.runnerSeen.Store(true)
	if c.End && ts.snapshot().End == nil {
		return ts.save(func(n *savedState) { n.End = c })
	}
	return nil
}

// toFinalReport makes the report of a task of what its worker says and of what the runner said at its end.
func toFinalReport(status, message string, codes []*int, c *control) fleet.FinalReport {
	e := fleet.FinalReport{Outcome: muster.AttemptFailed, Message: lenient.Text(message, maxMessage)}
	for _, code := range codes {
		if code != nil && *code != 0 && e.ExitCode == nil {
			e.ExitCode = code
		}
	}
	if status == statusCancelled || c != nil && c.Stopped == "shutdown" {
		e.Reason, e.Message = muster.WorkerShutdown, cmp.Or(e.Message, "its TrainForge worker shut down")
		return e
	}
	if c == nil {
		switch {
		case status == statusCompleted:
			e.Outcome, e.Message = muster.AttemptSucceeded, ""
		case e.ExitCode != nil:
			e.Reason, e.Message = muster.ExitCode, cmp.Or(e.Message, "the program failed; TrainForge's worker reported no reason")
		default:
			e.Reason, e.Message = muster.StartFailed, cmp.Or(e.Message, "TrainForge's worker reported a failure without a reason")
		}
		return e
	}
	e.ExitCode, e.Usage, e.Result = c.ExitCode, &muster.Usage{WallSeconds: c.Wall}, c.Result
	return c.fillReport(e, status)
}

func (c *control) fillReport(e fleet.FinalReport, status string) fleet.FinalReport {
	failed := c.ExitCode == nil || *c.ExitCode != 0
	switch {
	case c.Stopped == "timeout":
		e.Outcome, e.Reason, e.Message = muster.AttemptTimedOut, muster.Timeout, "it ran for longer than its timeout"
	case c.Failure != nil && failed:
		e.Reason, e.Message = c.Failure.Reason, cmp.Or(lenient.Text(c.Failure.Message, maxMessage), "the program says so, and not why")
		if !slices.Contains(allowedReasons, e.Reason) {
			e.Reason = muster.ExitCode
		}
	case c.Signal != 0:
		e.Reason, e.Message = muster.Signal, "ended by signal "+itoa(c.Signal)
	case failed:
		e.Reason, e.Message = muster.ExitCode, "it ended without an exit code"
		if c.ExitCode != nil {
			e.Message = "exit code " + itoa(*c.ExitCode)
		}
	case len(c.Missing) > 0:
		e.Reason, e.Message = muster.ArtifactMissing, "the output "+lenient.Text(c.Missing[0], 200)+" is not there"
	case c.ResultError != "":
		e.Reason, e.Message = muster.ResultInvalid, "result.json: "+lenient.Text(c.ResultError, 200)
	case c.UploadError != "":
		e.Reason, e.Message = muster.UploadFailed, "the worker could not upload the outputs: "+lenient.Text(c.UploadError, 400)
	case status != statusCompleted:
		e.Reason, e.Message = muster.StartFailed, cmp.Or(e.Message, "the program succeeded, but TrainForge's worker reported a failure")
	default:
		e.Outcome, e.Message = muster.AttemptSucceeded, ""
	}
	return e
}

// allowedReasons are those that a program may give for its failure.
var allowedReasons = []muster.Reason{ //nolint:gochecknoglobals // constants
	muster.BadInput, muster.Dependency, muster.Diverged, muster.OutOfMemory, muster.ArtifactMissing, muster.ExitCode, muster.StartFailed,
}

// finish reports a task's end to the server, once what it wrote is there.
func (g *Gateway) finish(ctx context.Context, t *fleet.Task, status, message string, codes []*int) error {
	ctx, cancel := g.reportContext(ctx)
	defer cancel()
	ts := g.state(t)
	ts.reportMu.Lock()
	defer ts.reportMu.Unlock()
	if err := g.markStarted(t, ts); err != nil {
		return err
	}
	if workerForm(t.Worker()) == formNode {
		if err := g.tailOutput(ctx, t, ts); err != nil {
			return err
		}
	}
	c := ts.snapshot().End
	e := toFinalReport(status, message, codes, c)
	if c != nil && len(c.Outputs) > 0 && e.Reason != muster.WorkerShutdown {
		if err := g.collectOutputs(ctx, t, c.Outputs); err != nil {
			if e.Outcome == muster.AttemptSucceeded {
				e.Outcome = muster.AttemptFailed
			}
			e.Reason, e.Message = muster.UploadFailed, "the outputs could not be taken from the shared folder: "+err.Error()
		}
	}
	err := t.Finish(ctx, e)
	if muster.CodeOf(err) == muster.Invalid && e.Result != nil { // such as a result that is too large
		e.Outcome, e.Reason, e.Message, e.Result = muster.AttemptFailed, muster.ResultInvalid, err.Error(), nil
		err = t.Finish(ctx, e)
	}
	if err == nil {
		wake.Set(g.wake)
	}
	return err
}

func (g *Gateway) collectOutputs(ctx context.Context, t *fleet.Task, outputs [][2]string) error {
	root, err := os.OpenRoot(filepath.Join(g.sharedDir, t.ID()))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	remaining := resultLimits.Bytes
	for _, o := range outputs[:min(len(outputs), resultLimits.Files)] {
		name, err := archive.Path("the output", o[0])
		if err != nil {
			return err
		}
		f, err := run.OpenRegularIn(root, o[1])
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			if remaining -= info.Size(); remaining < 0 {
				err = muster.Errorf(muster.TooLarge, "they are larger than %s", muster.Size(resultLimits.Bytes))
			} else {
				err = t.AddArtifact(ctx, name, f, resultLimits.Bytes)
			}
		}
		_ = f.Close() // it was read
		if err != nil {
			return err
		}
	}
	return nil
}
