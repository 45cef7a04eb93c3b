// Package fleet has the commands that list, show and control workers.
package fleet

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/watch"
	"github.com/muster-dev/muster/internal/client"
)

type workersConfig struct {
	remote.QueryOptions
	all   bool
	watch bool
}

type runner struct{ *app.App }

// Command returns muster workers.
func Command(base *app.App) *cli.Command {
	a := &runner{base}
	c := &workersConfig{}
	return a.NewCommand(app.Command{
		Name: "workers", Usage: "List and control workers", Category: app.CategoryAdmin,
		Flags: c.Flags(app.Option{Name: "all", Short: "a", Usage: "Include workers that have left"}.BoolVar(&c.all), watch.Flag(&c.watch)),
		Commands: []*cli.Command{
			a.showWorkerCommand(), a.approveCommand(), a.drainCommand(), a.pauseCommand(), a.resumeCommand(), a.healCommand(), a.resetCommand(), a.removeCommand(),
		},
		Run: func(ctx context.Context, _ []string) error { return a.workers(ctx, c) },
	})
}

func (a *runner) workers(ctx context.Context, c *workersConfig) error {
	server, err := watch.Connect(&c.ServerOptions, c.watch)
	if err != nil {
		return err
	}
	named := map[string]int{} // number of workers that have not left
	all := func(ctx context.Context, changed []muster.Event) iter.Seq2[muster.Worker, error] {
		return func(yield func(muster.Worker, error) bool) {
			workers, err := server.Workers(ctx)
			if err != nil {
				yield(muster.Worker{}, err)
				return
			}
			clear(named)
			for i := range workers {
				if workers[i].State != muster.WorkerGone {
					named[workers[i].Name]++
				}
			}
			remote.YieldAll(c.filter(workers, changed), yield)
		}
	}
	l := watch.List[muster.Worker]{
		Listing: app.Listing[muster.Worker]{
			OutputOptions: c.OutputOptions, ID: workerID, Name: func(w muster.Worker) string { return w.Name }, Columns: c.columns(), Row: workerRow, EmptyMessage: "no workers: start one with muster worker",
		},
		Watch: c.watch, Normalize: watch.WithoutHeartbeat, Events: client.EventQuery{Types: []muster.EventType{muster.EventWorker}},
		Fetch:        func(ctx context.Context, _ int) iter.Seq2[muster.Worker, error] { return all(ctx, nil) },
		FetchChanged: func(ctx context.Context, b live.Batch) iter.Seq2[muster.Worker, error] { return all(ctx, b.Events) },
	}
	if err := l.Run(ctx, a.App, server); err != nil || c.watch || !c.Human() {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if n := named[name]; n > 1 {
			a.Messagef("%d workers are named %s: commands take their IDs, and muster worker --name gives one of them another name", n, term.Sanitize(name))
		}
	}
	return nil
}

// filter yields the listed workers, and those of the events that have just left.
func (c *workersConfig) filter(all []muster.Worker, changed []muster.Event) iter.Seq2[muster.Worker, error] {
	return func(yield func(muster.Worker, error) bool) {
		for _, w := range all {
			justLeft := slices.ContainsFunc(changed, func(e muster.Event) bool { return e.Worker == w.ID })
			if (c.all || justLeft || w.State != muster.WorkerGone) && !yield(w, nil) {
				return
			}
		}
	}
}

func (c *workersConfig) columns() []term.Column {
	columns := []term.Column{
		{Title: "WORKER"}, {Title: "ID", NoTruncate: true}, {Title: "STATE", NoTruncate: true, Style: app.StateStyle}, {Title: "HEALTH", AlignRight: true, NoTruncate: true}, {Title: "RUNNING", AlignRight: true, NoTruncate: true},
		{Title: "FREE CPUS", AlignRight: true, NoTruncate: true}, {Title: "FREE MEMORY", AlignRight: true, NoTruncate: true}, {Title: "GPUS"}, {Title: "TAGS"}, {Title: "SEEN", AlignRight: true, NoTruncate: true},
	}
	if c.Wide() {
		columns = append(columns, term.Column{Title: "FREE DISK", AlignRight: true}, term.Column{Title: "FREE SLOTS", AlignRight: true}, term.Column{Title: "PRICE", AlignRight: true}, term.Column{Title: "VERSION"}, term.Column{Title: "KINDS"})
	}
	return columns
}

func workerRow(w muster.Worker, now time.Time) []string {
	return []string{
		w.Name, string(w.ID), app.WorkerStatus(&w), health(&w), running(&w),
		freeOfTotal(w, func(r *muster.Resources) string { return strconv.FormatFloat(r.CPUs, 'g', 4, 64) }),
		freeOfTotal(w, func(r *muster.Resources) string { return r.Memory.String() }),
		app.FormatDevices(w.Resources.GPUs), strings.Join(w.Tags, " "), app.Age(w.LastSeenAt, now),
		freeOfTotal(w, func(r *muster.Resources) string { return r.Disk.String() }),
		freeOfTotal(w, func(r *muster.Resources) string { return strconv.Itoa(r.Slots) }),
		strconv.FormatFloat(w.Price, 'g', -1, 64), w.Version, strings.Join(w.Kinds, " "),
	}
}

// running formats how many tasks a worker runs, with its maximum if it has one.
func running(w *muster.Worker) string {
	n := strconv.Itoa(w.Running)
	if most := w.Resources.MaxTasks; most > 0 {
		n += "/" + strconv.Itoa(most)
	}
	return n
}

// health formats the health score of a worker.
func health(w *muster.Worker) string {
	if w.Health == nil {
		return "100%"
	}
	return term.FormatPercent(w.Health.Score)
}

// freeOfTotal formats free and total resources.
func freeOfTotal(w muster.Worker, format func(*muster.Resources) string) string {
	if w.Free == nil {
		return format(&w.Resources)
	}
	return format(w.Free) + "/" + format(&w.Resources)
}
