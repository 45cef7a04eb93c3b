// Package fleet has the commands about workers: to list, show and steer them.
package fleet

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

type workersConfig struct {
	remote.Remote
	frame.Format
	gone  bool
	watch bool
}

func (c *workersConfig) flags() []cli.Flag { return slices.Concat(c.Format.Flags(), c.Remote.Flags()) }

// commands is one run of the program.
type commands struct{ *frame.App }

// Command returns muster workers.
func Command(app *frame.App) *cli.Command {
	a := &commands{app}
	c := &workersConfig{}
	list := append([]cli.Flag{frame.Option{Name: "all", Short: "a", Usage: "list workers that have left, too"}.On(&c.gone), watch.Flag(&c.watch)}, c.flags()...)
	return a.Command(frame.Command{
		Name: "workers", Usage: "list and steer the workers", Category: frame.Admin, Flags: list,
		Commands: []*cli.Command{
			a.showWorkerCommand(), a.drainCommand(), a.pauseCommand(), a.resumeCommand(), a.healCommand(), a.removeCommand(),
		},
		Run: func(ctx context.Context, _ []string) error {
			return a.workers(ctx, c)
		},
	})
}

func (a *commands) workers(ctx context.Context, c *workersConfig) error {
	if c.watch {
		return a.watchWorkers(ctx, c)
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	all, err := server.Workers(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	l := frame.Listing[muster.Worker]{
		Format: c.Format,
		ID:     func(w muster.Worker) string { return string(w.ID) },
		Table:  term.NewTable(c.columns()...),
		Row:    func(w muster.Worker) []string { return workerRow(w, now) },
		Empty:  noWorkers,
		Rows:   c.wanted(all, nil),
	}
	return l.Write(a.App)
}

const noWorkers = "no workers: start one with muster worker"

// wanted yields those of the workers that are listed, and those that have left just now.
func (c *workersConfig) wanted(all []muster.Worker, left []muster.Event) iter.Seq2[muster.Worker, error] {
	return func(yield func(muster.Worker, error) bool) {
		for _, w := range all {
			news := slices.ContainsFunc(left, func(e muster.Event) bool { return e.Worker == w.ID })
			if (c.gone || news || w.State != muster.WorkerGone) && !yield(w, nil) {
				return
			}
		}
	}
}

// watchWorkers shows the workers and each change of them.
func (a *commands) watchWorkers(ctx context.Context, c *workersConfig) error {
	server, err := live.Connect(&c.Remote)
	if err != nil {
		return err
	}
	all := func(ctx context.Context, changed []muster.Event) iter.Seq2[muster.Worker, error] {
		return func(yield func(muster.Worker, error) bool) {
			workers, err := server.Workers(ctx)
			if err != nil {
				yield(muster.Worker{}, err)
				return
			}
			remote.Pass(c.wanted(workers, changed), yield)
		}
	}
	rows := watch.Rows[muster.Worker]{
		Format:  c.Format,
		Columns: c.columns(),
		Row:     workerRow,
		ID:      func(w muster.Worker) string { return string(w.ID) },
		Stable:  watch.Steady,
		Empty:   noWorkers,
		Events:  client.EventQuery{Types: []muster.EventType{muster.EventWorker}},
		All: func(ctx context.Context, limit int) iter.Seq2[muster.Worker, error] {
			return watch.First(all(ctx, nil), limit)
		},
		Some: func(ctx context.Context, b live.Batch) iter.Seq2[muster.Worker, error] { return all(ctx, b.Events) },
	}
	return rows.Run(ctx, a.App, server)
}

func (c *workersConfig) columns() []term.Column {
	columns := []term.Column{
		{Title: "WORKER"}, {Title: "ID", Whole: true}, {Title: "STATE", Whole: true, Style: frame.StateStyle}, {Title: "HEALTH", Right: true, Whole: true}, {Title: "RUNNING", Right: true, Whole: true},
		{Title: "FREE CPUS", Right: true, Whole: true}, {Title: "FREE MEMORY", Right: true, Whole: true}, {Title: "GPUS"}, {Title: "TAGS"}, {Title: "SEEN", Right: true, Whole: true},
	}
	if c.Wide() {
		columns = append(columns, term.Column{Title: "FREE DISK", Right: true}, term.Column{Title: "FREE SLOTS", Right: true}, term.Column{Title: "PRICE", Right: true}, term.Column{Title: "VERSION"}, term.Column{Title: "KINDS"})
	}
	return columns
}

func workerRow(w muster.Worker, now time.Time) []string {
	return []string{
		w.Name, string(w.ID), frame.Standing(&w), health(&w), strconv.Itoa(w.Running),
		offered(w, func(r *muster.Resources) string { return strconv.FormatFloat(r.CPUs, 'g', 4, 64) }),
		offered(w, func(r *muster.Resources) string { return r.Memory.String() }),
		frame.Devices(w.Resources.GPUs), strings.Join(w.Tags, " "), frame.Age(w.LastSeenAt, now),
		offered(w, func(r *muster.Resources) string { return r.Disk.String() }),
		offered(w, func(r *muster.Resources) string { return strconv.Itoa(r.Slots) }),
		strconv.FormatFloat(w.Price, 'g', -1, 64), w.Version, strings.Join(w.Kinds, " "),
	}
}

// health is how well attempts did on a worker lately.
func health(w *muster.Worker) string {
	if w.Health == nil {
		return "100%"
	}
	return term.Percent(w.Health.Score)
}

// offered says how much is free of how much there is.
func offered(w muster.Worker, of func(*muster.Resources) string) string {
	if w.Free == nil {
		return of(&w.Resources)
	}
	return of(w.Free) + "/" + of(&w.Resources)
}
