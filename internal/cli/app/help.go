package app

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// The help texts.
const (
	rootHelp = `{{.Usage}}

Usage: muster COMMAND [options] [arguments]
{{range .VisibleCategories}}
{{slice .Name 2}}:{{range .VisibleCommands}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}
{{end}}{{with topics}}
Help topics:{{range .}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}
{{end}}
Run 'muster COMMAND --help' for the options of a command, 'muster help TOPIC' for a topic.
To get started, run 'muster up', then in another terminal 'muster run -- echo hello'.
`
	commandHelp = `{{.Usage}}

Usage: {{.FullName}}{{if .VisibleCommands}} [COMMAND]{{end}}{{if .VisibleFlags}} [options]{{end}}{{if .ArgsUsage}} {{.ArgsUsage}}{{end}}
{{- if .Description}}

{{.Description}}{{end}}
{{- if .VisibleCommands}}

Commands:{{range .VisibleCommands}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}{{end}}
{{- range sections .}}

{{.Title}}:{{range .Rows}}
  {{.Name}}{{"\t"}}{{.Usage}}{{end}}{{end}}
`
)

var (
	unknownFlag  = lazyregexp.New(`^flag provided but not defined: -+(.*)$`)
	missingValue = lazyregexp.New(`^flag needs an argument: (.*)$`)
	wrongValue   = lazyregexp.New(`^invalid value (.*) for flag -([^:]*): (.*)$`)
	wrongEnv     = lazyregexp.New(`^could not parse (.*) as .* from environment variable "(.*)" for flag ([^:]*): (.*)$`)
)

// normalizeArgs makes "help CMD" and "--help CMD" the same as "CMD --help", and
// --version a command. It leaves "help TOPIC".
func (a *App) normalizeArgs(args []string) []string {
	if len(args) == 2 && args[1] == "--version" {
		return []string{args[0], "version"}
	}
	if len(args) == 3 && args[1] == "help" && a.topic(args[2]) != nil {
		return args
	}
	if len(args) > 1 && slices.Contains([]string{"help", "--help", "-h"}, args[1]) {
		return slices.Concat(args[:1], args[2:], []string{"--help"})
	}
	return args
}

// boolValue is the value of an option that needs none.
type boolValue struct{ *bool }

func (t boolValue) String() string { return "" }
func (t boolValue) Get() any       { return t.bool } // not a bool: the library must not recognize it
func (boolValue) IsBoolFlag() bool { return true }
func (t boolValue) Set(s string) (err error) {
	*t.bool, err = strconv.ParseBool(s)
	return err
}

// helpFlag is not a cli.BoolFlag: for one with the name help, the library prints its own text.
func helpFlag(requested *bool) cli.Flag {
	return &cli.GenericFlag{Name: "help", Aliases: []string{"h"}, Usage: "Show this help", Category: "Help", Value: boolValue{requested}, Local: true, HideDefault: true}
}

func (a *App) helpCommand(commands []*cli.Command) *cli.Command {
	return a.NewCommand(Command{
		Name: "help", Usage: "Show the help of a command or topic", Args: "[COMMAND…|TOPIC]", Category: CategorySetup, Complete: a.completeHelp(commands),
		Run: func(_ context.Context, args []string) error { // see normalizeArgs
			a.printTopic(a.topic(args[0]))
			return nil
		},
	})
}

func (a *App) printHelp(cmd *cli.Command) {
	template := commandHelp
	if cmd.Name == programName {
		template = rootHelp
	}
	a.printText(template, cmd, map[string]any{"sections": renderSections, "topics": func() []Topic { return a.Topics }})
}

// printText prints a help text, in lines that fit the terminal.
func (a *App) printText(template string, data any, funcs map[string]any) {
	var text strings.Builder
	cli.HelpPrinterCustom(&text, template, data, funcs)
	_, _ = io.WriteString(a.Out, wrapHelp(text.String(), a.Out.Width)) // like the errors of HelpPrinterCustom
}

// tableRow is the first column of a row of a help text, with the space before and after it.
var tableRow = lazyregexp.New(`^ +\S+(?: \S+)* {2,}`)

const (
	minUsage   = 30 // columns: with less, the second column of a row is on lines of its own
	usageStart = 8  // indentation of those
)

// wrapHelp breaks the lines of a help text that are longer than width; 0 means no limit. The second column of a table continues below itself.
func wrapHelp(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if term.Width(line) <= width {
			b.WriteString(line + "\n")
			continue
		}
		rest := strings.TrimLeft(line, " ")
		first, indent := line[:len(line)-len(rest)], len(line)-len(rest)
		if row := tableRow.Get().FindString(line); row != "" {
			rest, first, indent = line[len(row):], row, term.Width(row)
			if width-indent < minUsage {
				b.WriteString(strings.TrimRight(row, " ") + "\n")
				first, indent = strings.Repeat(" ", usageStart), usageStart
			}
		}
		for _, l := range term.Wrap(strings.Fields(rest), max(width-indent, 1)) {
			b.WriteString(first + l + "\n")
			first = strings.Repeat(" ", indent)
		}
	}
	return b.String()
}

// HelpSection is a table of a help text: of options, or of something else, such as environment variables.
type HelpSection struct {
	Title string
	Rows  []HelpRow
}

// HelpRow is one line of a HelpSection.
type HelpRow struct{ Name, Usage string }

const sectionsKey = "sections" // in the metadata of a command

