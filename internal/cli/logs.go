package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

type logsConfig struct {
	remote
	follow  bool
	tail    int
	stderr  bool
	stdout  bool
	attempt int
}

func (c *logsConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "follow", short: "f", usage: "go on until the task has ended, over its later attempts too"}.on(&c.follow),
		option{name: "tail", short: "n", usage: "begin with the last `N` lines"}.number(&c.tail, 1, math.MaxInt32),
		option{name: "stderr", usage: "only what the task wrote to standard error"}.on(&c.stderr),
		option{name: "stdout", usage: "only what the task wrote to standard output"}.on(&c.stdout),
		option{name: "attempt", usage: "of attempt `N` (default: the last one)"}.number(&c.attempt, 1, math.MaxInt32),
	}, c.remote.flags())
}

func (a *app) logsCommand() *cli.Command {
	c := &logsConfig{}
	return a.command(command{
		name: "logs", usage: "print the output of tasks", args: "JOB|TASK…", category: watch, flags: c.flags(),
		about: "What a task wrote to standard output goes to standard output, and its standard error to standard error. " +
			"Lines of several tasks begin with the task's number.",
		run: func(ctx context.Context, args []string) error { return a.logs(ctx, c, args) },
	})
}

func (a *app) logs(ctx context.Context, c *logsConfig, args []string) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	if c.stdout && c.stderr {
		return muster.Errorf(muster.Invalid, "--stdout and --stderr exclude each other: leave both out for all output")
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	sels, err := selection(ctx, server, args)
	if err != nil {
		return err
	}
	o := client.LogOptions{Attempt: c.attempt, Tail: c.tail, Follow: c.follow}
	switch {
	case c.stdout:
		o.Stream = client.Stdout
	case c.stderr:
		o.Stream = client.Stderr
	}
	return (&printer{server: server, out: a.out, err: a.err}).selected(ctx, sels, o)
}

// atOnce is how many tasks' output is read at the same time.
const atOnce = 16

// printer writes the output of tasks to two streams.
type printer struct {
	server *client.Client

	mu       sync.Mutex // of the streams
	out, err io.Writer
}

// selected prints the output of all tasks that the selectors name. Those with
// higher numbers wait until there is a place.
func (p *printer) selected(ctx context.Context, sels []selector, o client.LogOptions) error {
	prefixed, err := several(ctx, p.server, sels)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1) // one after the other reads better
	if o.Follow {
		group.SetLimit(atOnce)
	}
	for t, err := range tasksOf(ctx, p.server, sels, nil) {
		if err != nil {
			cancel()
			return errors.Join(err, ignoreCancel(group.Wait()))
		}
		group.Go(func() error { return p.task(ctx, t.ID, o, prefixed) })
	}
	return group.Wait()
}

// several says whether the selectors name more than one task.
func several(ctx context.Context, server *client.Client, sels []selector) (bool, error) {
	if len(sels) != 1 {
		return true, nil
	}
	if sels[0].Spans != nil {
		_, one := sels[0].task()
		return !one, nil
	}
	job, err := server.Job(ctx, sels[0].Job)
	return job.Counts.Total() > 1, err
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// task prints the output of one task.
func (p *printer) task(ctx context.Context, id muster.TaskID, o client.LogOptions, prefixed bool) error {
	out, errs := &lineWriter{printer: p, w: p.out}, &lineWriter{printer: p, w: p.err}
	if prefixed {
		out.prefix, errs.prefix = id.String()+" | ", id.String()+" | "
	}
	defer out.flush()
	defer errs.flush()
	attempt := 0
	for l, err := range p.server.Logs(ctx, id, o) {
		if err != nil {
			return err
		}
		if attempt != 0 && l.Attempt != attempt {
			out.flush()
			errs.write(fmt.Appendf(nil, "muster: %s is tried again: attempt %d\n", id, l.Attempt))
		}
		attempt = l.Attempt
		switch l.Stream {
		case client.Stdout:
			out.write(l.Data)
		case client.System:
			errs.flush()
			errs.write(append([]byte("muster: "), l.Data...))
		default:
			errs.write(l.Data)
		}
	}
	return ctx.Err()
}

// lineWriter passes output on as it is or, with a prefix, in whole lines.
type lineWriter struct {
	printer *printer
	w       io.Writer
	prefix  string
	rest    []byte // of a line that has not ended
}

// maxRest is how long an unfinished line may grow before it is printed.
const maxRest = 64 << 10

// write cannot fail: who closes standard output early has seen enough, and the
// signal for that ends the program.
func (w *lineWriter) write(data []byte) {
	if w.prefix == "" {
		w.pass(data)
		return
	}
	w.rest = append(w.rest, data...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			break
		}
		w.pass(slices.Concat([]byte(w.prefix), line, []byte("\n")))
		w.rest = rest
	}
	if len(w.rest) > maxRest {
		w.flush()
	}
}

func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.pass(slices.Concat([]byte(w.prefix), w.rest, []byte("\n")))
		w.rest = nil
	}
}

func (w *lineWriter) pass(data []byte) {
	w.printer.mu.Lock()
	defer w.printer.mu.Unlock()
	_, _ = w.w.Write(data) // see write
}
