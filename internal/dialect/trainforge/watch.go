package trainforge

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

const (
	maxPreparing = 4       // tasks whose files are brought at once
	chunkSize    = 1 << 20 // of a shared output that is read at once
	maxDrops     = 3       // jobs in a row that a worker may drop
)

func itoa(n int) string { return strconv.Itoa(n) }

// watch looks at all tasks again and again: brings files, reads shared output, and gives up on what workers dropped.
func (g *Gateway) watch(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxPreparing)
	tick := time.NewTicker(g.timeouts.scanInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-tick.C:
		case <-g.wake:
		}
		held := map[string]bool{}
		for _, w := range g.Fleet.Workers() {
			for _, t := range w.Tasks() {
				held[t.ID()] = true
				g.checkTask(ctx, group, t)
			}
		}
		g.forget(held)
	}
}

func (g *Gateway) forget(held map[string]bool) {
	over := map[string]*taskState{}
	g.mu.Lock()
	for id, ts := range g.states {
		if !held[id] && g.Fleet.Task(id) == nil && ts.reportMu.TryLock() { // else it is just being finished, and is looked at again
			over[id] = ts
			delete(g.states, id)
		}
	}
	for ticket, ts := range g.tickets {
		if time.Since(ts) > g.timeouts.ticketTTL {
			delete(g.tickets, ticket)
		}
	}
	// Tickets stay bound for a while, so that late reports are recognised: see isLate.
	if len(g.boundTickets) > 10*maxListed {
		for ticket, id := range g.boundTickets {
			if g.states[id] == nil {
				delete(g.boundTickets, ticket)
			}
		}
	}
	g.mu.Unlock()
	for id, ts := range over {
		g.removeState(id, ts)
		ts.reportMu.Unlock()
	}
}

func (g *Gateway) checkTask(ctx context.Context, group *errgroup.Group, t *fleet.Task) {
	ts := g.state(t)
	if !t.Started() && !ts.ready.Load() {
		ts.background(group, func() { g.prepareTask(ctx, t, ts) })
	} else if t.Started() && workerForm(t.Worker()) == formNode && ts.reportMu.TryLock() {
		if err := g.tailOutput(ctx, t, ts); err != nil && muster.CodeOf(err) != muster.Conflict && ctx.Err() == nil {
			g.Deps.Log.Warn("the output of a job cannot be read from the shared folder", slog.String("job", t.ID()), slog.Any("error", err))
		}
		ts.reportMu.Unlock()
	}
	if g.reportOverdue(ts) {
		ts.background(group, func() { g.finishFor(ctx, t, ts.snapshot().End) })
	} else if reason := g.silenceReason(t, ts); reason != "" {
		g.requeue(ctx, t, reason)
	}
}

// reportOverdue reports whether a task's program has ended and its worker, which reports that once and does not repeat it, has not said so.
func (g *Gateway) reportOverdue(ts *taskState) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.saved.End != nil && time.Since(ts.lastHeard) > g.timeouts.reportGrace
}

// background runs f, unless something runs for the task already or too much does for others.
func (t *taskState) background(group *errgroup.Group, f func()) {
	if t.busy.CompareAndSwap(false, true) && !group.TryGo(func() error {
		defer t.busy.Store(false)
		f()
		return nil
	}) {
		t.busy.Store(false)
	}
}

func (g *Gateway) finishFor(ctx context.Context, t *fleet.Task, end *control) {
	status := statusFailed
	if end.ExitCode != nil && *end.ExitCode == 0 {
		status = statusCompleted
	}
	g.Deps.Log.Warn("a TrainForge worker did not report a job that has ended", slog.String("worker", t.Worker().ID()), slog.String("task", t.Run().Attempt.String()))
	if err := g.finish(ctx, t, status, "", nil); err != nil && muster.CodeOf(err) != muster.Conflict && ctx.Err() == nil {
		g.Deps.Log.Warn("cannot report the end of a job", slog.String("task", t.Run().Attempt.String()), slog.Any("error", err))
	}
}

// prepareTask fetches the files of a task and puts its project where its worker looks for it.
func (g *Gateway) prepareTask(ctx context.Context, t *fleet.Task, ts *taskState) {
	err := g.prepare(ctx, t, ts)
	ts.ready.Store(err == nil)
	if err != nil && ctx.Err() == nil {
		g.rejectTask(ctx, t, err)
	}
}

func (g *Gateway) prepare(ctx context.Context, t *fleet.Task, ts *taskState) error {
	folder, err := t.FetchInputs(ctx)
	if err != nil {
		return err
	}
	form := workerForm(t.Worker())
	if form == formExternal {
		return nil
	}
	p, err := project.New(t.Run(), t.ID(), DefaultScheduler, folder, deviceNumbers(t.Run().Grant), form == formNode)
	if err != nil {
		return err
	}
	if err := g.ensureSharedDir(); err != nil {
		return err
	}
	if err := ts.save(func(n *savedState) { n.Placed = true }); err != nil {
		return err
	}
	err = p.WriteShared(ctx, g.sharedDir, form == formNode)
	_, path := errors.AsType[*fs.PathError](err)
	g.writeFailing.Store(path)
	return err
}

