package app

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
)

// The help texts.
const (
	rootHelp = `{{.Name}}: {{.Usage}}

Usage: muster COMMAND [options] [arguments]
{{range .VisibleCategories}}
{{slice .Name 2}}{{range .VisibleCommands}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}
{{end}}
muster COMMAND --help tells all options of a command and their variables.
The first steps: muster up, and in another terminal muster run -- echo hello
`
	commandHelp = `{{.FullName}}: {{.Usage}}

Usage: {{.FullName}}{{if .VisibleCommands}} [COMMAND]{{end}}{{if .VisibleFlags}} [options]{{end}}{{if .ArgsUsage}} {{.ArgsUsage}}{{end}}
{{- if .Description}}

{{.Description}}{{end}}
{{- if .VisibleCommands}}

Commands{{range .VisibleCommands}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}{{end}}
{{- range sections .}}

{{.Title}}{{range .Lines}}
  {{.}}{{end}}{{end}}
`
)

var (
	unknownFlag  = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)
	missingValue = regexp.MustCompile(`^flag needs an argument: (.*)$`)
	wrongValue   = regexp.MustCompile(`^invalid value (.*) for flag -([^:]*): (.*)$`)
	wrongEnv     = regexp.MustCompile(`^could not parse (.*) as .* from environment variable "(.*)" for flag ([^:]*): (.*)$`)
)

// normalizeArgs makes "help CMD" and "--help CMD" the same as "CMD --help", and
// --version a command.
func normalizeArgs(args []string) []string {
	if len(args) == 2 && args[1] == "--version" {
		return []string{args[0], "version"}
	}
	if len(args) > 1 && slices.Contains([]string{"help", "--help", "-h"}, args[1]) {
		return slices.Concat(args[:1], args[2:], []string{"--help"})
	}
	return args
}

// boolValue is a value that may be left out.
type boolValue struct{ *bool }

func (t boolValue) String() string { return "" }
func (t boolValue) Get() any       { return t.bool } // no bool: the library must not see it
func (boolValue) IsBoolFlag() bool { return true }
func (t boolValue) Set(s string) (err error) {
	*t.bool, err = strconv.ParseBool(s)
	return err
}

// helpFlag is no cli.BoolFlag, because with one of the name help the library
// would print a text of its own.
func helpFlag(requested *bool) cli.Flag {
	f := &cli.GenericFlag{Name: "help", Aliases: []string{"h"}, Usage: "show this text", Category: "Help", Value: boolValue{requested}, Local: true, HideDefault: true}
	f.SetStringer(func(cli.Flag) string { return "--help, -h\tshow this text" })
	return f
}

func (a *App) helpCommand() *cli.Command {
	return a.NewCommand(Command{Name: "help", Usage: "show what a command does", Args: "[COMMAND…]", Category: CategorySetup})
}

func (a *App) printHelp(cmd *cli.Command) {
	template := commandHelp
	if cmd.Name == programName {
		template = rootHelp
	}
	cli.HelpPrinterCustom(a.Out, template, cmd, map[string]any{"sections": renderSections})
}

// HelpSection is a table in the help text of a command that lists no options, such as one of variables.
type HelpSection struct {
	Title string
	Rows  []HelpRow
}

// HelpRow is one line of a Section.
type HelpRow struct{ Name, Usage string }

const sectionsKey = "sections" // in the metadata of a command

// AddHelpSections adds tables to the help text of a command. They are below its options.
func AddHelpSections(cmd *cli.Command, more ...HelpSection) {
	if cmd.Metadata == nil {
		cmd.Metadata = map[string]any{}
	}
	existing, _ := cmd.Metadata[sectionsKey].([]HelpSection)
	cmd.Metadata[sectionsKey] = append(existing, more...)
}

// renderedSection is a part of a help text: a heading and the lines below it, which have a tab between name and usage.
type renderedSection struct {
	Title string
	Lines []string
}

// renderSections lists the options of a command by their headings, in the order in which the command names these, then the tables
// of Describe, and the option for help last. The options below a heading are sorted by name.
func renderSections(cmd *cli.Command) []renderedSection {
	var titles []string
	options := map[string][]cli.Flag{}
	for _, f := range cmd.VisibleFlags() {
		title := "Options"
		if c, ok := f.(cli.CategorizableFlag); ok && c.GetCategory() != "" {
			title = c.GetCategory()
		}
		if options[title] == nil {
			titles = append(titles, title)
		}
		options[title] = append(options[title], f)
	}
	var all []renderedSection
	for _, title := range titles {
		list := options[title]
		slices.SortFunc(list, func(a, b cli.Flag) int { return strings.Compare(a.Names()[0], b.Names()[0]) })
		s := renderedSection{Title: title}
		for _, f := range list {
			s.Lines = append(s.Lines, f.String())
		}
		all = append(all, s)
	}
	tables, _ := cmd.Metadata[sectionsKey].([]HelpSection)
	for _, t := range tables {
		s := renderedSection{Title: t.Title}
		for _, r := range t.Rows {
			s.Lines = append(s.Lines, r.Name+"\t"+r.Usage)
		}
		all = slices.Insert(all, len(all)-1, s)
	}
	return all
}

// usageError says in one sentence what is wrong with the options of a command.
func (c *Command) usageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	help := cmd.FullName() + " --help"
	text := err.Error()
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		if instead := c.ForeignOptions[m[1]]; instead != "" {
			return muster.Errorf(muster.Invalid, "there is no option %s: %s; see %s", withDashes(m[1]), instead, help)
		}
		if m[1] == "json" && slices.ContainsFunc(cmd.Flags, hasJSONOutput) {
			return muster.Errorf(muster.Invalid, "there is no option --json: write -o json; see %s", help)
		}
		return unknownError("option", withDashes(m[1]), nearestOption(cmd.Flags, m[1]), help)
	}
	if m := missingValue.FindStringSubmatch(text); m != nil {
		return muster.Errorf(muster.Invalid, "a value is missing after %s; see %s", m[1], help)
	}
	if m := wrongValue.FindStringSubmatch(text); m != nil {
		return muster.Errorf(muster.Invalid, "%s %s is wrong: %s", withDashes(m[2]), m[1], m[3])
	}
	return muster.Errorf(muster.Invalid, "%s; see %s", text, help)
}

// hasJSONOutput reports whether an option is the one for formats.
func hasJSONOutput(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && slices.Contains(f.Names(), "output") && strings.Contains(d.GetUsage(), "json")
}

// translateFlagError makes one sentence of the errors that come before a command begins.
func translateFlagError(err error) error {
	text := err.Error()
	if m := wrongEnv.FindStringSubmatch(text); m != nil {
		return muster.Errorf(muster.Invalid, "the variable %s=%s is wrong: %s", m[2], m[1], m[4])
	}
	return muster.Errorf(muster.Invalid, "%w", err)
}

func withDashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + strings.TrimLeft(name, "-")
}

// nearestCommand is the command that name was probably meant to be, "" if none is like it.
func nearestCommand(commands []*cli.Command, name string) string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	return muster.Nearest(name, names)
}

// nearestOption is the same for an option, with its dashes.
func nearestOption(flags []cli.Flag, name string) string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()[0])
	}
	if near := muster.Nearest(name, names); near != "" {
		return withDashes(near)
	}
	return ""
}

func unknownError(noun, name, nearest, help string) error {
	if nearest != "" {
		return muster.Errorf(muster.Invalid, "unknown %s %q: did you mean %q? See %s", noun, name, nearest, help)
	}
	return muster.Errorf(muster.Invalid, "unknown %s %q: see %s", noun, name, help)
}
