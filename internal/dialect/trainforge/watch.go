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
	bringing = 4       // tasks whose files are brought at once
	chunk    = 1 << 20 // of a shared output that is read at once
	maxDrops = 3       // jobs in a row that a worker may drop
)

func itoa(n int) string { return strconv.Itoa(n) }

// watch looks at all tasks again and again: brings files, reads shared output, and gives up on what workers dropped.
func (g *Gateway) watch(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(bringing)
	tick := time.NewTicker(g.time.look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-tick.C:
		case <-g.wake:
		}
		held := map[string]bool{}
		for _, w := range g.fleet.Workers() {
			for _, t := range w.Tasks() {
				held[t.ID()] = true
				g.look(ctx, group, t)
			}
		}
		g.forget(held)
	}
}

// forget removes what is left of tasks that are over.
func (g *Gateway) forget(held map[string]bool) {
	over := map[string]*track{}
	g.mu.Lock()
	for id, at := range g.tracks {
		if !held[id] && g.fleet.Task(id) == nil {
			over[id] = at
			delete(g.tracks, id)
		}
	}
	for ticket, at := range g.tickets {
		if time.Since(at) > g.time.ticket {
			delete(g.tickets, ticket)
		}
	}
	// Tickets stay bound for a while, so that late reports are recognised: see late.
	if len(g.bound) > 10*maxListed {
		for ticket, id := range g.bound {
			if g.tracks[id] == nil {
				delete(g.bound, ticket)
			}
		}
	}
	g.mu.Unlock()
	for id, at := range over {
		if at.doing.TryLock() { // else it is just being finished, and is looked at again
			g.clear(id, at)
			at.doing.Unlock()
		} else {
			g.mu.Lock()
			g.tracks[id] = at
			g.mu.Unlock()
		}
	}
}

func (g *Gateway) look(ctx context.Context, group *errgroup.Group, t *fleet.Task) {
	at := g.track(t)
	if !t.Began() {
		g.bring(ctx, group, t, at)
	} else if formOf(t.Worker()) == node && at.doing.TryLock() {
		if err := g.tail(ctx, t, at); err != nil && muster.CodeOf(err) != muster.Conflict && ctx.Err() == nil {
			g.env.Log.Warn("the output of a job cannot be read from the shared folder", slog.String("job", t.ID()), slog.Any("error", err))
		}
		at.doing.Unlock()
	}
	if g.unreported(at) {
		g.reportFor(ctx, group, t, at)
	} else if why := g.silent(t, at); why != "" {
		g.giveUp(ctx, t, why)
	}
}

// unreported reports whether a task's program has ended and its worker, which reports that once and does not repeat it, has not said so.
func (g *Gateway) unreported(at *track) bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.noted.End != nil && time.Since(at.heard) > g.time.last
}

// reportFor reports a task's end as its program said.
func (g *Gateway) reportFor(ctx context.Context, group *errgroup.Group, t *fleet.Task, at *track) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.busy {
		return
	}
	status, end := statusFailed, at.noted.End
	if end.ExitCode != nil && *end.ExitCode == 0 {
		status = statusCompleted
	}
	at.busy = group.TryGo(func() error {
		g.env.Log.Warn("a TrainForge worker did not report a job that has ended", slog.String("worker", t.Worker().ID()), slog.String("task", t.Run().Attempt.String()))
		if err := g.finish(ctx, t, status, "", nil); err != nil && muster.CodeOf(err) != muster.Conflict && ctx.Err() == nil {
			g.env.Log.Warn("a job's end cannot be reported", slog.String("task", t.Run().Attempt.String()), slog.Any("error", err))
		}
		at.mu.Lock()
		at.busy = false
		at.mu.Unlock()
		return nil
	})
}

// bring fetches the files of a task and puts its project where its worker looks for it.
func (g *Gateway) bring(ctx context.Context, group *errgroup.Group, t *fleet.Task, at *track) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.ready || at.busy {
		return
	}
	at.busy = group.TryGo(func() error {
		err := g.prepare(ctx, t, at)
		at.mu.Lock()
		at.busy, at.ready = false, err == nil
		at.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			g.refuseTask(ctx, t, err)
		}
		return nil
	})
}