// ensureSharedDir makes the default one, which must be ours: its parent is open to all.
func (g *Gateway) ensureSharedDir() error {
	if g.sharedConfigured {
		return nil
	}
	err := os.Mkdir(g.sharedDir, 0o711) //nolint:gosec // ids in it cannot be guessed, and it cannot be listed
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(g.sharedDir)
	if err == nil && (!info.IsDir() || !ownedByUs(info) || info.Mode().Perm()&0o022 != 0) {
		err = run.Failf(muster.WorkerInternal, "%s belongs to another user or can be changed by others: start the server with --dialect trainforge=…,projects=DIR", g.sharedDir)
	}
	return err
}

func (g *Gateway) rejectTask(ctx context.Context, t *fleet.Task, reason error) {
	e := fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: reason.Error()}
	if f, ok := errors.AsType[*run.TaskError](reason); ok {
		e.Reason, e.Message = f.Reason, f.Message
	}
	if muster.CodeOf(reason) == muster.TooLarge {
		e.Reason = muster.BadInput
	}
	g.Deps.Log.Warn("a task cannot be given to a TrainForge worker", slog.String("task", t.Run().Attempt.String()), slog.Any("error", reason))
	g.finishWith(ctx, t, e)
}

func (g *Gateway) finishWith(ctx context.Context, t *fleet.Task, e fleet.FinalReport) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := t.Finish(ctx, e); err != nil && muster.CodeOf(err) != muster.Conflict && ctx.Err() == nil {
		g.Deps.Log.Warn("a task cannot be given back", slog.String("task", t.Run().Attempt.String()), slog.Any("error", err))
	}
}

// tailOutput passes on what the runner wrote to the shared folder since the last look. ts.reportMu is held.
func (g *Gateway) tailOutput(ctx context.Context, t *fleet.Task, ts *taskState) error {
	root, err := os.OpenRoot(filepath.Join(g.sharedDir, t.ID()))
	var f *os.File
	if err == nil {
		defer func() { _ = root.Close() }()
		f, err = run.OpenRegularIn(root, project.OutputFile)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for ctx.Err() == nil {
		b := make([]byte, chunkSize)
		n, err := f.ReadAt(b, ts.snapshot().Offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		end := bytes.LastIndexByte(b[:n], '\n') + 1
		if end == 0 && n == len(b) {
			end = n
		}
		if end == 0 {
			return nil
		}
		if err := g.processLines(ctx, t, ts, strings.Split(strings.TrimSuffix(string(b[:end]), "\n"), "\n")); err != nil {
			return err
		}
		if err := ts.save(func(n *savedState) { n.Offset += int64(end) }); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// silenceReason returns why a task is given up: its worker dropped it, or its program was silent for too long. It is "" while the task may continue.
func (g *Gateway) silenceReason(t *fleet.Task, ts *taskState) string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	limit := g.timeouts.claimStart
	if workerForm(t.Worker()) == formNode {
		limit = g.timeouts.nodeStart
	}
	switch {
	case !t.Started():
		if ts.offeredAt.IsZero() || time.Since(ts.offeredAt) < limit {
			return ""
		}
		return "its TrainForge worker took it and did not start it in " + limit.String()
	case ts.runnerSeen.Load() && time.Since(ts.lastHeard) > g.timeouts.runnerSilence:
		return "its program on the TrainForge worker sent no report for " + g.timeouts.runnerSilence.String()
	case time.Since(ts.lastHeard) > g.timeouts.setup:
		return "its TrainForge worker sent no report about it for " + g.timeouts.setup.String()
	default:
		return ""
	}
}

func (g *Gateway) requeue(ctx context.Context, t *fleet.Task, reason string) {
	w, began := t.Worker(), t.Started()
	e := fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.WorkerRestarted, Message: reason}
	if !began {
		e.Reason = muster.Rejected
		if drops := g.droppedJobs.Update(w.ID(), func(n int, _ bool) int { return n + 1 }); drops >= maxDrops {
			w.Constrain("dropped", "it took "+itoa(drops)+" jobs and started none. "+
				"TrainForge's worker_node.py drops jobs without a word where Docker is importable (start it with DOCKER_HOST=bogus://x), and where there is no program python, no idle core or no project folder")
		}
	}
	g.Deps.Log.Warn("a job is taken from a TrainForge worker", slog.String("worker", w.ID()), slog.String("task", t.Run().Attempt.String()), slog.String("why", reason))
	g.finishWith(ctx, t, e)
}
