// Package watch shows a list and each change of it: what --watch does. On a
// terminal the table is drawn again in place; otherwise each changed row is
// printed, as kubectl get --watch does, and with -o json each changed object as
// one line.
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
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// Flag is the option that turns watching on.
func Flag(on *bool) cli.Flag {
	return frame.Option{Name: "watch", Short: "w", Usage: "show changes as they happen, until Ctrl-C", Group: "Output"}.On(on)
}

const (
	gap   = 500 * time.Millisecond // between two reads
	every = 2 * time.Second        // what has no event, such as the counts of a running job, is read this often
)

// Rows is a list that is watched.
type Rows[T any] struct {
	frame.Format
	Columns []term.Column
	Row     func(v T, now time.Time) []string
	ID      func(T) string
	Stable  func(T) T // without what changes all the time, to tell whether a row changed
	Empty   string
	Events  client.EventQuery
	All     func(ctx context.Context, limit int) iter.Seq2[T, error] // at most limit rows, unless that is 0
	Some    func(ctx context.Context, b live.Batch) iter.Seq2[T, error]
}

// Run shows the list until ctx ends or the server refuses.
func (r *Rows[T]) Run(ctx context.Context, a *frame.App, server *client.Client) error {
	ctx, stop := frame.Interruptible(ctx)
	defer stop()
	show := r.print
	if a.Out.Live && r.People() {
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

// next waits for a change, but not longer than d, and returns what changed.
func next(ctx context.Context, feed *live.Feed, d time.Duration) live.Batch {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-feed.Changed():
	}
	return feed.Take()
}

// settle waits until the time for another read has come.
func settle(ctx context.Context, last time.Time) {
	t := time.NewTimer(time.Until(last.Add(gap)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// printer prints rows that changed.
type printer[T any] struct {
	*Rows[T]

	app    *frame.App
	seen   map[string]uint64 // what was printed of each row
	seed   maphash.Seed
	widths []int
}

// print prints the list, and then each row that changed.
func (r *Rows[T]) print(ctx context.Context, a *frame.App, feed *live.Feed) error {
	p := &printer[T]{Rows: r, app: a, seen: map[string]uint64{}, seed: maphash.MakeSeed()}
	lost := false
	b := next(ctx, feed, every)
	for first := true; ctx.Err() == nil; first = false {
		read := time.Now()
		loss := feed.Loss()
		if loss.Err != nil && first {
			return loss.Err
		}
		if loss.Err != nil && !lost {
			a.Say("muster: %v; connecting again", loss.Err)
		}
		if lost && loss.Err == nil {
			a.Say("muster: connected again")
		}
		if lost = loss.Err != nil; !lost {
			var err error
			if b.All || first {
				err = p.rows(r.All(ctx, 0))
			} else {
				err = p.rows(r.Some(ctx, b))
			}
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // the end of ctx is why
			case err != nil && (first || !live.Temporary(err)):
				return err
			case err != nil:
				b.All = true // the next read makes up for it
			case first && len(p.seen) == 0 && r.People():
				a.Say("%s", r.Empty)
			}
			if err != nil {
				settle(ctx, read)
				continue
			}
		}
		missed := lost && (b.All || len(b.Events) > 0)
		b = next(ctx, feed, every)
		b.All = b.All || missed
		settle(ctx, read)
		more := feed.Take()
		b.All, b.Events = b.All || more.All, append(b.Events, more.Events...)
	}
	return nil
}

func (p *printer[T]) rows(rows iter.Seq2[T, error]) error {
	if p.widths == nil && p.People() {
		return p.first(rows)
	}
	for v, err := range rows {
		if err != nil {
			return err
		}
		changed, err := p.changed(v)
		if err == nil && changed {
			err = p.one(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// first prints the titles and the rows below them.
func (p *printer[T]) first(rows iter.Seq2[T, error]) error {
	var all [][]string
	titles := make([]string, len(p.Columns))
	widths := make([]int, len(p.Columns))
	for i, c := range p.Columns {
		titles[i], widths[i] = c.Title, term.Width(c.Title)
		if c.Whole && !c.Right {
			widths[i] = max(widths[i], len("succeeded")) // states change
		}
	}
	for v, err := range rows {
		if err != nil {
			clear(p.seen)
			return err
		}
		if _, err := p.changed(v); err != nil {
			return err
		}
		cells := p.Row(v, time.Now())
		all = append(all, cells)
		for i := range widths {
			widths[i] = max(widths[i], term.Width(term.Clean(cells[i])))
		}
	}
	p.widths = widths
	for _, cells := range append([][]string{titles}, all...) {
		if err := p.line(cells); err != nil {
			return err
		}
	}
	return nil
}

// changed remembers a row and reports whether it differs from what was printed of it.
func (p *printer[T]) changed(v T) (bool, error) {
	data, err := json.Marshal(p.Stable(v))
	if err != nil {
		return false, fmt.Errorf("encode: %w", err)
	}
	id, sum := p.ID(v), maphash.Bytes(p.seed, data)
	last, known := p.seen[id]
	p.seen[id] = sum
	return !known || last != sum, nil
}

func (p *printer[T]) one(v T) error {
	switch {
	case p.Quiet:
		return frame.Write(p.app.Out, []byte(p.ID(v)+"\n"))
	case p.Output == "json":
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		return frame.Write(p.app.Out, b.Bytes())
	case p.Output == "yaml":
		if err := frame.Write(p.app.Out, []byte("---\n")); err != nil {
			return err
		}
		return p.app.Show(p.Format, v, nil, nil)
	default:
		return p.line(p.Row(v, time.Now()))
	}
}

func (p *printer[T]) line(cells []string) error {
	var b strings.Builder
	for i := range p.widths {
		text := term.Clean(cells[i])
		p.widths[i] = max(p.widths[i], term.Width(text))
		fill := strings.Repeat(" ", max(0, p.widths[i]-term.Width(text)))
		if p.Columns[i].Right {
			text, fill = fill+text, ""
		}
		b.WriteString(text + fill + "  ")
	}
	return frame.Write(p.app.Out, []byte(strings.TrimRight(b.String(), " ")+"\n"))
}

// draw draws the list on a terminal, again in place whenever it changed.
func (r *Rows[T]) draw(ctx context.Context, a *frame.App, feed *live.Feed) error {
	c := canvas{screen: a.Out}
	var rows []T
	var cut bool
	dirty, known := true, false
	var read time.Time
	for ctx.Err() == nil {
		_, height := a.Out.Size()
		limit := max(1, height-3) // the titles, the last line, and the prompt after the end
		if dirty || time.Since(read) >= every {
			read = time.Now()
			got, err := collect(r.All(ctx, limit+1), limit+1)
			switch {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // the end of ctx is why
			case err == nil:
				cut = len(got) > limit
				rows, dirty, known = got[:min(len(got), limit)], false, true
			case !known || !live.Temporary(err):
				return err
			}
		}
		if known {
			if err := c.draw(func(s term.Screen) error { return r.table(s, rows, cut, server(feed)) }); err != nil {
				return err
			}
		}
		b := next(ctx, feed, time.Second)
		if b.All || len(b.Events) > 0 {
			settle(ctx, read)
			dirty = true
		}
	}
	return nil
}

func collect[T any](rows iter.Seq2[T, error], limit int) ([]T, error) {
	var all []T
	for v, err := range rows {
		if err != nil {
			return nil, err
		}
		if all = append(all, v); len(all) == limit {
			break
		}
	}
	return all, nil
}

// server says how the connection is.
func server(feed *live.Feed) string {
	loss := feed.Loss()
	if loss.Err == nil {
		return ""
	}
	if wait := time.Until(loss.Retry).Round(time.Second); wait > 0 {
		return fmt.Sprintf("disconnected, retrying in %d s", int(wait.Seconds()))
	}
	return "disconnected, retrying"
}

func (r *Rows[T]) table(s term.Screen, rows []T, cut bool, trouble string) error {
	now := time.Now()
	table := term.NewTable(r.Columns...)
	for _, v := range rows {
		table.Row(r.Row(v, now)...)
	}
	note := "watching; Ctrl-C stops"
	switch {
	case len(rows) == 0:
		note = r.Empty
	case cut:
		note = fmt.Sprintf("the first %d; enlarge the terminal or use muster top to see more; Ctrl-C stops", len(rows))
	}
	style := term.Dim
	if trouble != "" {
		note, style = trouble, term.Red
	}
	err := error(nil)
	if len(rows) > 0 {
		err = table.Draw(s)
	}
	return errors.Join(err, frame.Write(s, []byte(s.Paint(style, term.Fit(note, s.Width-1))+"\n")))
}

// canvas is a part of a terminal that is drawn again in place.
type canvas struct {
	screen term.Screen
	drawn  string
	lines  int
	width  int
	height int
}

func (c *canvas) draw(what func(term.Screen) error) error {
	width, height := c.screen.Size()
	var b bytes.Buffer
	s := c.screen
	s.Writer, s.Width = &b, width
	if err := what(s); err != nil {
		return err
	}
	text := b.String()
	if text == c.drawn && width == c.width && height == c.height {
		return nil
	}
	var out strings.Builder
	switch {
	case c.drawn == "":
	case width != c.width || height != c.height: // the terminal has wrapped the lines: begin at the top
		out.WriteString("\x1b[2J\x1b[H")
	default:
		fmt.Fprintf(&out, "\x1b[%dA", c.lines)
	}
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimSuffix(line, "\n") + "\x1b[K\r\n")
	}
	out.WriteString("\x1b[J")
	c.drawn, c.lines, c.width, c.height = text, strings.Count(text, "\n"), width, height
	return frame.Write(c.screen, []byte(out.String()))
}

// Unchanged is a Stable of rows that hold nothing that changes all the time.
func Unchanged[T any](v T) T { return v }

// Steady is a worker without what each heartbeat changes.
func Steady(w muster.Worker) muster.Worker {
	w.Load, w.LastSeenAt = nil, 0
	return w
}

// Fewer returns the smaller one of two limits, of which 0 means none.
func Fewer(a, b int) int {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// First ends a sequence after limit elements, unless that is 0.
func First[T any](rows iter.Seq2[T, error], limit int) iter.Seq2[T, error] {
	if limit == 0 {
		return rows
	}
	return func(yield func(T, error) bool) {
		n := 0
		for v, err := range rows {
			if n++; !yield(v, err) || n == limit {
				return
			}
		}
	}
}
