// Package follow shows running jobs: their output, a status line on terminals, the prompt after Ctrl-C,
// and the exit status of their outcome.
package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// Summary selects the messages about artifacts and results when a job has ended.
type Summary int

// The summaries. On a terminal, SummaryNone means SummaryFull.
const (
	SummaryNone      Summary = iota
	SummaryArtifacts         // how to download its artifacts
	SummaryFull              // also how to print its results
)

// follower shows one job until it has ended.
type follower struct {
	app     *app.App
	server  *client.Client
	id      muster.JobID
	summary Summary
	started time.Time
	status  *term.StatusLine

	announced map[string]bool // artifacts; used by watchEvents only

	mu       sync.Mutex
	progress progressView
}

var errDetached = errors.New("detached")

// Signals returns a channel with SIGINT and SIGTERM for Follow, until release. Call it before the job is submitted, so
// that no signal is lost before Follow.
func Signals() (sigs chan os.Signal, release func()) {
	sigs = make(chan os.Signal, 1)
	signal.Notify(sigs, app.StopSignals()...)
	return sigs, func() { signal.Stop(sigs) }
}

// Follow shows a job until it has ended and returns its exit status as an error. SIGINT and SIGTERM
// cancel the job; on a terminal, SIGINT prompts first. At the end, it prints the summary.
func Follow(ctx context.Context, a *app.App, server *client.Client, job muster.Job, summary Summary, sigs chan os.Signal) error {
	if summary == SummaryNone && a.Err.Interactive {
		summary = SummaryFull
	}
	f := &follower{app: a, server: server, id: job.ID, summary: summary, started: time.Now(), status: term.NewStatusLine(a.Err), progress: progressView{job: job}, announced: map[string]bool{}}
	group, ctx := errgroup.WithContext(ctx)
	watchCtx, done := context.WithCancel(ctx)
	group.Go(func() error { return f.status.Run(watchCtx, f.line) })
	group.Go(func() error { return f.handleSignals(watchCtx, sigs) })
	if a.Err.Interactive {
		group.Go(func() error { return f.watchEvents(watchCtx) })
	}
	group.Go(func() error { return f.pollJob(watchCtx) })
	group.Go(func() error {
		defer done()
		p := NewPrinter(server, f.status.Above(a.Out), f.status.Above(a.Err))
		if err := p.followJob(ctx, &job); err != nil {
			return err
		}
		ended, err := server.Job(ctx, job.ID) // usually, it has ended with its last task
		if err == nil && !ended.State.Final() {
			ended, err = server.Wait(ctx, job.ID)
		}
		job = ended
		return err
	})
	err := group.Wait()
	if errors.Is(err, errDetached) {
		a.Messagef("job %s keeps running: muster logs -f %s shows its output, muster cancel %s stops it", f.id, f.id, f.id)
		return nil
	}
	if err != nil {
		return err
	}
	return f.reportOutcome(context.WithoutCancel(ctx), job)
}

// reportOutcome prints how the job ended, unless the exit status is sufficient.
func (f *follower) reportOutcome(ctx context.Context, job muster.Job) error {
	status, first, err := JobExitStatus(ctx, f.server, job)
	if err != nil {
		return err
	}
	interactive := f.app.Err.Interactive
	if interactive {
		f.app.Messagef("job %s %s after %s", job.ID, f.app.Err.Paint(app.StateStyle(string(job.State)), string(job.State)), term.FormatDuration(time.Since(f.started)))
	}
	if f.summary != SummaryNone {
		printSummary(ctx, f.app, f.server, job, f.summary)
	}
	if status == 0 {
		return nil
	}
	multiple := job.Counts.Total() > 1
	if first == nil || !multiple && first.Reason == muster.ExitCode && !interactive {
		return &app.StatusError{Status: status}
	}
	note := cmp.Or(term.Sanitize(app.TaskNote(first)), "unknown reason")
	ending := strings.ReplaceAll(first.State.String(), "_", " ")
	err = fmt.Errorf("task %s %s: %s", taskLabel(&job, first.ID), ending, note)
	if n := job.Counts[first.State] - 1; n > 0 {
		err = fmt.Errorf("%w; %d more %s: muster tasks %s --state %s lists them, muster retry %s runs them again", err, n, ending, job.ID, first.State, job.ID)
	}
	return &app.StatusError{Status: status, Err: err}
}

// handleSignals handles SIGINT and SIGTERM. It returns nil when ctx ends.
func (f *follower) handleSignals(ctx context.Context, sigs chan os.Signal) error {
	cancelled := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case sig := <-sigs:
			if cancelled {
				return &app.StatusError{Status: app.ExitCancelled, Err: fmt.Errorf("job %s is being cancelled; not waiting for it", f.id)}
			}
			action := actionCancel
			if sig == os.Interrupt && f.app.Err.Interactive {
				action = f.promptInterrupt(ctx, sigs)
			}
			switch action {
			case actionCancel:
				cancelled = true
				if _, err := f.server.Cancel(ctx, f.id, nil); err != nil && muster.CodeOf(err) != muster.Conflict {
					return err
				}
			case actionDetach:
				return errDetached
			case actionContinue:
			}
		}
	}
}

// interruptAction is the answer to the prompt after Ctrl-C.
type interruptAction int

const (
	actionCancel interruptAction = iota
	actionDetach
	actionContinue
)

// promptInterrupt prompts on the terminal. A second Ctrl-C means cancel.
func (f *follower) promptInterrupt(ctx context.Context, sigs chan<- os.Signal) interruptAction {
	promptCtx, stop := signal.NotifyContext(ctx, app.StopSignals()...)
	defer stop()
	signal.Stop(sigs) // the next one answers the prompt
	defer signal.Notify(sigs, app.StopSignals()...)
	var answer string
	var err error
	f.status.Suspend(func() {
		answer, err = term.Prompt(promptCtx, f.app.Err, fmt.Sprintf("\njob %s: [c]ancel it, [d]etach and keep it running, or Enter to continue? ", f.id))
	})
	switch {
	case err != nil:
		fmt.Fprintln(f.app.Err)
		return actionCancel
	case answer == "c" || answer == "cancel":
		return actionCancel
	case answer == "d" || answer == "detach":
		return actionDetach
	default:
		return actionContinue
	}
}
