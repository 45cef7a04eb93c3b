package app

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// App is one run of the program.
type App struct {
	In      io.Reader
	Out     term.Screen
	Err     term.Screen
	started bool // a command has begun: errors before that are wrong usage
}

// The categories of commands. They are sorted by name; the help text leaves the
// letter out.
const (
	CategorySetup   = "a Set up"
	CategorySubmit  = "b Submit"
	CategoryWatch   = "c Watch and steer"
	CategoryResults = "d Results"
	CategoryAdmin   = "e Fleet and access"
)

// Run runs the command that args name, and returns the exit status.
func (a *App) Run(ctx context.Context, commands []*cli.Command, args []string) int {
	err := a.rootCommand(commands).Run(ctx, normalizeArgs(args))
	if err != nil && !a.started {
		err = translateFlagError(err)
	}
	return a.reportError(err)
}

func (a *App) rootCommand(commands []*cli.Command) *cli.Command {
	root := a.NewCommand(Command{
		Name: programName, Usage: "run AI and compute jobs on every machine you have", Commands: append(commands, a.helpCommand()),
	})
	root.EnableShellCompletion = true
	root.ConfigureShellCompletionCommand = a.configureCompletion
	root.Writer, root.ErrWriter, root.Reader = a.Out, a.Err, a.In
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // Run decides
	return root
}

const programName = "muster"

// Command describes one command.
type Command struct {
	Name, Usage, Args, Description string
	Category                       string
	Flags                          []cli.Flag
	Commands                       []*cli.Command    // below it
	StopAtFirstArg                 bool              // what follows the first argument is not ours
	ForeignOptions                 map[string]string // options that people know from other programs, without dashes: what to do instead
	Run                            func(ctx context.Context, args []string) error
}

// NewCommand makes a command. Without a Run it shows what is below it.
func (a *App) NewCommand(c Command) *cli.Command {
	help := false
	cmd := &cli.Command{
		Name: c.Name, Usage: c.Usage, ArgsUsage: c.Args, Description: c.Description, Category: c.Category, Commands: c.Commands,
		Flags:    append(c.Flags, helpFlag(&help)),
		HideHelp: true, HideVersion: true, OnUsageError: c.usageError,
	}
	if c.StopAtFirstArg {
		first := 1
		cmd.StopOnNthArg = &first
	}
	cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
		a.started = true
		args := cmd.Args().Slice()
		switch {
		case len(c.Commands) > 0 && len(args) > 0:
			return unknownError("command", args[0], nearestCommand(cmd.Commands, args[0]), cmd.FullName()+" --help")
		case help || c.Run == nil:
			a.printHelp(cmd)
			return nil
		default:
			a.warnFlags(c.Flags)
			return c.Run(ctx, args)
		}
	}
	return cmd
}

// warnFlags says what is wrong with the way in which options were given.
func (a *App) warnFlags(flags []cli.Flag) {
	for _, f := range flags {
		g, ok := f.(*cli.GenericFlag)
		if !ok {
			continue
		}
		if v, ok := g.Value.(*flagValue); ok && v.warning != nil {
			if text := v.warning(); text != "" {
				a.Messagef("%s %s", a.Err.Paint(term.Yellow, "muster:"), text)
			}
		}
	}
}

// Messagef writes a sentence for people to standard error.
func (a *App) Messagef(format string, args ...any) {
	fmt.Fprintf(a.Err, format+"\n", args...)
}

// NoArgs refuses arguments of commands that take none.
func NoArgs(args []string) error {
	if len(args) > 0 {
		return muster.Errorf(muster.Invalid, "unexpected argument %q: this command takes options only", args[0])
	}
	return nil
}
