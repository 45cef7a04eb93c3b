package app

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// RunWithStatus runs fn, with a status line if standard error is a terminal.
func (a *App) RunWithStatus(ctx context.Context, line func() string, fn func(context.Context) error) error {
	return a.RunWithMessages(ctx, line, func(ctx context.Context, _ io.Writer) error { return fn(ctx) })
}

// RunWithMessages is RunWithStatus for a function that writes messages to standard error, which are above the status line. The
// writer may be used concurrently.
func (a *App) RunWithMessages(ctx context.Context, line func() string, fn func(ctx context.Context, messages io.Writer) error) error {
	group, ctx := errgroup.WithContext(ctx)
	statusCtx, stopStatus := context.WithCancel(ctx)
	status := term.NewStatusLine(a.Err)
	group.Go(func() error { return status.Run(statusCtx, line) })
	group.Go(func() error {
		defer stopStatus()
		return fn(ctx, status.Above(a.Err))
	})
	return group.Wait()
}

// TransferBar is the status line of a transfer. Its fields may be set concurrently.
type TransferBar struct {
	verb    string
	Total   atomic.Int64 // bytes; negative means unknown
	Done    atomic.Int64 // bytes
	started time.Time
}

// NewTransferBar returns a bar for total bytes, negative if unknown.
func NewTransferBar(verb string, total int64) *TransferBar {
	b := &TransferBar{verb: verb, started: time.Now()}
	b.Total.Store(total)
	return b
}

// Line returns the current status line.
func (b *TransferBar) Line() string {
	total, done, elapsed := b.Total.Load(), b.Done.Load(), time.Since(b.started)
	if total < 0 && done == 0 {
		return fmt.Sprintf("%s: reading files, %s", b.verb, term.FormatDuration(elapsed))
	}
	fraction := 1.0
	if total > 0 {
		fraction = float64(done) / float64(total)
	}
	rate := ""
	if s := elapsed.Seconds(); s > 1 {
		rate = fmt.Sprintf(", %s/s", muster.Size(float64(done)/s))
	}
	if total < 0 {
		return fmt.Sprintf("%s: %s%s", b.verb, muster.Size(done), rate)
	}
	return fmt.Sprintf("%s %s %s of %s%s", b.verb, term.ProgressBar(20, fraction), muster.Size(done), muster.Size(total), rate)
}