func (g *Gateway) prepare(ctx context.Context, t *fleet.Task, at *track) error {
	folder, err := t.Folder(ctx)
	if err != nil {
		return err
	}
	form := formOf(t.Worker())
	if form == external {
		return nil
	}
	p, err := project.New(t.Run(), t.ID(), DefaultScheduler, folder, deviceNumbers(t.Run().Grant), form == node)
	if err != nil {
		return err
	}
	if err := g.sharedFolder(); err != nil {
		return err
	}
	if err := at.note(func(n *noted) { n.Placed = true }); err != nil {
		return err
	}
	err = p.Place(ctx, g.shared, form == node)
	g.mu.Lock()
	_, path := errors.AsType[*fs.PathError](err)
	g.failing = path
	g.mu.Unlock()
	return err
}

// sharedFolder makes the default one, which must be ours: its parent is open to all.
func (g *Gateway) sharedFolder() error {
	if g.given {
		return nil
	}
	err := os.Mkdir(g.shared, 0o711) //nolint:gosec // ids in it cannot be guessed, and it cannot be listed
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Lstat(g.shared)
		if err != nil {
			return err
		}
		if !info.IsDir() || !ours(info) || info.Mode().Perm()&0o022 != 0 {
			return run.Failf(muster.WorkerInternal, "%s belongs to another user or can be changed by others: start the server with --dialect trainforge=…,projects=DIR", g.shared)
		}
		return nil
	}
	return err
}

// refuseTask ends a task that cannot be given to its worker.
func (g *Gateway) refuseTask(ctx context.Context, t *fleet.Task, why error) {
	e := fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: why.Error()}
	if f, ok := errors.AsType[*run.TaskError](why); ok {
		e.Reason, e.Message = f.Reason, f.Message
	}
	if muster.CodeOf(why) == muster.TooLarge {
		e.Reason = muster.BadInput
	}
	g.env.Log.Warn("a task cannot be given to a TrainForge worker", slog.String("task", t.Run().Attempt.String()), slog.Any("error", why))
	g.conclude(ctx, t, e)
}

func (g *Gateway) conclude(ctx context.Context, t *fleet.Task, e fleet.Ending) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := t.Finish(ctx, e); err != nil && muster.CodeOf(err) != muster.Conflict && ctx.Err() == nil {
		g.env.Log.Warn("a task cannot be given back", slog.String("task", t.Run().Attempt.String()), slog.Any("error", err))
	}
}

// tail passes on what the runner wrote to the shared folder since the last look. at.doing is held.
func (g *Gateway) tail(ctx context.Context, t *fleet.Task, at *track) error {
	root, err := os.OpenRoot(filepath.Join(g.shared, t.ID()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	f, err := run.OpenRegularIn(root, project.Output)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for ctx.Err() == nil {
		b := make([]byte, chunk)
		n, err := f.ReadAt(b, at.get().Offset)
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
		if err := g.pass(ctx, t, at, strings.Split(strings.TrimSuffix(string(b[:end]), "\n"), "\n")); err != nil {
			return err
		}
		if err := at.note(func(n *noted) { n.Offset += int64(end) }); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// silent says why a task is given up: its worker dropped it, or its program has not been heard of for too long. "" while it may go on.
func (g *Gateway) silent(t *fleet.Task, at *track) string {
	at.mu.Lock()
	defer at.mu.Unlock()
	limit := g.time.claim
	if formOf(t.Worker()) == node {
		limit = g.time.node
	}
	switch {
	case !t.Began():
		if at.shown.IsZero() || time.Since(at.shown) < limit {
			return ""
		}
		return "its TrainForge worker took it and did not start it in " + limit.String()
	case at.alive && time.Since(at.heard) > g.time.quiet:
		return "its program on the TrainForge worker was not heard of for " + g.time.quiet.String()
	case time.Since(at.heard) > g.time.setup:
		return "nothing was heard of it from its TrainForge worker for " + g.time.setup.String()
	default:
		return ""
	}
}

// giveUp hands a task back to the server.
func (g *Gateway) giveUp(ctx context.Context, t *fleet.Task, why string) {
	w, began := t.Worker(), t.Began()
	e := fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.WorkerRestarted, Message: why}
	if !began {
		e.Reason = muster.Rejected
		g.mu.Lock()
		g.dropped[w.ID()]++
		drops := g.dropped[w.ID()]
		g.mu.Unlock()
		if drops >= maxDrops {
			w.Constrain("dropped", "it took "+itoa(drops)+" jobs and started none. "+
				"TrainForge's worker_node.py drops jobs without a word where Docker is importable (start it with DOCKER_HOST=bogus://x), and where there is no program python, no idle core or no project folder")
		}
	}
	g.env.Log.Warn("a job is taken from a TrainForge worker", slog.String("worker", w.ID()), slog.String("task", t.Run().Attempt.String()), slog.String("why", why))
	g.conclude(ctx, t, e)
}
