// Package app runs the command line: it describes commands and their options, writes output in the
// requested format, and turns errors into a message on standard error and an exit status.
package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// App is one run of the program.
type App struct {
	In  io.Reader
	Out term.Screen
	Err term.Screen
	// ForeignCommands returns what to use instead of a word that is no argument of a command, such as "muster" or "muster job", but one of
	// a similar program; "" for any other word. It may be nil.
	ForeignCommands func(command, word string) string
	Topics          []Topic  // of muster help
	Args            []string // of the program, with its name

	started bool // a command runs: earlier errors are usage errors
}

// The categories of commands, sorted by name. The help text omits the letter and the space.
const (
	CategorySetup   = "a Setup"
	CategorySubmit  = "b Submit"
	CategoryWatch   = "c Monitor and control"
	CategoryResults = "d Results"
	CategoryAdmin   = "e Administration"
)

// Run runs the command in args and returns the exit status.
func (a *App) Run(ctx context.Context, commands []*cli.Command, args []string) int {
	if len(args) > 1 && args[1] == completeCommand {
		return a.reportError(a.complete(ctx, commands, args[2:]))
	}
	args = a.normalizeArgs(args)
	a.Args = args
	root := a.rootCommand(named(commands, args))
	if err := a.rejectForeign(root, args); err != nil {
		return a.reportError(err)
	}
	err := root.Run(ctx, args)
	if err != nil && !a.started {
		err = translateFlagError(err)
	}
	return a.reportError(err)
}

// named returns only the command that args name, if one is: the library prepares each command, which takes longer than most commands.
func named(commands []*cli.Command, args []string) []*cli.Command {
	if len(args) > 1 {
		if i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(args[1]) }); i >= 0 {
			return commands[i : i+1 : i+1]
		}
	}
	return commands
}

// rejectForeign returns an error if args begin with a command of a similar program, whose options would cause a less helpful one.
func (a *App) rejectForeign(root *cli.Command, args []string) error {
	if a.ForeignCommands == nil || len(args) < 2 || root.Command(args[1]) != nil {
		return nil
	}
	if instead := a.ForeignCommands(programName, args[1]); instead != "" {
		return foreignError(args[1], instead, programName+" --help")
	}
	return nil
}

func (a *App) rootCommand(commands []*cli.Command) *cli.Command {
	root := a.NewCommand(Command{
		Name: programName, Usage: "Run AI and compute jobs on every machine you have", Commands: append(commands, a.helpCommand(commands)),
	})
	root.Writer, root.ErrWriter, root.Reader = a.Out, a.Err, a.In
	root.ExitErrHandler = func(context.Context, *cli.Command, error) {} // Run handles errors
	return root
}

const programName = "muster"

// Command describes one command.
type Command struct {
	Name, Usage, Description string
	Args                     string // "" means that the command takes none
	Category                 string
	Flags                    []cli.Flag
	Commands                 []*cli.Command
	StopAtFirstArg           bool              // options end at the first argument
	Examples                 []HelpRow         // commands, and what they do
	ForeignOptions           map[string]string // options of similar programs, without dashes, and what to use instead
	ValueHints               map[string]string // what a wrong value of an option may be meant for, by the names of options without dashes
	Complete                 Completer         // of arguments; nil means names of files
	Run                      func(ctx context.Context, args []string) error
}

// NewCommand returns a command. Without a Run it prints its help.
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
	if c.Complete != nil {
		cmd.Metadata = map[string]any{completerKey: c.Complete}
	}
	if len(c.Examples) > 0 {
		AddHelpSections(cmd, HelpSection{Title: "Examples", Rows: c.Examples})
	}
	cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
		a.started = true
		args := cmd.Args().Slice()
		if a.ForeignCommands != nil && len(args) > 0 {
			if instead := a.ForeignCommands(cmd.FullName(), args[0]); instead != "" {
				return foreignError(args[0], instead, cmd.FullName()+" --help")
			}
		}
		switch {
		case len(c.Commands) > 0 && len(args) > 0:
			return unknownError("command", args[0], nearestCommand(cmd.Commands, args[0]), cmd.FullName()+" --help")
		case help || c.Run == nil:
			a.printHelp(cmd)
			return nil
		case c.Args == "" && len(args) > 0:
			return muster.Errorf(muster.Invalid, "unexpected argument %q: %s takes options only", args[0], cmd.FullName())
		default:
			a.warnFlags(c.Flags)
			return c.Run(ctx, args)
		}
	}
	return cmd
}

// warnFlags prints the warnings of options.
func (a *App) warnFlags(flags []cli.Flag) {
	for _, f := range flags {
		g, ok := f.(*cli.GenericFlag)
		if !ok {
			continue
		}
		if v, ok := g.Value.(*flagValue); ok && v.warning != nil {
			if text := v.warning(); text != "" {
				a.Warnf("%s", text)
			}
		}
	}
}

// Messagef writes a line for people to standard error. On a terminal, more lines of a text are indented: what a server says cannot look like
// another message.
func (a *App) Messagef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if a.Err.Terminal {
		text = strings.ReplaceAll(text, "\n", "\n  ")
	}
	fmt.Fprintln(a.Err, text)
}

// Warnf writes a warning to standard error.
func (a *App) Warnf(format string, args ...any) {
	a.Messagef("%s %s", a.Err.Paint(term.Yellow, "muster:"), fmt.Sprintf(format, args...))
}
