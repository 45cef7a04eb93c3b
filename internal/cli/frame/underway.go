package frame

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// Underway runs do with a status line on a terminal.
func (a *App) Underway(ctx context.Context, line func() string, do func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	shown, done := context.WithCancel(ctx)
	group.Go(func() error { return term.NewStatus(a.Err).Run(shown, line) })
	group.Go(func() error {
		defer done()
		return do(ctx)
	})
	return group.Wait()
}

// BytesBar is the status line of a transfer.
type BytesBar struct {
	verb  string
	Total atomic.Int64 // below 0 while it is not known
	Done  atomic.Int64
	began time.Time
}

// NewBytesBar begins a bar for total bytes, below 0 if that is not known yet.
func NewBytesBar(verb string, total int64) *BytesBar {
	b := &BytesBar{verb: verb, began: time.Now()}
	b.Total.Store(total)
	return b
}

// Line is the status line now.
func (b *BytesBar) Line() string {
	total, done, passed := b.Total.Load(), b.Done.Load(), time.Since(b.began)
	if total < 0 {
		return fmt.Sprintf("%s: reading files, %s", b.verb, term.Elapsed(passed))
	}
	share := 1.0
	if total > 0 {
		share = float64(done) / float64(total)
	}
	rate := ""
	if s := passed.Seconds(); s > 1 {
		rate = fmt.Sprintf(", %s/s", muster.Size(float64(done)/s))
	}
	return fmt.Sprintf("%s %s %s of %s%s", b.verb, term.Bar(20, share), muster.Size(done), muster.Size(total), rate)
}
