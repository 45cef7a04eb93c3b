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
		Name: "top", Usage: "show jobs, tasks, workers and GPUs live", Category: app.CategoryWatch,
		Description: "Keys: ? lists them all, q quits. Needs a terminal of at least 60 columns and 15 lines; NO_COLOR turns colors off. " +
			"Without a terminal, use muster ps --watch.",
		Flags: append([]cli.Flag{
			app.Option{Name: "tab", Usage: "begin with this `TAB`: jobs, tasks, workers or gpus"}.EnumVar(&c.tab, tabNames[:]...),
		}, c.Flags()...),
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			return run(ctx, a, c)
		},
	})
}

// run shows the program on the terminal until the user quits.
func run(ctx context.Context, a *app.App, c *config) error {
	if !a.Out.Interactive {
		return muster.Errorf(muster.Invalid, "muster top needs a terminal that can move its cursor: use muster ps --watch, which prints each change")
	}
	server, err := live.ConnectNoRetry(&c.ServerOptions)
	if err != nil {
		return err
	}
	retryingAPI, err := c.Connect()
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
	m := newModel(ctx, group, server, retryingAPI, a.Out.Color)
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
