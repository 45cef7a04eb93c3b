// Package runtime has the commands about the Python environments of the AI kinds on this machine.
package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/runtimes"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/kind"
)

type config struct {
	app.OutputOptions
	data, python, wheels string
	fix                  bool
}

func (c *config) flags(more ...cli.Flag) []cli.Flag {
	return slices.Concat(more, []cli.Flag{
		app.Option{Name: "data", Usage: "the `FOLDER` of a worker (default: muster/worker in the user's data folder)"}.WithEnv().StringVar(&c.data),
	}, c.OutputOptions.Flags()) //nolint:staticcheck // which flags is not obvious without the name
}

func (c *config) pythonFlag() cli.Flag {
	return app.Option{Name: "python", Usage: "say whether the interpreter at this `PATH` has what runtimes need, as for a worker with --python"}.WithEnv().StringVar(&c.python)
}

func (c *config) wheelsFlag() cli.Flag {
	return app.Option{Name: "wheels", Usage: "take all packages from this `FOLDER`, without a network"}.WithEnv().StringVar(&c.wheels)
}

// open returns the runtimes of the data dir.
func (c *config) open(a *app.App) (*runtimes.Runtimes, error) {
	data, err := app.DataDir(c.data, "worker")
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return runtimes.New(runtimes.Config{Dir: data, Python: c.python, Wheels: c.wheels, Log: log, Standalone: true})
}

// openForWrite is open for a command that changes the data dir.
func (c *config) openForWrite(a *app.App) (*runtimes.Runtimes, error) {
	data, err := app.DataDir(c.data, "worker")
	if err != nil {
		return nil, err
	}
	if err := checkOwner(data); err != nil {
		return nil, err
	}
	return c.open(a)
}

// Command returns muster runtime.
func Command(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "runtime", Usage: "make and check the Python environments of the AI kinds on this machine", Category: app.CategorySetup, Flags: c.flags(c.pythonFlag()),
		Description: "A worker makes a runtime when the first task needs it. These commands do so beforehand, and look after what it made. They work while a worker runs.",
		Commands:    []*cli.Command{listCommand(a), installCommand(a), checkCommand(a), removeCommand(a)},
		Run: func(ctx context.Context, _ []string) error {
			return c.list(ctx, a)
		},
	})
}

func listCommand(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "list", Usage: "list the runtimes, and whether they are ready", Args: "[RUNTIME…]", Flags: c.flags(c.pythonFlag()),
		Run: func(ctx context.Context, args []string) error {
			return c.list(ctx, a, args...)
		},
	})
}

func (c *config) list(ctx context.Context, a *app.App, names ...string) error {
	r, err := c.open(a)
	if err != nil {
		return err
	}
	list, err := r.List(ctx, names...)
	if err != nil {
		return err
	}
	return c.show(a, r, list)
}

// entry is a row of the list.
type entry struct {
	runtimes.Entry
	Own   muster.Size `json:"own,omitempty"` // of its size: what its removal frees
	Kinds []string    `json:"kinds"`         // that use it
}

func (c *config) show(a *app.App, r *runtimes.Runtimes, list []runtimes.Entry) error {
	disk, err := r.Disk()
	if err != nil {
		return err
	}
	kinds := map[string][]string{}
	for _, k := range kind.Embedded() {
		names := []string{k.Runtime}
		for _, v := range k.Variants {
			names = append(names, v.Runtime)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			kinds[name] = append(kinds[name], k.Name)
		}
	}
	now := time.Now()
	columns := []term.Column{
		{Title: "RUNTIME", NoTruncate: true}, {Title: "STATE", NoTruncate: true}, {Title: "SIZE", AlignRight: true, NoTruncate: true}, {Title: "OWN", AlignRight: true, NoTruncate: true}, {Title: "USED", AlignRight: true, NoTruncate: true}, {Title: "KINDS"},
	}
	if c.Wide() {
		columns = append(columns, term.Column{Title: "PACKAGES", AlignRight: true}, term.Column{Title: "PYTHON"})
	}
	l := app.Listing[entry]{
		OutputOptions: c.OutputOptions, ID: func(e entry) string { return e.Name }, Table: term.NewTable(columns...),
		Row: func(e entry) []string {
			row := []string{e.Name, string(e.State), "-", "-", "-", strings.Join(e.Kinds, " ")}
			if e.Size > 0 {
				row[2], row[3], row[4] = e.Size.String(), e.Own.String(), term.FormatAge(now.Sub(e.Used.Std()))
			}
			if c.Wide() {
				row = append(row, strconv.Itoa(e.Packages), e.Python)
			}
			return row
		},
		Rows: func(yield func(entry, error) bool) {
			for _, e := range list {
				if !yield(entry{e, disk.Exclusive[e.Name], append([]string{}, kinds[e.Name]...)}, nil) {
					return
				}
			}
		},
	}
	if err := l.Write(a); err != nil {
		return err
	}
	if !c.Human() {
		return nil
	}
	for _, e := range list {
		if note := cmp.Or(e.Reason, e.Step); note != "" {
			a.Messagef("%s: %s", e.Name, note)
		}
	}
	if disk.Total > 0 {
		cached := ""
		if disk.Cached > 0 {
			cached = fmt.Sprintf(", of it %s in packages that are kept for the next one", disk.Cached)
		}
		a.Messagef("all together: %s of the disk%s", disk.Total, cached)
	}
	return nil
}

