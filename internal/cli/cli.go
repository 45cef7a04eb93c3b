// Package cli implements the command line: one file per command or group of commands, and subpackages for larger ones.
//
// A command is a struct with its options, a method that returns the flags, and a function that runs it. A flag has
// precedence over its environment variable, then the saved context (package remote), then the default. Commands return
// errors; Main prints them and returns the exit status (package app).
//
// Standard output has the result in the requested format. Messages go to standard error; progress bars and the
// status line are drawn only on terminals.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/shim"
	"github.com/muster-dev/muster/internal/agent/shim/egress"
	"github.com/muster-dev/muster/internal/builtin"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/artifacts"
	"github.com/muster-dev/muster/internal/cli/audit"
	"github.com/muster-dev/muster/internal/cli/backup"
	"github.com/muster-dev/muster/internal/cli/bench"
	"github.com/muster-dev/muster/internal/cli/bridge"
	"github.com/muster-dev/muster/internal/cli/contexts"
	"github.com/muster-dev/muster/internal/cli/daemon"
	"github.com/muster-dev/muster/internal/cli/doctor"
	"github.com/muster-dev/muster/internal/cli/execute"
	"github.com/muster-dev/muster/internal/cli/fleet"
	"github.com/muster-dev/muster/internal/cli/kinds"
	"github.com/muster-dev/muster/internal/cli/retention"
	"github.com/muster-dev/muster/internal/cli/runtime"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/cli/top"
	"github.com/muster-dev/muster/internal/cli/usage"
)

// runner has the commands as methods.
type runner struct{ *app.App }

// Main runs the command line and returns the exit status.
func Main(args []string) int {
	if len(args) > 1 {
		switch args[1] {
		case daemon.ShimCommand:
			return reportError(errors.Join(isolation.DisableDumpable(), shim.Main(args[2:])))
		case shim.NSInitCommand:
			return reportError(netns.Init(args[2:]))
		case egress.EntrypointCommand:
			return egress.Entrypoint(args[2:], os.Stderr)
		case builtin.Command:
			return builtin.Main(args[2:])
		}
	}
	a := newRunner(os.Stdin, term.NewScreen(os.Stdout, os.Getenv), term.NewScreen(os.Stderr, os.Getenv))
	if len(args) > 1 {
		if command := a.frequent()[args[1]]; command != nil {
			return a.Run(context.Background(), []*cli.Command{command()}, args)
		}
	}
	return a.Run(context.Background(), a.commands(), args)
}

// newRunner returns the program with its help topics and its hints for users of other programs.
func newRunner(in io.Reader, out, errs term.Screen) *runner {
	a := &runner{&app.App{In: in, Out: out, Err: errs, ForeignCommands: foreignCommand}}
	a.Topics = a.topics()
	return a
}

// reportError prints err and returns the exit status.
func reportError(err error) int {
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintln(term.NewScreen(os.Stderr, os.Getenv), "muster:", err)
	return app.ExitFailed
}

// frequent has the commands that scripts call often: to make only the one that is called takes a tenth less time than to make all.
func (a *runner) frequent() map[string]func() *cli.Command {
	return map[string]func() *cli.Command{
		"run": a.runCommand, "submit": a.submitCommand, "ps": a.psCommand, "job": a.jobCommand, "tasks": a.tasksCommand, "logs": a.logsCommand,
		"wait": a.waitCommand, "cancel": a.cancelCommand, "result": a.resultCommand, "get": func() *cli.Command { return artifacts.Command(a.App) }, "version": a.versionCommand,
	}
}

func (a *runner) commands() []*cli.Command {
	bridges, dropIns := bridge.Commands(a.App)
	return slices.Concat(daemon.Commands(a.App, dropIns...), contexts.Commands(a.App), execute.Commands(a.App), []*cli.Command{
		bridges,
		doctor.Command(a.App), runtime.Command(a.App),
		a.runCommand(), a.submitCommand(), a.rerunCommand(), a.scheduleCommand(), a.cacheCommand(), a.planCommand(), kinds.Command(a.App),
		top.Command(a.App), a.psCommand(), a.jobCommand(), a.tasksCommand(), a.logsCommand(), usage.Command(a.App), a.eventsCommand(), a.waitCommand(), a.explainCommand(), a.cancelCommand(), a.retryCommand(), a.editCommand(),
	}, retention.Commands(a.App), []*cli.Command{
		a.resultCommand(), artifacts.Command(a.App), bench.Command(a.App),
		fleet.Command(a.App), a.keysCommand(), audit.Command(a.App), a.secretsCommand(), a.notifyCommand(),
	}, retention.AdminCommands(a.App), backup.Commands(a.App), []*cli.Command{
		a.versionCommand(), a.CompletionCommand(),
	})
}

func (a *runner) versionCommand() *cli.Command {
	c := &app.OutputOptions{}
	return a.NewCommand(app.Command{
		Name: "version", Usage: "Show the version", Category: app.CategorySetup, Flags: c.Flags(),
		Run: func(context.Context, []string) error {
			b := app.CurrentBuild()
			return a.Print(*c, b, []string{b.Version}, func() error {
				details := app.NonEmpty([]string{b.Commit, b.Go, b.Platform})
				return app.WriteOutput(a.Out, fmt.Appendf(nil, "muster %s (%s)\n", b.Version, strings.Join(details, ", ")))
			})
		},
	})
}
