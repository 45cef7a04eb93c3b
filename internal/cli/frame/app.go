package frame

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
	SetUp   = "a Set up"
	Submit  = "b Submit"
	Watch   = "c Watch and steer"
	Results = "d Results"
	Admin   = "e Fleet and access"
)

// Run runs the command that args name, and returns the exit status.
func (a *App) Run(ctx context.Context, commands []*cli.Command, args []string) int {
	err := a.root(commands).Run(ctx, commandFirst(args))
	if err != nil && !a.started {
		err = misuse(err)
	}
	return a.report(err)
}

func (a *App) root(commands []*cli.Command) *cli.Command {
	root := a.Command(Command{
		Name: program, Usage: "run AI and compute jobs on every machine you have", Commands: append(commands, a.helpCommand()),
	})
	root.EnableShellCompletion = true
	root.ConfigureShellCompletionCommand = a.completion
	root.Writer, root.ErrWriter, root.Reader = a.Out, a.Err, a.In
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // Run decides
	return root
}

const program = "muster"

// Command describes one command.
type Command struct {
	Name, Usage, Args, About string
	Category                 string
	Flags                    []cli.Flag
	Commands                 []*cli.Command    // below it
	StopAtFirst              bool              // what follows the first argument is not ours
	Foreign                  map[string]string // options that people know from other programs, without dashes: what to do instead
	Run                      func(ctx context.Context, args []string) error
}

// Command makes a command. Without a Run it shows what is below it.
func (a *App) Command(c Command) *cli.Command {
	help := false
	cmd := &cli.Command{
		Name: c.Name, Usage: c.Usage, ArgsUsage: c.Args, Description: c.About, Category: c.Category, Commands: c.Commands,
		Flags:    append(c.Flags, helpFlag(&help)),
		HideHelp: true, HideVersion: true, OnUsageError: c.usageError,
	}
	if c.StopAtFirst {
		first := 1
		cmd.StopOnNthArg = &first
	}
	cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
		a.started = true
		args := cmd.Args().Slice()
		switch {
		case len(c.Commands) > 0 && len(args) > 0:
			return unknown("command", args[0], nearestCommand(cmd.Commands, args[0]), cmd.FullName()+" --help")
		case help || c.Run == nil:
			a.help(cmd)
			return nil
		default:
			a.warn(c.Flags)
			return c.Run(ctx, args)
		}
	}
	return cmd
}

// warn says what is wrong with the way in which options were given.
func (a *App) warn(flags []cli.Flag) {
	for _, f := range flags {
		g, ok := f.(*cli.GenericFlag)
		if !ok {
			continue
		}
		if v, ok := g.Value.(*value); ok && v.after != nil {
			if text := v.after(); text != "" {
				a.Say("%s %s", a.Err.Paint(term.Yellow, "muster:"), text)
			}
		}
	}
}

// Say writes a sentence for people to standard error.
func (a *App) Say(format string, args ...any) {
	fmt.Fprintf(a.Err, format+"\n", args...)
}

// NoArgs refuses arguments of commands that take none.
func NoArgs(args []string) error {
	if len(args) > 0 {
		return muster.Errorf(muster.Invalid, "unexpected argument %q: this command takes options only", args[0])
	}
	return nil
}
