package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// MaxConcurrent is how many tasks' output is read at the same time.
const MaxConcurrent = 16

// Printer writes the output of tasks to two streams.
type Printer struct {
	server *client.Client

	mu       sync.Mutex // of the streams
	out, err io.Writer
}

// NewPrinter makes a printer that writes the tasks' standard output to out, and
// everything else to err.
func NewPrinter(server *client.Client, out, err io.Writer) *Printer {
	return &Printer{server: server, out: out, err: err}
}

// Print prints the output of all tasks that the selectors name. Those with
// higher numbers wait until there is a place. Of a job with several stages that is
// followed it says how each of them ended.
func (p *Printer) Print(ctx context.Context, sels []remote.Selector, o client.LogOptions) error {
	prefixed, err := remote.MultipleTasks(ctx, p.server, sels)
	if err != nil {
		return err
	}
	stages, err := loadStages(ctx, p.server, sels)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1) // one after the other reads better
	if o.Follow {
		group.SetLimit(MaxConcurrent)
	}
	for t, err := range remote.Tasks(ctx, p.server, sels, nil) {
		if err != nil {
			cancel()
			return errors.Join(err, ignoreCancel(group.Wait()))
		}
		prefix := ""
		if prefixed {
			prefix = stages.label(&t) + " | "
		}
		group.Go(func() error {
			if !hasNoOutput(&t) {
				if err := p.printTask(ctx, t.ID, o, prefix); err != nil {
					return err
				}
			}
			if !o.Follow {
				return nil
			}
			return stages.taskEnded(ctx, p.server, t.ID, func(line string) { (&lineWriter{printer: p, w: p.err}).emit([]byte(line)) })
		})
	}
	return group.Wait()
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// hasNoOutput reports whether there is surely nothing to print of a task, as of many
// in a big array.
func hasNoOutput(t *muster.Task) bool {
	return t.State == muster.Succeeded && t.LogSize == 0 && t.Attempt <= 1
}

// printTask prints the output of one task, with a prefix before each line.
func (p *Printer) printTask(ctx context.Context, id muster.TaskID, o client.LogOptions, prefix string) error {
	out, errs := &lineWriter{printer: p, w: p.out, prefix: prefix}, &lineWriter{printer: p, w: p.err, prefix: prefix}
	defer out.flush()
	defer errs.flush()
	attempt := 0
	for l, err := range p.server.Logs(ctx, id, o) {
		if err != nil {
			return err
		}
		if attempt != 0 && l.Attempt != attempt {
			out.flush()
			errs.write(fmt.Appendf(nil, "muster: %s is tried again: attempt %d%s\n", id, l.Attempt, p.retryCause(ctx, id, attempt, l.Attempt)))
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

// retryCause words why an attempt had to follow on others, from the one that was shown before it: how
// the last of these ended that a worker took. It is "" where the server does not tell.
func (p *Printer) retryCause(ctx context.Context, id muster.TaskID, previous, attempt int) string {
	all, err := p.server.Attempts(ctx, id)
	if err != nil {
		return ""
	}
	for _, a := range slices.Backward(all) {
		if a.ID.N >= previous && a.ID.N < attempt && a.Outcome != muster.AttemptRejected {
			return " (after " + formatOutcome(&a) + ")"
		}
	}
	return ""
}

// formatOutcome words how an attempt ended.
func formatOutcome(a *muster.Attempt) string {
	message := term.Sanitize(a.Message)
	switch {
	case a.Reason == muster.ExitCode && a.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *a.ExitCode)
	case a.Reason == muster.NoReason:
		return string(a.Outcome)
	case message == "":
		return string(a.Reason)
	default:
		return string(a.Reason) + ": " + message
	}
}

// lineWriter passes output on as it is or, with a prefix, in whole lines.
type lineWriter struct {
	printer *Printer
	w       io.Writer
	prefix  string
	partial []byte // of a line that has not ended
}

// maxPartial is how long an unfinished line may grow before it is printed.
const maxPartial = 64 << 10

// write cannot fail: who closes standard output early has seen enough, and the
// signal for that ends the program.
func (w *lineWriter) write(data []byte) {
	if w.prefix == "" {
		w.emit(data)
		return
	}
	w.partial = append(w.partial, data...)
	for {
		line, rest, ok := bytes.Cut(w.partial, []byte("\n"))
		if !ok {
			break
		}
		w.emit(slices.Concat([]byte(w.prefix), line, []byte("\n")))
		w.partial = rest
	}
	if len(w.partial) > maxPartial {
		w.flush()
	}
}

func (w *lineWriter) flush() {
	if len(w.partial) > 0 {
		w.emit(slices.Concat([]byte(w.prefix), w.partial, []byte("\n")))
		w.partial = nil
	}
}

func (w *lineWriter) emit(data []byte) {
	w.printer.mu.Lock()
	defer w.printer.mu.Unlock()
	_, _ = w.w.Write(data) // see write
}
