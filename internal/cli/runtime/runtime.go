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
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/kind"
)

type config struct {
	frame.Format
	data, python, wheels string
	fix                  bool
}

func (c *config) flags(more ...cli.Flag) []cli.Flag {
	return slices.Concat(more, []cli.Flag{
		frame.Option{Name: "data", Usage: "the `FOLDER` of a worker (default: muster/worker in the user's data folder)"}.Variable().Text(&c.data),
	}, c.Format.Flags()) //nolint:staticcheck // which flags is not obvious without the name
}

func (c *config) given() cli.Flag {
	return frame.Option{Name: "python", Usage: "say whether the interpreter at this `PATH` has what runtimes need, as for a worker with --python"}.Variable().Text(&c.python)
}

func (c *config) offline() cli.Flag {
	return frame.Option{Name: "wheels", Usage: "take all packages from this `FOLDER`, without a network"}.Variable().Text(&c.wheels)
}

// open returns the runtimes of the data dir.
func (c *config) open(app *frame.App) (*runtimes.Runtimes, error) {
	data, err := frame.DataFolder(c.data, "worker")
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(app.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return runtimes.New(runtimes.Config{Dir: data, Python: c.python, Wheels: c.wheels, Log: log, Standalone: true})
}

// change is open for a command that changes the data dir.
func (c *config) change(app *frame.App) (*runtimes.Runtimes, error) {
	data, err := frame.DataFolder(c.data, "worker")
	if err != nil {
		return nil, err
	}
	if err := owned(data); err != nil {
		return nil, err
	}
	return c.open(app)
}

// Command returns muster runtime.
func Command(app *frame.App) *cli.Command {
	c := &config{}
	return app.Command(frame.Command{
		Name: "runtime", Usage: "make and check the Python environments of the AI kinds on this machine", Category: frame.SetUp, Flags: c.flags(c.given()),
		About:    "A worker makes a runtime when the first task needs it. These commands do so beforehand, and look after what it made. They work while a worker runs.",
		Commands: []*cli.Command{listCommand(app), installCommand(app), checkCommand(app), removeCommand(app)},
		Run: func(ctx context.Context, _ []string) error {
			return c.list(ctx, app)
		},
	})
}

func listCommand(app *frame.App) *cli.Command {
	c := &config{}
	return app.Command(frame.Command{
		Name: "list", Usage: "list the runtimes, and whether they are ready", Args: "[RUNTIME…]", Flags: c.flags(c.given()),
		Run: func(ctx context.Context, args []string) error {
			return c.list(ctx, app, args...)
		},
	})
}

func (c *config) list(ctx context.Context, app *frame.App, names ...string) error {
	r, err := c.open(app)
	if err != nil {
		return err
	}
	list, err := r.List(ctx, names...)
	if err != nil {
		return err
	}
	return c.show(app, r, list)
}

// entry is a row of the list.
type entry struct {
	runtimes.Entry
	Own   muster.Size `json:"own,omitempty"` // of its size: what its removal frees
	Kinds []string    `json:"kinds"`         // that use it
}

func (c *config) show(app *frame.App, r *runtimes.Runtimes, list []runtimes.Entry) error {
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
		{Title: "RUNTIME", Whole: true}, {Title: "STATE", Whole: true}, {Title: "SIZE", Right: true, Whole: true}, {Title: "OWN", Right: true, Whole: true}, {Title: "USED", Right: true, Whole: true}, {Title: "KINDS"},
	}
	if c.Wide() {
		columns = append(columns, term.Column{Title: "PACKAGES", Right: true}, term.Column{Title: "PYTHON"})
	}
	l := frame.Listing[entry]{
		Format: c.Format, ID: func(e entry) string { return e.Name }, Table: term.NewTable(columns...),
		Row: func(e entry) []string {
			row := []string{e.Name, string(e.State), "-", "-", "-", strings.Join(e.Kinds, " ")}
			if e.Size > 0 {
				row[2], row[3], row[4] = e.Size.String(), e.Own.String(), term.Age(now.Sub(e.Used.Std()))
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
	if err := l.Write(app); err != nil {
		return err
	}
	if !c.People() {
		return nil
	}
	for _, e := range list {
		if note := cmp.Or(e.Reason, e.Step); note != "" {
			app.Say("%s: %s", e.Name, note)
		}
	}
	if disk.Total > 0 {
		kept := ""
		if disk.Cached > 0 {
			kept = fmt.Sprintf(", of it %s in packages that are kept for the next one", disk.Cached)
		}
		app.Say("all together: %s of the disk%s", disk.Total, kept)
	}
	return nil
}

func named(args []string) error {
	if len(args) == 0 {
		return muster.Errorf(muster.Invalid, "no runtime is named: muster runtime list lists them")
	}
	return nil
}

func installCommand(app *frame.App) *cli.Command {
	c := &config{}
	return app.Command(frame.Command{
		Name: "install", Usage: "make runtimes, so that no task has to wait for it", Args: "RUNTIME…", Flags: c.flags(c.offline()),
		Run: func(ctx context.Context, args []string) error {
			if err := named(args); err != nil {
				return err
			}
			r, err := c.change(app)
			if err != nil {
				return err
			}
			if err := r.CheckNames(args...); err != nil { // before the others are made
				return err
			}
			return errors.Join(c.install(ctx, app, r, args), c.after(ctx, app, r, args))
		},
	})
}

// after shows how runtimes are now.
func (c *config) after(ctx context.Context, app *frame.App, r *runtimes.Runtimes, names []string) error {
	list, err := r.List(context.WithoutCancel(ctx), names...)
	if err != nil {
		return err
	}
	return c.show(app, r, list)
}

// install makes runtimes one after the other, and says what is done.
func (c *config) install(ctx context.Context, app *frame.App, r *runtimes.Runtimes, names []string) error {
	ctx, stop := frame.Interruptible(ctx)
	defer stop()
	status := term.NewStatus(app.Err)
	above := status.Above(app.Err)
	var mu sync.Mutex
	step := ""
	watch := run.Observer{
		Step: func(s string) {
			mu.Lock()
			defer mu.Unlock()
			if phase(s) != phase(step) && !app.Err.Live {
				_, _ = fmt.Fprintln(above, s) // words on the way are no result
			}
			step = s
		},
		LogLine: func(line string) {
			_, _ = fmt.Fprintln(above, line) // as above
		},
		Requester: "muster runtime install",
	}
	var g errgroup.Group
	drawn, end := context.WithCancel(ctx)
	g.Go(func() error {
		return status.Run(drawn, func() string { mu.Lock(); defer mu.Unlock(); return step })
	})
	var failed []error
	for _, name := range names {
		if _, err := r.Get(ctx, name, watch); err != nil {
			failed = append(failed, err)
		}
	}
	end()
	return errors.Join(append(failed, g.Wait())...)
}

// phase is a step without how far it is.
func phase(step string) string {
	if i := strings.IndexAny(step, "0123456789"); i >= 0 {
		return step[:i]
	}
	return step
}

func checkCommand(app *frame.App) *cli.Command {
	c := &config{}
	return app.Command(frame.Command{
		Name: "check", Usage: "look at each file of runtimes that are installed", Args: "[RUNTIME…]",
		Flags: c.flags(frame.Option{Name: "fix", Usage: "make those anew that are broken"}.On(&c.fix), c.offline(), c.given()),
		About: "The exit status is 1 if one is broken, or the interpreter of --python lacks packages of one. A worker does the same before a task gets a runtime, and makes a broken one anew.",
		Run: func(ctx context.Context, args []string) error {
			return c.check(ctx, app, args)
		},
	})
}

func (c *config) check(ctx context.Context, app *frame.App, names []string) error {
	open := c.open
	if c.fix {
		open = c.change
	}
	r, err := open(app)
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
	if bad := broken(); c.fix && len(bad) > 0 {
		err = c.install(ctx, app, r, bad)
		var again error
		if list, again = r.List(context.WithoutCancel(ctx), names...); again != nil {
			return errors.Join(err, again)
		}
	}
	if err := errors.Join(err, c.show(app, r, list)); err != nil {
		return err
	}
	if len(broken()) > 0 {
		return &frame.StatusError{Status: frame.ExitFailed}
	}
	return nil
}

func removeCommand(app *frame.App) *cli.Command {
	c := &config{}
	return app.Command(frame.Command{
		Name: "remove", Usage: "remove runtimes that no task uses, and the packages that were kept for others", Args: "RUNTIME…", Flags: c.flags(),
		About: "A worker makes one again when a task needs it.",
		Run: func(ctx context.Context, args []string) error {
			if err := named(args); err != nil {
				return err
			}
			r, err := c.change(app)
			if err != nil {
				return err
			}
			silent := run.Observer{Step: func(s string) { app.Say("%s", s) }, LogLine: func(string) {}}
			for _, name := range args {
				size, err := r.Remove(ctx, name, silent)
				if err != nil {
					return err
				}
				if size == 0 {
					app.Say("runtime %s is not installed: there is nothing to remove", name)
					continue
				}
				app.Say("runtime %s: removed, which frees %s", name, size)
			}
			return nil
		},
	})
}
