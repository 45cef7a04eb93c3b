package follow

import (
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
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// Tell is what is said when a job has ended of what it left.
type Tell int

// What may be said. At a terminal it is no less than Left.
const (
	Nothing   Tell = iota
	Artifacts      // how to come to its artifacts
	Left           // and to its results
)

// follower shows one job until it has ended: its output, and on a terminal a
// status line.
type follower struct {
	app    *frame.App
	server *client.Client
	id     muster.JobID
	tell   Tell
	began  time.Time
	status *term.Status

	shown map[string]bool // files that were told of; only watch uses it

	mu   sync.Mutex
	seen progressView
}

var errDetached = errors.New("detached")

// Signals returns SIGINT and SIGTERM for Follow, from now on until release. It is called before the job is submitted, so
// that none is lost that comes when the job is there and not followed yet.
func Signals() (sigs chan os.Signal, release func()) {
	sigs = make(chan os.Signal, 1)
	signal.Notify(sigs, frame.StopSignals()...)
	return sigs, func() { signal.Stop(sigs) }
}

// Follow shows a job until it has ended and returns its exit status as an
// error. SIGINT and SIGTERM, of Signals, cancel the job; at a terminal the user is asked
// whether they should. tell is said at the end.
func Follow(ctx context.Context, a *frame.App, server *client.Client, job muster.Job, tell Tell, sigs chan os.Signal) error {
	if tell == Nothing && a.Err.Live {
		tell = Left
	}
	f := &follower{app: a, server: server, id: job.ID, tell: tell, began: time.Now(), status: term.NewStatus(a.Err), seen: progressView{job: job}, shown: map[string]bool{}}
	group, ctx := errgroup.WithContext(ctx)
	watching, done := context.WithCancel(ctx)
	group.Go(func() error { return f.status.Run(watching, f.line) })
	group.Go(func() error { return f.signals(watching, sigs) })
	if a.Err.Live {
		group.Go(func() error { return f.watch(watching) })
	}
	group.Go(func() error { return f.look(watching) })
	group.Go(func() error {
		defer done()
		p := NewPrinter(server, f.status.Above(a.Out), f.status.Above(a.Err))
		sels := []remote.Selector{{Job: job.ID}}
		if err := p.Selected(ctx, sels, client.LogOptions{Follow: true}); err != nil {
			return err
		}
		var err error
		job, err = server.Wait(ctx, job.ID)
		return err
	})
	err := group.Wait()
	if errors.Is(err, errDetached) {
		a.Say("job %s goes on: muster logs -f %s shows its output, muster cancel %s stops it", f.id, f.id, f.id)
		return nil
	}
	if err != nil {
		return err
	}
	return f.outcome(context.WithoutCancel(ctx), job)
}

// outcome says how the job ended, where its exit status does not say enough.
func (f *follower) outcome(ctx context.Context, job muster.Job) error {
	status, first, err := JobStatus(ctx, f.server, job)
	if err != nil {
		return err
	}
	live := f.app.Err.Live
	if live {
		f.app.Say("job %s %s after %s", job.ID, f.app.Err.Paint(frame.StateStyle(string(job.State)), string(job.State)), term.Elapsed(time.Since(f.began)))
	}
	if f.tell != Nothing {
		kept(ctx, f.app, f.server, job, f.tell)
	}
	if status == 0 {
		return nil
	}
	many := job.Counts.Total() > 1
	if first == nil || !many && first.Reason == muster.ExitCode && !live {
		return &frame.StatusError{Status: status}
	}
	note := term.Clean(frame.TaskNote(first))
	if note == "" {
		note = "no reason is known"
	}
	ended := strings.ReplaceAll(first.State.String(), "_", " ")
	err = fmt.Errorf("task %s %s: %s", long(&job, first.ID), ended, note)
	if n := job.Counts[first.State] - 1; n > 0 {
		err = fmt.Errorf("%w; %d more %s: muster tasks %s --state %s lists them", err, n, ended, job.ID, first.State)
	}
	return &frame.StatusError{Status: status, Err: err}
}

// signals waits for SIGINT and SIGTERM. It returns nil when ctx ends.
func (f *follower) signals(ctx context.Context, sigs chan os.Signal) error {
	cancelled := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case sig := <-sigs:
			if cancelled {
				return &frame.StatusError{Status: frame.ExitCancelled, Err: fmt.Errorf("job %s was told to stop; it is not awaited", f.id)}
			}
			wish := cancelJob
			if sig == os.Interrupt && f.app.Err.Live {
				wish = f.ask(ctx, sigs)
			}
			switch wish {
			case cancelJob:
				cancelled = true
				if _, err := f.server.Cancel(ctx, f.id, nil); err != nil && muster.CodeOf(err) != muster.Conflict {
					return err
				}
			case detach:
				return errDetached
			case goOn:
			}
		}
	}
}

// wish is what the user wants after Ctrl-C.
type wish int

const (
	cancelJob wish = iota
	detach
	goOn
)

// ask asks at the terminal. A second Ctrl-C means cancel.
func (f *follower) ask(ctx context.Context, sigs chan<- os.Signal) wish {
	asking, stop := signal.NotifyContext(ctx, frame.StopSignals()...)
	defer stop()
	signal.Stop(sigs) // the next one answers the question
	defer signal.Notify(sigs, frame.StopSignals()...)
	var answer string
	var err error
	f.status.Hold(func() {
		answer, err = term.Ask(asking, f.app.Err, fmt.Sprintf("\njob %s: [c]ancel it, [d]etach and let it go on, or Enter to stay? ", f.id))
	})
	switch {
	case err != nil:
		fmt.Fprintln(f.app.Err)
		return cancelJob
	case answer == "c" || answer == "cancel":
		return cancelJob
	case answer == "d" || answer == "detach":
		return detach
	default:
		return goOn
	}
}
