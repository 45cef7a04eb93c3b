// Package runtime has the commands that manage the Python environments of the AI kinds on this machine.
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
		app.Option{Name: "data", Value: "path", Usage: "Data directory of the worker (default: muster/worker in the user's data directory)"}.WithEnv().StringVar(&c.data),
	}, c.OutputOptions.Flags()) //nolint:staticcheck // which flags is not obvious without the name
}

func (c *config) pythonFlag() cli.Flag {
	return app.Option{Name: "python", Value: "path", Usage: "Check the packages of this interpreter, as for a worker with --python"}.WithEnv().StringVar(&c.python)
}

func (c *config) wheelsFlag() cli.Flag {
	return app.Option{Name: "wheels", Value: "path", Usage: "Directory of packages, for use without a network"}.WithEnv().StringVar(&c.wheels)
}

// open returns the runtimes of the data directory.
func (c *config) open(a *app.App) (*runtimes.Runtimes, error) {
	data, err := app.DataDir(c.data, "worker")
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return runtimes.New(runtimes.Config{Dir: data, Python: c.python, Wheels: c.wheels, Log: log, Standalone: true})
}

// openForWrite is open for a command that changes the data directory.
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
		Name: "runtime", Usage: "Manage the Python environments of the AI kinds on this machine", Category: app.CategorySetup, Flags: c.flags(c.pythonFlag()),
		Description: "A worker installs a runtime when the first task needs it. These commands install it in advance, check it and remove it, also while a worker runs.",
		Commands:    []*cli.Command{listCommand(a), installCommand(a), checkCommand(a), removeCommand(a)},
		Run:         func(ctx context.Context, _ []string) error { return c.list(ctx, a) },
	})
}

// complete completes the names of runtimes.
func (c *config) complete(a *app.App) app.Completer {
	return func(ctx context.Context, prefix string, args []string) ([]app.Candidate, error) {
		r, err := c.open(a)
		if err != nil {
			return nil, err
		}
		return app.Values(r.Names()...)(ctx, prefix, args)
	}
}

func listCommand(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "list", Usage: "List runtimes and their state", Args: "[RUNTIME…]", Complete: c.complete(a), Flags: c.flags(c.pythonFlag()),
		Run: func(ctx context.Context, args []string) error { return c.list(ctx, a, args...) },
	})
}

func (c *config) list(ctx context.Context, a *app.App, names ...string) error {
	r, err := c.open(a)
	if err != nil {
		return err
	}
	return c.showState(ctx, a, r, names)
}

// showState prints the current state of runtimes.
func (c *config) showState(ctx context.Context, a *app.App, r *runtimes.Runtimes, names []string) error {
	list, err := r.List(ctx, names...)
	if err != nil {
		return err
	}
	return c.show(a, r, list)
}

// entry is a row of the list.
type entry struct {
	runtimes.Entry
	Own   muster.Size `json:"own,omitempty"` // the part of its size that its removal frees
	Kinds []string    `json:"kinds"`         // that use it
}

func (c *config) show(a *app.App, r *runtimes.Runtimes, list []runtimes.Entry) error {
	disk := r.Disk()
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
	entries := make([]entry, len(list))
	for i, e := range list {
		entries[i] = entry{e, disk.Own[e.Name], append([]string{}, kinds[e.Name]...)}
	}
	columns := []term.Column{
		{Title: "RUNTIME", NoTruncate: true}, {Title: "STATE", NoTruncate: true}, {Title: "SIZE", AlignRight: true, NoTruncate: true}, {Title: "OWN", AlignRight: true, NoTruncate: true}, {Title: "USED", AlignRight: true, NoTruncate: true}, {Title: "KINDS"},
	}
	if c.Wide() {
		columns = append(columns, term.Column{Title: "PACKAGES", AlignRight: true}, term.Column{Title: "PYTHON"})
	}
	l := app.Listing[entry]{
		OutputOptions: c.OutputOptions, ID: func(e entry) string { return e.Name }, Columns: columns,
		Row: func(e entry, now time.Time) []string {
			row := []string{e.Name, string(e.State), "-", "-", "-", strings.Join(e.Kinds, " ")}
			if e.Size > 0 {
				row[2], row[3], row[4] = e.Size.String(), e.Own.String(), term.FormatAge(now.Sub(e.Used.Std()))
			}
			if c.Wide() {
				row = append(row, strconv.Itoa(e.Packages), e.Python)
			}
			return row
		},
		Rows: app.Seq(entries),
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
			cached = fmt.Sprintf(", including %s of cached packages", disk.Cached)
		}
		a.Messagef("total: %s%s", disk.Total, cached)
	}
	return nil
}

func requireNames(args []string) error {
	if len(args) == 0 {
		return muster.Errorf(muster.Invalid, "missing runtime: muster runtime list lists them")
	}
	return nil
}

func installCommand(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "install", Usage: "Install runtimes", Args: "RUNTIME…", Complete: c.complete(a), Flags: c.flags(c.wheelsFlag()),
		Run: func(ctx context.Context, args []string) error {
			if err := requireNames(args); err != nil {
				return err
			}
			r, err := c.openForWrite(a)
			if err != nil {
				return err
			}
			if err := r.CheckNames(args...); err != nil { // before any is installed
				return err
			}
			return errors.Join(c.install(ctx, a, r, args), c.showState(context.WithoutCancel(ctx), a, r, args))
		},
	})
}

// install installs runtimes one after the other, and prints the steps.
func (c *config) install(ctx context.Context, a *app.App, r *runtimes.Runtimes, names []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	status := term.NewStatusLine(a.Err)
	log := status.Above(a.Err)
	var mu sync.Mutex
	step := ""
	watch := run.Observer{
		Step: func(s string) {
			mu.Lock()
			defer mu.Unlock()
			if phase(s) != phase(step) && !a.Err.Interactive {
				_, _ = fmt.Fprintln(log, s) // best effort
			}
			step = s
		},
		LogLine:   func(line string) { _, _ = fmt.Fprintln(log, line) },
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

// phase returns a step without its progress.
func phase(step string) string {
	if i := strings.IndexAny(step, "0123456789"); i >= 0 {
		return step[:i]
	}
	return step
}

func checkCommand(a *app.App) *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "check", Usage: "Verify the files of installed runtimes", Args: "[RUNTIME…]", Complete: c.complete(a),
		Flags:       c.flags(app.Option{Name: "fix", Usage: "Reinstall broken runtimes"}.BoolVar(&c.fix), c.wheelsFlag(), c.pythonFlag()),
		Description: "The exit status is 1 if one is broken, or if the interpreter of --python lacks packages. A worker verifies a runtime before each task, and reinstalls broken ones.",
		Run:         func(ctx context.Context, args []string) error { return c.check(ctx, a, args) },
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
		Name: "remove", Usage: "Remove unused runtimes and cached packages", Args: "RUNTIME…", Complete: c.complete(a), Flags: c.flags(),
		Description: "A worker installs a runtime again when a task needs it.",
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
					a.Messagef("runtime %s is not installed", name)
					continue
				}
				a.Messagef("runtime %s removed, freed %s", name, size)
			}
			return nil
		},
	})
}
