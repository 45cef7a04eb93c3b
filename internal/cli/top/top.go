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
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/client"
)

type config struct {
	remote.Remote
	tab string
}

// Command returns muster top.
func Command(a *frame.App) *cli.Command {
	c := &config{tab: tabNames[0]}
	return a.Command(frame.Command{
		Name: "top", Usage: "show jobs, tasks, workers and GPUs live", Category: frame.Watch,
		About: "Keys: ? lists them all, q quits. Needs a terminal of at least 60 columns and 15 lines; NO_COLOR turns colors off. " +
			"Without a terminal, use muster ps --watch.",
		Flags: append([]cli.Flag{
			frame.Option{Name: "tab", Usage: "begin with this `TAB`: jobs, tasks, workers or gpus"}.Choice(&c.tab, tabNames[:]...),
		}, c.Flags()...),
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return run(ctx, a, c)
		},
	})
}

// run shows the program on the terminal until the user quits.
func run(ctx context.Context, a *frame.App, c *config) error {
	if !a.Out.Live {
		return muster.Errorf(muster.Invalid, "muster top needs a terminal that can move its cursor: use muster ps --watch, which prints each change")
	}
	server, err := live.Connect(&c.Remote)
	if err != nil {
		return err
	}
	patient, err := c.Connect()
	if err != nil {
		return err
	}
	who, err := server.Whoami(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	m := newModel(ctx, group, server, patient, a.Out.Color)
	m.who = who.Role
	m.tab = slices.Index(tabNames[:], c.tab)
	feed := live.New(server, client.EventQuery{Types: []muster.EventType{muster.EventJob, muster.EventWorker}})
	m.feed = feed
	group.Go(func() error { return feed.Run(ctx) })
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(a.In), tea.WithOutput(a.Out.Writer), tea.WithFPS(frames), tea.WithEnvironment(os.Environ()))
	_, err = program.Run()
	stop()
	if failed := group.Wait(); failed != nil {
		return failed
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return &frame.StatusError{Status: frame.ExitCancelled}
	}
	return err
}
