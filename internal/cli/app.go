package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// app is one run of the program.
type app struct {
	in      io.Reader
	out     term.Screen
	err     term.Screen
	started bool // a command has begun: errors before that are wrong usage
}

// Main runs the command line and returns the exit status.
func Main(args []string) int {
	a := &app{in: os.Stdin, out: term.NewScreen(os.Stdout, os.Getenv), err: term.NewScreen(os.Stderr, os.Getenv)}
	return a.run(context.Background(), args)
}

func (a *app) run(ctx context.Context, args []string) int {
	err := a.root().Run(ctx, helpFirst(args))
	if err != nil && !a.started {
		err = misuse(err)
	}
	return a.report(err)
}

// The categories of commands. They are sorted by name; the help text leaves the
// letter out.
const (
	setUp   = "a Set up"
	submit  = "b Submit"
	watch   = "c Watch and steer"
	results = "d Results"
	admin   = "e Fleet and access"
)

func (a *app) root() *cli.Command {
	root := a.command(command{
		name: "muster", usage: "run AI and compute jobs on every machine you have", commands: a.commands(),
	})
	root.EnableShellCompletion = true
	root.ConfigureShellCompletionCommand = func(c *cli.Command) {
		*c = *a.command(command{
			name: c.Name, usage: "print a completion script for bash, zsh, fish or pwsh", about: c.Description, category: setUp, commands: c.Commands,
		})
	}
	root.Writer, root.ErrWriter, root.Reader = a.out, a.err, a.in
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // Main decides
	return root
}

func (a *app) commands() []*cli.Command {
	return []*cli.Command{
		a.serverCommand(), a.probeCommand(),
		a.runCommand(), a.submitCommand(), a.planCommand(),
		a.psCommand(), a.jobCommand(), a.tasksCommand(), a.logsCommand(), a.waitCommand(), a.explainCommand(), a.cancelCommand(), a.retryCommand(),
		a.resultCommand(), a.getCommand(),
		a.workersCommand(), a.keysCommand(),
		a.versionCommand(), a.helpCommand(),
	}
}

// command describes one command.
type command struct {
	name, usage, args, about string
	category                 string
	flags                    []cli.Flag
	commands                 []*cli.Command
	stopAtFirst              bool // what follows the first argument is not ours
	run                      func(ctx context.Context, args []string) error
}

func (a *app) command(c command) *cli.Command {
	help := false
	cmd := &cli.Command{
		Name: c.name, Usage: c.usage, ArgsUsage: c.args, Description: c.about, Category: c.category, Commands: c.commands,
		Flags:    append(c.flags, helpFlag(&help)),
		HideHelp: true, HideVersion: true, OnUsageError: usageError,
	}
	if c.stopAtFirst {
		first := 1
		cmd.StopOnNthArg = &first
	}
	cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
		a.started = true
		args := cmd.Args().Slice()
		switch {
		case len(c.commands) > 0 && len(args) > 0:
			return unknown("command", args[0], cli.SuggestCommand(cmd.Commands, args[0]), cmd.FullName()+" --help")
		case help || c.run == nil:
			return a.help(cmd)
		default:
			return c.run(ctx, args)
		}
	}
	return cmd
}

// say writes a sentence for people to standard error.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.err, format+"\n", args...)
}

// noArgs refuses arguments of commands that take none.
func noArgs(args []string) error {
	if len(args) > 0 {
		return muster.Errorf(muster.Invalid, "unexpected argument %q: this command takes options only", args[0])
	}
	return nil
}
