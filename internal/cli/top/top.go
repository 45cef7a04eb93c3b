// Package top is muster top: a live view of the fleet for terminals.
//
// # Model
//
// One goroutine, that of bubbletea, owns the model. A page is one screen: the
// four tabs, a job, a task, its log, a worker. Opened pages are on a stack; Esc
// closes the top one.
//
//	live.Feed ──events──► tick (4 a second) ──► page.changed ──► page.load ──► client
//	                                                                  │
//	    terminal ◄── frame, if it differs ◄── page.draw ◄── result ◄──┘
//
// Events only mark what is stale. The visible page is then read again, at most
// every half second and for at most a fifth of the time, so that a slow server
// gets fewer requests. The cost depends on what is visible, not on the size of the fleet.
//
// # Bounds
//
// A list has at most maxRows rows, a log maxSegmentBytes, a batch of events live.MaxEvents. Results are drawn at most four
// times a second, keys at once; the terminal gets only changed cells.
package top

import (
	"context"
	"errors"
	"os"
	"slices"

	tea "charm.land/bubbletea/v2"
	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

type config struct {
	remote.ServerOptions
	tab string
}

// Command returns muster top.
func Command(a *app.App) *cli.Command {
	c := &config{tab: tabNames[0]}
	return a.NewCommand(app.Command{
		Name: "top", Usage: "Show a live view of jobs, tasks, workers and GPUs", Category: app.CategoryWatch,
		Description: "Press ? for the keys, q to quit. Requires a terminal of at least 60 columns and 15 lines; NO_COLOR turns colors off. " +
			"Without a terminal, use 'muster ps --watch'.",
		Flags: append([]cli.Flag{
			app.Option{Name: "tab", Usage: "First tab: jobs, tasks, workers or gpus"}.EnumVar(&c.tab, tabNames[:]...),
		}, c.Flags()...),
		Run: func(ctx context.Context, _ []string) error { return run(ctx, a, c) },
	})
}

// run runs the view until the user quits.
func run(ctx context.Context, a *app.App, c *config) error {
	if !a.Out.Interactive {
		return muster.Errorf(muster.Invalid, "muster top requires a terminal: use muster ps --watch")
	}
	server, err := live.ConnectNoRetry(&c.ServerOptions)
	if err != nil {
		return err
	}
	identity, err := server.Whoami(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	m := newModel(ctx, group, server, a.Out)
	m.role = identity.Role
	m.tab = slices.Index(tabNames[:], c.tab)
	feed := live.New(server, client.EventQuery{Types: []muster.EventType{muster.EventJob, muster.EventWorker}})
	m.feed = feed
	group.Go(func() error { return feed.Run(ctx) })
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(a.In), tea.WithOutput(a.Out.Writer), tea.WithFPS(maxFPS), tea.WithEnvironment(os.Environ()))
	_, err = program.Run()
	stop()
	if groupErr := group.Wait(); groupErr != nil {
		return groupErr
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return &app.StatusError{Status: app.ExitCancelled}
	}
	return err
}
