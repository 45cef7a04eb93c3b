// Package watch implements --watch: it shows a list and its changes. A terminal shows the table in place;
// otherwise each changed row is printed, as kubectl get --watch does, with -o json one line per object.
package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/wake"
)

// Flag returns the option --watch.
func Flag(on *bool) cli.Flag {
	return app.Option{Name: "watch", Short: "w", Usage: "Watch for changes until Ctrl-C", Group: "Output"}.BoolVar(on)
}

const (
	minReadInterval = 500 * time.Millisecond // between two reads
	refreshInterval = 2 * time.Second        // of values without events, such as the counts of a running job
)

// List is a list that is written once or, with --watch, shown with its changes.
type List[T any] struct {
	app.Listing[T] // without its Rows
	Watch          bool
	Normalize      func(T) T // removes fields that change all the time: a row is printed again if the rest changes
	Events         client.EventQuery
	Fetch          func(ctx context.Context, limit int) iter.Seq2[T, error] // may yield more than limit rows; 0 means all
	FetchChanged   func(ctx context.Context, b live.Batch) iter.Seq2[T, error]
}

// Connect returns a client for a list.
func Connect(r *remote.ServerOptions, watch bool) (*client.Client, error) {
	if watch {
		return live.ConnectNoRetry(r)
	}
	return r.Connect()
}

// Run writes the list, or shows it until ctx ends or a permanent error.
func (r *List[T]) Run(ctx context.Context, a *app.App, server *client.Client) error {
	if !r.Watch {
		page := 0
		if r.Limit > 0 {
			page = r.Limit + 1 // one more says whether the list is truncated
		}
		r.Rows = r.Fetch(ctx, page)
		return r.Write(a)
	}
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	show := r.print
	if a.Out.Interactive && r.Human() {
		show = r.draw
	}
	feed := live.New(server, r.Events)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return feed.Run(ctx) })
	group.Go(func() error {
		if err := show(ctx, a, feed); err != nil {
			return err
		}
		return ctx.Err()
	})
	return group.Wait()
}

// fetch yields at most limit rows of the list, or all if it is 0.
func (r *List[T]) fetch(ctx context.Context, limit int) iter.Seq2[T, error] {
	if limit == 0 || r.Limit > 0 && r.Limit < limit {
		limit = r.Limit
	}
	if limit == 0 {
		return r.Fetch(ctx, 0)
	}
	return func(yield func(T, error) bool) {
		n := 0
		for v, err := range r.Fetch(ctx, limit) {
			if n++; !yield(v, err) || n == limit {
				return
			}
		}
	}
}

// waitChange waits at most d for a change, and returns the changes.
func waitChange(ctx context.Context, feed *live.Feed, d time.Duration) live.Batch {
	_ = wake.Wait(ctx, feed.Changed(), d) // the caller checks ctx
	return feed.Pop()
}

// throttle waits until minReadInterval after the last read.
func throttle(ctx context.Context, last time.Time) {
	_ = backoff.Sleep(ctx, time.Until(last.Add(minReadInterval))) // the caller checks ctx
}

// printer prints changed rows.
type printer[T any] struct {
	*List[T]

	app    *app.App
	hashes map[string]uint64 // of each row as it was printed
	seed   maphash.Seed
	widths []int
}

// print prints the list, and then each row that changed.
func (r *List[T]) print(ctx context.Context, a *app.App, feed *live.Feed) error {
	p := &printer[T]{List: r, app: a, hashes: map[string]uint64{}, seed: maphash.MakeSeed()}
	lost := false
	b := waitChange(ctx, feed, refreshInterval)
	for first := true; ctx.Err() == nil; first = false {
		read := time.Now()
		loss := feed.Loss()
		if loss.Err != nil && first {
			return loss.Err
		}
		if loss.Err != nil && !lost {
			a.Messagef("muster: %v; reconnecting", loss.Err)
		}
		if lost && loss.Err == nil {
			a.Messagef("muster: reconnected")
		}
		if lost = loss.Err != nil; !lost {
			var err error
			if b.Resync || first {
				err = p.rows(r.fetch(ctx, 0))
			} else {
				err = p.rows(r.FetchChanged(ctx, b))
			}
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // ctx ended
			case err != nil && (first || !live.IsTemporary(err)):
				return err
			case err != nil:
				b.Resync = true // read all again
			case first && len(p.hashes) == 0 && r.Human():
				a.Messagef("%s", r.EmptyMessage)
			}
			if err != nil {
				throttle(ctx, read)
				continue
			}
		}
		missed := lost && (b.Resync || len(b.Events) > 0)
		b = waitChange(ctx, feed, refreshInterval)
		b.Resync = b.Resync || missed
		throttle(ctx, read)
		more := feed.Pop()
		b.Resync, b.Events = b.Resync || more.Resync, append(b.Events, more.Events...)
	}
	return nil
}