// AddHelpSections adds tables to the help text of a command, below its options.
func AddHelpSections(cmd *cli.Command, more ...HelpSection) {
	if cmd.Metadata == nil {
		cmd.Metadata = map[string]any{}
	}
	existing, _ := cmd.Metadata[sectionsKey].([]HelpSection)
	cmd.Metadata[sectionsKey] = append(existing, more...)
}

// renderSections returns the options by group, in the order of the command and sorted by name within a group, then the tables
// of AddHelpSections, then the option help.
func renderSections(cmd *cli.Command) []HelpSection {
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
	var all []HelpSection
	for _, title := range titles {
		list := options[title]
		slices.SortFunc(list, func(a, b cli.Flag) int { return strings.Compare(a.Names()[0], b.Names()[0]) })
		s := HelpSection{Title: title}
		for _, f := range list {
			s.Rows = append(s.Rows, renderFlag(f))
		}
		all = append(all, s)
	}
	tables, _ := cmd.Metadata[sectionsKey].([]HelpSection)
	return slices.Insert(all, len(all)-1, tables...)
}

// renderFlag writes an option as docker does: "-m, --memory bytes", and what it is for.
func renderFlag(f cli.Flag) HelpRow {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return HelpRow{Name: f.String()}
	}
	names := f.Names()
	line := "    --" + names[0]
	if len(names) > 1 && len(names[1]) == 1 {
		line = "-" + names[1] + ", --" + names[0]
	}
	if g, ok := f.(*cli.GenericFlag); ok {
		if v, ok := g.Value.(*flagValue); ok {
			line += " " + v.placeholder
		}
	}
	usage := []string{d.GetUsage()}
	if text := d.GetDefaultText(); text != "" {
		usage = append(usage, "(default: "+text+")")
	}
	for _, env := range d.GetEnvVars() {
		usage = append(usage, "[$"+env+"]")
	}
	return HelpRow{line, strings.Join(usage, " ")}
}

// usageError explains an error in the options of a command.
func (c *Command) usageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	help := cmd.FullName() + " --help"
	text := err.Error()
	if m := unknownFlag.Get().FindStringSubmatch(text); m != nil {
		if instead := c.ForeignOptions[m[1]]; instead != "" {
			return muster.Errorf(muster.Invalid, "unknown option %s: %s; see %s", withDashes(m[1]), instead, help)
		}
		if m[1] == "json" && slices.ContainsFunc(cmd.Flags, hasJSONOutput) {
			return muster.Errorf(muster.Invalid, "unknown option --json: use -o json; see %s", help)
		}
		return unknownError("option", withDashes(m[1]), nearestOption(cmd.Flags, m[1]), help)
	}
	if m := missingValue.Get().FindStringSubmatch(text); m != nil {
		return muster.Errorf(muster.Invalid, "option %s needs a value; see %s", m[1], help)
	}
	if m := wrongValue.Get().FindStringSubmatch(text); m != nil {
		if hint := c.ValueHints[m[2]]; hint != "" {
			m[3] += "; " + hint
		}
		return muster.Errorf(muster.Invalid, "invalid value %s for %s: %s", shown(m[1]), withDashes(m[2]), m[3])
	}
	return muster.Errorf(muster.Invalid, "%s; see %s", text, help)
}

// hasJSONOutput reports whether an option is --output with the format json.
func hasJSONOutput(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && slices.Contains(f.Names(), "output") && strings.Contains(d.GetUsage(), "json")
}

// translateFlagError rewords errors that the library returns before a command starts.
func translateFlagError(err error) error {
	if m := wrongEnv.Get().FindStringSubmatch(err.Error()); m != nil {
		return muster.Errorf(muster.Invalid, "invalid value %s for the variable %s: %s", shown(m[1]), m[2], m[4])
	}
	return muster.Errorf(muster.Invalid, "%w", err)
}

// shown returns a quoted value for a message: without the settings of one like SYSTEM,token=TOKEN.
func shown(quoted string) string {
	first, settings, _ := strings.Cut(quoted, ",")
	if !strings.Contains(settings, "=") {
		return quoted
	}
	return first + `,…"`
}

func withDashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + strings.TrimLeft(name, "-")
}

// nearestCommand returns the command that name is probably a typing error or the beginning of, "" if there is none.
func nearestCommand(commands []*cli.Command, name string) string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	return nearest(name, names)
}

// nearestOption is nearestCommand for options, with dashes.
func nearestOption(flags []cli.Flag, name string) string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()[0])
	}
	if near := nearest(name, names); near != "" {
		return withDashes(near)
	}
	return ""
}

// nearest returns the candidate that differs from name by one typing error, two in a long name, or of which name is an extension or an
// abbreviation of at least three letters. A wrong guess is worse than none.
func nearest(name string, candidates []string) string {
	edits := 1
	if len(name) > 5 {
		edits = 2
	}
	if near := muster.NearestWithin(name, candidates, edits); near != "" {
		return near
	}
	for _, c := range candidates {
		if short := min(len(name), len(c)); short >= 3 && name[:short] == c[:short] {
			return c
		}
	}
	return ""
}

// foreignError is the error for a command of another program.
func foreignError(name, instead, help string) error {
	return muster.Errorf(muster.Invalid, "unknown command %q: %s; see %s", name, instead, help)
}

func unknownError(noun, name, nearest, help string) error {
	if nearest != "" {
		return muster.Errorf(muster.Invalid, "unknown %s %q: did you mean %q? See %s", noun, name, nearest, help)
	}
	return muster.Errorf(muster.Invalid, "unknown %s %q: see %s", noun, name, help)
}
