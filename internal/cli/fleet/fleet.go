// Package fleet has the commands about workers: to list, show and steer them.
package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
)

type workersConfig struct {
	remote.Remote
	frame.Format
	gone bool
}

func (c *workersConfig) flags() []cli.Flag { return slices.Concat(c.Format.Flags(), c.Remote.Flags()) }

// commands is one run of the program.
type commands struct{ *frame.App }

// Command returns muster workers.
func Command(app *frame.App) *cli.Command {
	a := &commands{app}
	c := &workersConfig{}
	list := append([]cli.Flag{frame.Option{Name: "all", Short: "a", Usage: "list workers that have left, too"}.On(&c.gone)}, c.flags()...)
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
	server, err := c.Connect()
	if err != nil {
		return err
	}
	all, err := server.Workers(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	columns := []term.Column{
		{Title: "WORKER"}, {Title: "ID", Whole: true}, {Title: "STATE", Whole: true, Style: frame.StateStyle}, {Title: "HEALTH", Right: true, Whole: true}, {Title: "RUNNING", Right: true, Whole: true},
		{Title: "FREE CPUS", Right: true, Whole: true}, {Title: "FREE MEMORY", Right: true, Whole: true}, {Title: "GPUS"}, {Title: "TAGS"}, {Title: "SEEN", Right: true, Whole: true},
	}
	if c.Wide() {
		columns = append(columns, term.Column{Title: "FREE DISK", Right: true}, term.Column{Title: "FREE SLOTS", Right: true}, term.Column{Title: "PRICE", Right: true}, term.Column{Title: "VERSION"}, term.Column{Title: "KINDS"})
	}
	l := frame.Listing[muster.Worker]{
		Format: c.Format,
		ID:     func(w muster.Worker) string { return string(w.ID) },
		Table:  term.NewTable(columns...),
		Row:    func(w muster.Worker) []string { return workerRow(w, now) },
		Empty:  "no workers: start one with muster worker",
		Rows: func(yield func(muster.Worker, error) bool) {
			for _, w := range all {
				if (c.gone || w.State != muster.WorkerGone) && !yield(w, nil) {
					return
				}
			}
		},
	}
	return l.Write(a.App)
}

func workerRow(w muster.Worker, now time.Time) []string {
	return []string{
		w.Name, string(w.ID), standing(&w), health(&w), strconv.Itoa(w.Running),
		offered(w, func(r *muster.Resources) string { return strconv.FormatFloat(r.CPUs, 'g', 4, 64) }),
		offered(w, func(r *muster.Resources) string { return r.Memory.String() }),
		gpus(w.Resources.GPUs), strings.Join(w.Tags, " "), frame.Age(w.LastSeenAt, now),
		offered(w, func(r *muster.Resources) string { return r.Disk.String() }),
		offered(w, func(r *muster.Resources) string { return strconv.Itoa(r.Slots) }),
		strconv.FormatFloat(w.Price, 'g', -1, 64), w.Version, strings.Join(w.Kinds, " "),
	}
}

// standing is the state of a worker in one word. One that is active and takes
// nothing new of its own accord is constrained, and one that the server gives nothing
// because attempts fail there is avoided.
func standing(w *muster.Worker) string {
	switch {
	case w.State != muster.WorkerActive:
		return string(w.State)
	case w.Constrained != "":
		return "constrained"
	case w.Health != nil && w.Health.Avoided != "":
		return "avoided"
	default:
		return string(w.State)
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

// gpus counts devices of the same kind, and those that are quarantined.
func gpus(devices []muster.GPU) string {
	n := map[string]int{}
	sick := 0
	for _, d := range devices {
		n[d.Name]++
		if d.Quarantined != "" {
			sick++
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d×%s", n[name], name))
	}
	if sick > 0 {
		parts = append(parts, fmt.Sprintf("%d quarantined", sick))
	}
	return strings.Join(parts, ", ")
}