func (p *printer[T]) rows(rows iter.Seq2[T, error]) error {
	if p.widths == nil && p.Human() {
		return p.printFirst(rows)
	}
	for v, err := range rows {
		if err != nil {
			return err
		}
		changed, err := p.recordChange(v)
		if err == nil && changed {
			err = p.printRow(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printFirst prints the titles and the rows below them.
func (p *printer[T]) printFirst(rows iter.Seq2[T, error]) error {
	var all [][]string
	titles := make([]string, len(p.Columns))
	widths := make([]int, len(p.Columns))
	for i, c := range p.Columns {
		titles[i], widths[i] = c.Title, term.Width(c.Title)
		if c.NoTruncate && !c.AlignRight {
			widths[i] = max(widths[i], len("succeeded")) // states change
		}
	}
	for v, err := range rows {
		if err != nil {
			clear(p.hashes)
			return err
		}
		if _, err := p.recordChange(v); err != nil {
			return err
		}
		cells := p.Row(v, time.Now())
		all = append(all, cells)
		for i := range widths {
			widths[i] = max(widths[i], term.Width(term.Sanitize(cells[i])))
		}
	}
	p.widths = widths
	for _, cells := range append([][]string{titles}, all...) {
		if err := p.printLine(cells); err != nil {
			return err
		}
	}
	return nil
}

// recordChange stores the hash of a row and reports whether it differs from the printed one.
func (p *printer[T]) recordChange(v T) (bool, error) {
	data, err := json.Marshal(p.Normalize(v))
	if err != nil {
		return false, fmt.Errorf("encode: %w", err)
	}
	id, sum := p.ID(v), maphash.Bytes(p.seed, data)
	last, seen := p.hashes[id]
	p.hashes[id] = sum
	return !seen || last != sum, nil
}

func (p *printer[T]) printRow(v T) error {
	switch {
	case p.Human():
		return p.printLine(p.Row(v, time.Now()))
	default:
		return p.app.PrintLine(p.OutputOptions, v, p.ID(v), nil)
	}
}

func (p *printer[T]) printLine(cells []string) error {
	var b strings.Builder
	for i := range p.widths {
		text := term.Sanitize(cells[i])
		p.widths[i] = max(p.widths[i], term.Width(text))
		fill := strings.Repeat(" ", max(0, p.widths[i]-term.Width(text)))
		if p.Columns[i].AlignRight {
			text, fill = fill+text, ""
		}
		b.WriteString(text + fill + "  ")
	}
	return app.WriteOutput(p.app.Out, []byte(strings.TrimRight(b.String(), " ")+"\n"))
}

// draw draws the list on a terminal and redraws it in place when it changes.
func (r *List[T]) draw(ctx context.Context, a *app.App, feed *live.Feed) error {
	c := canvas{screen: a.Out}
	var rows []T
	var truncated bool
	dirty, loaded := true, false
	var read time.Time
	for ctx.Err() == nil {
		_, height := a.Out.Size()
		limit := max(1, height-3) // without the titles, the last line, and the prompt after the end
		if dirty || time.Since(read) >= refreshInterval {
			read = time.Now()
			fetched, err := remote.Collect(r.fetch(ctx, limit+1), limit+1)
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // ctx ended
			case err == nil:
				truncated = len(fetched) > limit
				rows, dirty, loaded = fetched[:min(len(fetched), limit)], false, true
			case !loaded || !live.IsTemporary(err):
				return err
			}
		}
		if loaded {
			loss := feed.Loss()
			if err := c.draw(func(s term.Screen) error { return r.table(s, rows, truncated, loss.Status(time.Now())) }); err != nil {
				return err
			}
		}
		b := waitChange(ctx, feed, time.Second)
		if b.Resync || len(b.Events) > 0 {
			throttle(ctx, read)
			dirty = true
		}
	}
	return nil
}

func (r *List[T]) table(s term.Screen, rows []T, truncated bool, problem string) error {
	now := time.Now()
	table := term.NewTable(r.Columns...)
	for _, v := range rows {
		table.AddRow(r.Row(v, now)...)
	}
	note := "watching; Ctrl-C stops"
	switch {
	case len(rows) == 0:
		note = r.EmptyMessage
	case truncated:
		note = fmt.Sprintf("the first %d; enlarge the terminal or use muster top to see more; Ctrl-C stops", len(rows))
	}
	style := term.Dim
	if problem != "" {
		note, style = problem, term.Red
	}
	var err error
	if len(rows) > 0 {
		err = table.Draw(s)
	}
	return errors.Join(err, app.WriteOutput(s, []byte(s.Paint(style, term.Truncate(note, s.Width-1))+"\n")))
}

// canvas is a part of a terminal that is redrawn in place.
type canvas struct {
	screen term.Screen
	drawn  string
	lines  int
	width  int
	height int
}

func (c *canvas) draw(draw func(term.Screen) error) error {
	width, height := c.screen.Size()
	var b bytes.Buffer
	s := c.screen
	s.Writer, s.Width = &b, width
	if err := draw(s); err != nil {
		return err
	}
	text := b.String()
	if text == c.drawn && width == c.width && height == c.height {
		return nil
	}
	var out strings.Builder
	switch {
	case c.drawn == "":
	case width != c.width || height != c.height: // the terminal may have wrapped lines
		out.WriteString("\x1b[2J\x1b[H")
	default:
		fmt.Fprintf(&out, "\x1b[%dA", c.lines)
	}
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimSuffix(line, "\n") + "\x1b[K\r\n")
	}
	out.WriteString("\x1b[J")
	c.drawn, c.lines, c.width, c.height = text, strings.Count(text, "\n"), width, height
	return app.WriteOutput(c.screen.Writer, []byte(out.String()))
}

// Identity is a Stable that compares whole rows.
func Identity[T any](v T) T { return v }

// WithoutHeartbeat returns a worker without the fields that each heartbeat changes.
func WithoutHeartbeat(w muster.Worker) muster.Worker {
	w.Load, w.LastSeenAt = nil, 0
	return w
}
