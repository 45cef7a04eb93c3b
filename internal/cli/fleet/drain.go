package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type drainConfig struct {
	remote.QueryOptions
	deadline *muster.Duration
	noWait   bool
}

func (a *runner) drainCommand() *cli.Command {
	c := &drainConfig{}
	return a.NewCommand(app.Command{
		Name: "drain", Usage: "Drain workers: let them finish their tasks, then stop them", Args: "WORKER…", Complete: c.CompleteWorkers(),
		Flags: c.Flags(
			app.Option{Name: "deadline", Usage: "Stop tasks that still run after this time, such as 10m, and requeue them with their checkpoints (default: never)"}.
				OptionalDurationVar(&c.deadline),
			app.Option{Name: "no-wait", Usage: "Do not wait until they have left"}.BoolVar(&c.noWait)),
		Description: workerNameHelp + " The command waits until they have left, and shows the running tasks; Ctrl-C stops waiting, not the drain.",
		Run:         func(ctx context.Context, args []string) error { return a.drain(ctx, c, args) },
	})
}

func (a *runner) drain(ctx context.Context, c *drainConfig, names []string) error {
	ctx, forceCtx, stop := app.ShutdownContexts(ctx) // requests complete, so that their outcome is known
	defer stop()
	server, workers, err := apply(&c.QueryOptions, names, func(server *client.Client, name string) (w muster.Worker, err error) {
		err = a.WaitForResponse(ctx, func() error {
			w, err = server.DrainWorker(forceCtx, name, c.deadline)
			return err
		})
		return w, err
	})
	draw := a.printStatus(func(w *muster.Worker) string { return drainStatus(w, time.Now()) })
	if err != nil {
		if len(workers) > 0 {
			err = errors.Join(app.PrintItems(a.App, c.OutputOptions, workers, workerID, draw), err)
		}
		return err
	}
	if !c.noWait {
		workers, err = a.waitDrained(ctx, server, workers)
		if errors.Is(err, context.Canceled) {
			a.Messagef("the drain continues: muster workers resume %s undoes it", strings.Join(names, " "))
		}
		if err != nil {
			return err
		}
	}
	return app.PrintItems(a.App, c.OutputOptions, workers, workerID, draw)
}

// drainStatus describes the progress of a drain.
func drainStatus(w *muster.Worker, now time.Time) string {
	switch {
	case w.State == muster.WorkerGone:
		return "has left"
	case w.State == muster.WorkerUnreachable && w.Running == 0:
		return "is unreachable and has no tasks; it leaves when it reconnects"
	case w.State == muster.WorkerUnreachable:
		return "is unreachable; its tasks are lost if it does not reconnect"
	case w.Deadline > 0:
		return "draining; it " + formatDeadline(w, now)
	default:
		return "draining; it leaves when its last task has ended"
	}
}

// waitDrained waits until all workers are drained, with the running tasks in a status line.
func (a *runner) waitDrained(ctx context.Context, server *client.Client, workers []muster.Worker) ([]muster.Worker, error) {
	v := &drainView{started: time.Now(), workers: workers, tasks: map[muster.TaskID]muster.Task{}}
	err := a.RunWithStatus(ctx, v.line, func(ctx context.Context) error {
		ctx, done := context.WithCancel(ctx)
		defer done()
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error {
			defer done()
			return v.follow(ctx, server)
		})
		if a.Err.Interactive {
			group.Go(func() error { return v.watchTasks(ctx, server) })
		}
		return group.Wait()
	})
	return v.workers, err
}

// drainView is the state of draining workers.
type drainView struct {
	started time.Time

	mu      sync.Mutex
	workers []muster.Worker
	tasks   map[muster.TaskID]muster.Task // in the status line
}

// follow reads the workers after each change, until all are drained.
func (v *drainView) follow(ctx context.Context, server *client.Client) error {
	for e, err := range server.Events(ctx, client.EventQuery{Types: []muster.EventType{muster.EventWorker}}) {
		if err != nil {
			return err
		}
		if e.Type != muster.EventResync && !v.has(e.Worker) {
			continue
		}
		if done, err := v.refresh(ctx, server); done || err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (v *drainView) has(id muster.WorkerID) bool {
	return slices.ContainsFunc(v.snapshot(), func(w muster.Worker) bool { return w.ID == id })
}

// snapshot returns a copy of the workers.
func (v *drainView) snapshot() []muster.Worker {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.workers)
}

// refresh reads the workers and reports whether all are drained: they have left, or are
// unreachable without tasks. It returns a Conflict if a drain was undone.
func (v *drainView) refresh(ctx context.Context, server *client.Client) (done bool, err error) {
	done = true
	for i, w := range v.snapshot() {
		now, err := server.Worker(ctx, string(w.ID))
		switch {
		case err == nil:
			w = now
		case muster.CodeOf(err) == muster.NotFound:
			w.State, w.Running, w.Tasks = muster.WorkerGone, 0, nil // it was removed
		default:
			return false, err
		}
		v.mu.Lock()
		v.workers[i] = w
		v.mu.Unlock()
		switch w.State {
		case muster.WorkerGone:
		case muster.WorkerUnreachable:
			done = done && w.Running == 0
		case muster.WorkerDraining:
			done = false
		default:
			return false, muster.Errorf(muster.Conflict, "the drain of worker %s was undone: it is %s", w.Name, w.State)
		}
	}
	return done, nil
}

const (
	maxShownTasks       = 4 // in the status line
	taskRefreshInterval = time.Second
)

// watchTasks refreshes the tasks of the status line until ctx ends.
func (v *drainView) watchTasks(ctx context.Context, server *client.Client) error {
	for {
		if err := v.readTasks(ctx, server); err != nil && ctx.Err() == nil {
			return err
		}
		if backoff.Sleep(ctx, taskRefreshInterval) != nil {
			return nil //nolint:nilerr // ctx ended
		}
	}
}

func (v *drainView) readTasks(ctx context.Context, server *client.Client) error {
	tasks := map[muster.TaskID]muster.Task{}
	for i, w := range v.snapshot() {
		w, err := server.Worker(ctx, string(w.ID))
		if muster.CodeOf(err) == muster.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		for _, task := range w.Tasks {
			if len(tasks) >= maxShownTasks {
				break
			}
			if tasks[task], err = server.Task(ctx, task); err != nil {
				return err
			}
		}
		v.mu.Lock()
		v.workers[i].Running, v.workers[i].Tasks = w.Running, w.Tasks
		v.mu.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tasks = tasks
	return nil
}

// line returns the status line: elapsed time, running tasks with their progress, and the time left.
func (v *drainView) line() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names, tasks []string
	running := 0
	var last muster.Time
	for i := range v.workers {
		w := &v.workers[i]
		if w.State == muster.WorkerGone {
			continue
		}
		names = append(names, w.Name)
		running += w.Running
		last = max(last, w.Deadline)
		for _, id := range w.Tasks {
			if t, known := v.tasks[id]; known {
				tasks = append(tasks, strings.TrimSpace(id.String()+" "+app.TaskProgress(&t)))
			}
		}
	}
	s := fmt.Sprintf("%s  draining %s: %s running", term.FormatDuration(time.Since(v.started)), strings.Join(names, ", "), term.Plural(running, "task"))
	if len(tasks) > 0 {
		s += " (" + strings.Join(tasks, ", ")
		if running > len(tasks) {
			s += ", …"
		}
		s += ")"
	}
	switch remaining := time.Until(last.Std()); {
	case last == 0:
	case remaining > 0:
		s += ", stopping in " + term.FormatDuration(remaining)
	default:
		s += ", stopping"
	}
	return s
}