func requireNames(args []string) error {
	if len(args) == 0 {
		return muster.Errorf(muster.Invalid, "no runtime is named: muster runtime list lists them")
	}
	return nil
}

func installCommand(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "install", Usage: "make runtimes, so that no task has to wait for it", Args: "RUNTIME…", Flags: c.flags(c.wheelsFlag()),
		Run: func(ctx context.Context, args []string) error {
			if err := requireNames(args); err != nil {
				return err
			}
			r, err := c.openForWrite(a)
			if err != nil {
				return err
			}
			if err := r.CheckNames(args...); err != nil { // before the others are made
				return err
			}
			return errors.Join(c.install(ctx, a, r, args), c.showState(ctx, a, r, args))
		},
	})
}

// showState shows how runtimes are now.
func (c *config) showState(ctx context.Context, a *app.App, r *runtimes.Runtimes, names []string) error {
	list, err := r.List(context.WithoutCancel(ctx), names...)
	if err != nil {
		return err
	}
	return c.show(a, r, list)
}

// install makes runtimes one after the other, and says what is done.
func (c *config) install(ctx context.Context, a *app.App, r *runtimes.Runtimes, names []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	status := term.NewStatusLine(a.Err)
	log := status.WriterAbove(a.Err)
	var mu sync.Mutex
	step := ""
	watch := run.Observer{
		Step: func(s string) {
			mu.Lock()
			defer mu.Unlock()
			if phase(s) != phase(step) && !a.Err.Interactive {
				_, _ = fmt.Fprintln(log, s) // words on the way are no result
			}
			step = s
		},
		LogLine: func(line string) {
			_, _ = fmt.Fprintln(log, line) // as above
		},
		Requester: "muster runtime install",
	}
	var g errgroup.Group
	statusCtx, stopStatus := context.WithCancel(ctx)
	g.Go(func() error {
		return status.Run(statusCtx, func() string { mu.Lock(); defer mu.Unlock(); return step })
	})
	var failed []error
	for _, name := range names {
		if _, err := r.Get(ctx, name, watch); err != nil {
			failed = append(failed, err)
		}
	}
	stopStatus()
	return errors.Join(append(failed, g.Wait())...)
}

// phase is a step without how far it is.
func phase(step string) string {
	if i := strings.IndexAny(step, "0123456789"); i >= 0 {
		return step[:i]
	}
	return step
}

func checkCommand(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "check", Usage: "look at each file of runtimes that are installed", Args: "[RUNTIME…]",
		Flags:       c.flags(app.Option{Name: "fix", Usage: "make those anew that are broken"}.BoolVar(&c.fix), c.wheelsFlag(), c.pythonFlag()),
		Description: "The exit status is 1 if one is broken, or the interpreter of --python lacks packages of one. A worker does the same before a task gets a runtime, and makes a broken one anew.",
		Run: func(ctx context.Context, args []string) error {
			return c.check(ctx, a, args)
		},
	})
}

func (c *config) check(ctx context.Context, a *app.App, names []string) error {
	open := c.open
	if c.fix {
		open = c.openForWrite
	}
	r, err := open(a)
	if err != nil {
		return err
	}
	list, err := r.List(ctx, names...)
	if err != nil {
		return err
	}
	broken := func() (names []string) {
		for _, e := range list {
			if e.State == runtimes.Broken || e.State == runtimes.Incomplete {
				names = append(names, e.Name)
			}
		}
		return names
	}
	if brokenNames := broken(); c.fix && len(brokenNames) > 0 {
		err = c.install(ctx, a, r, brokenNames)
		var listErr error
		if list, listErr = r.List(context.WithoutCancel(ctx), names...); listErr != nil {
			return errors.Join(err, listErr)
		}
	}
	if err := errors.Join(err, c.show(a, r, list)); err != nil {
		return err
	}
	if len(broken()) > 0 {
		return &app.StatusError{Status: app.ExitFailed}
	}
	return nil
}

func removeCommand(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "remove", Usage: "remove runtimes that no task uses, and the packages that were kept for others", Args: "RUNTIME…", Flags: c.flags(),
		Description: "A worker makes one again when a task needs it.",
		Run: func(ctx context.Context, args []string) error {
			if err := requireNames(args); err != nil {
				return err
			}
			r, err := c.openForWrite(a)
			if err != nil {
				return err
			}
			watch := run.Observer{Step: func(s string) { a.Messagef("%s", s) }, LogLine: func(string) {}}
			for _, name := range args {
				size, err := r.Remove(ctx, name, watch)
				if err != nil {
					return err
				}
				if size == 0 {
					a.Messagef("runtime %s is not installed: there is nothing to remove", name)
					continue
				}
				a.Messagef("runtime %s: removed, which frees %s", name, size)
			}
			return nil
		},
	})
}
