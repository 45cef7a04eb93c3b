package cli

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
	"github.com/muster-dev/muster/internal/client"
)

type workersConfig struct {
	remote.Remote
	frame.Format
	gone bool
}

func (c *workersConfig) flags() []cli.Flag { return slices.Concat(c.Format.Flags(), c.Remote.Flags()) }

func (a *app) workersCommand() *cli.Command {
	c := &workersConfig{}
	list := append([]cli.Flag{frame.Option{Name: "all", Short: "a", Usage: "list workers that have left, too"}.On(&c.gone)}, c.flags()...)
	return a.Command(frame.Command{
		Name: "workers", Usage: "list and steer the workers", Category: frame.Admin, Flags: list,
		Commands: []*cli.Command{
			a.steerCommand("show", "show workers in detail", (*client.Client).Worker),
			a.steerCommand("drain", "let workers finish what they have, and then leave", (*client.Client).DrainWorker),
			a.steerCommand("pause", "give workers no new tasks; those that they have go on", (*client.Client).PauseWorker),
			a.steerCommand("resume", "take a pause or a drain back", (*client.Client).ResumeWorker),
			a.steerCommand("remove", "forget workers that are away for good, and revoke their keys", func(c *client.Client, ctx context.Context, w string) (muster.Worker, error) {
				worker, err := c.Worker(ctx, w)
				if err == nil {
					err = c.RemoveWorker(ctx, string(worker.ID))
				}
				return worker, err
			}),
		},
		Run: func(ctx context.Context, _ []string) error {
			return a.workers(ctx, c)
		},
	})
}

func (a *app) workers(ctx context.Context, c *workersConfig) error {
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
		{Title: "WORKER"}, {Title: "ID", Whole: true}, {Title: "STATE", Whole: true, Style: frame.StateStyle}, {Title: "RUNNING", Right: true, Whole: true},
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
		w.Name, string(w.ID), string(w.State), strconv.Itoa(w.Running),
		offered(w, func(r *muster.Resources) string { return strconv.FormatFloat(r.CPUs, 'g', 4, 64) }),
		offered(w, func(r *muster.Resources) string { return r.Memory.String() }),
		gpus(w.Resources.GPUs), strings.Join(w.Tags, " "), frame.Age(w.LastSeenAt, now),
		offered(w, func(r *muster.Resources) string { return r.Disk.String() }),
		offered(w, func(r *muster.Resources) string { return strconv.Itoa(r.Slots) }),
		strconv.FormatFloat(w.Price, 'g', -1, 64), w.Version, strings.Join(w.Kinds, " "),
	}
}

// offered says how much is free of how much there is.
func offered(w muster.Worker, of func(*muster.Resources) string) string {
	if w.Free == nil {
		return of(&w.Resources)
	}
	return of(w.Free) + "/" + of(&w.Resources)
}

// gpus counts devices of the same kind.
func gpus(devices []muster.GPU) string {
	n := map[string]int{}
	for _, d := range devices {
		n[d.Name]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d×%s", n[name], name))
	}
	return strings.Join(parts, ", ")
}

// steerConfig is for the commands on single workers.
type steerConfig struct {
	remote.Remote
	frame.Format
}

func (c *steerConfig) flags() []cli.Flag { return slices.Concat(c.Format.Flags(), c.Remote.Flags()) }

func (a *app) steerCommand(name, usage string, do func(*client.Client, context.Context, string) (muster.Worker, error)) *cli.Command {
	c := &steerConfig{}
	return a.Command(frame.Command{
		Name: name, Usage: usage, Args: "WORKER…", Flags: c.flags(),
		About: "A worker is named by its id, or by its name if only one has it.",
		Run: func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return muster.Errorf(muster.Invalid, "no worker is named: muster workers lists them")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			workers := make([]muster.Worker, len(args))
			for i, arg := range args {
				if workers[i], err = do(server, ctx, arg); err != nil {
					return err
				}
			}
			draw := apart(a, a.drawWorker)
			if name != "show" {
				draw = func(w muster.Worker) error {
					a.Say("worker %s: %s", term.Clean(w.Name), done(name, w.State))
					return nil
				}
			}
			return frame.ShowSome(a.App, c.Format, workers, func(w muster.Worker) string { return string(w.ID) }, draw)
		},
	})
}

// done says what a verb has done to a worker that is in that state since.
func done(verb string, state muster.WorkerState) string {
	if verb == "resume" && state != muster.WorkerActive {
		return fmt.Sprintf("%s; it takes tasks again when it is back", state)
	}
	return map[string]string{
		"drain": "draining, it leaves when its last task has ended", "pause": "paused", "resume": "takes tasks again", "remove": "removed",
	}[verb]
}

func (a *app) drawWorker(w muster.Worker) error {
	now := time.Now()
	f := frame.Facts{App: a.App}
	f.Add("worker", term.Clean(w.Name))
	f.Add("id", string(w.ID))
	f.Add("state", a.Out.Paint(frame.StateStyle(string(w.State)), string(w.State)))
	f.Add("version", w.Version)
	f.Add("running", strconv.Itoa(w.Running))
	f.Add("cpus", offered(w, func(r *muster.Resources) string { return strconv.FormatFloat(r.CPUs, 'g', 4, 64) }))
	f.Add("memory", offered(w, func(r *muster.Resources) string { return r.Memory.String() }))
	f.Add("disk", offered(w, func(r *muster.Resources) string { return r.Disk.String() }))
	f.Add("slots", offered(w, func(r *muster.Resources) string { return strconv.Itoa(r.Slots) }))
	for _, g := range w.Resources.GPUs {
		f.Add("gpu", fmt.Sprintf("%d: %s, %s (%s)", g.Index, g.Name, g.Memory, g.UUID))
	}
	if w.Load != nil {
		f.Add("load", fmt.Sprintf("%s of the processors, %s memory in use", term.Percent(w.Load.CPU), w.Load.Memory))
	}
	f.Add("tags", strings.Join(w.Tags, " "))
	f.Add("kinds", strings.Join(w.Kinds, " "))
	f.Add("joined", frame.Since(w.JoinedAt, now))
	f.Add("seen", frame.Since(w.LastSeenAt, now))
	return f.Draw()
}
