package cli

import (
	"context"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/fleet"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/term"
)

// app is one run of the program.
type app struct{ *frame.App }

// Main runs the command line and returns the exit status.
func Main(args []string) int {
	a := &app{&frame.App{In: os.Stdin, Out: term.NewScreen(os.Stdout, os.Getenv), Err: term.NewScreen(os.Stderr, os.Getenv)}}
	return a.Run(context.Background(), a.commands(), args)
}

func (a *app) commands() []*cli.Command {
	return []*cli.Command{
		a.upCommand(), a.serverCommand(), a.workerCommand(), a.probeCommand(),
		a.runCommand(), a.submitCommand(), a.planCommand(),
		a.psCommand(), a.jobCommand(), a.tasksCommand(), a.logsCommand(), a.waitCommand(), a.explainCommand(), a.cancelCommand(), a.retryCommand(),
		a.resultCommand(), a.getCommand(),
		fleet.Command(a.App), a.keysCommand(),
		a.versionCommand(),
	}
}
