package host

import (
	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serve"
)

// addDialectHelp lists what --dialect takes in the help text of a command.
func addDialectHelp(cmd *cli.Command) {
	systems := serve.Dialects()
	all := frame.HelpSection{Title: "Systems of --dialect SYSTEM[=ADDRESS][,OPTION=VALUE…]"}
	tables := []frame.HelpSection{{Title: "Options of every system", Rows: helpRows(dialect.CommonOptions())}}
	for i := range systems {
		s := &systems[i]
		all.Rows = append(all.Rows, frame.HelpRow{Name: s.Name, Usage: s.Title + " (default address: " + s.Address + ")"})
		if len(s.Options) > 0 {
			tables = append(tables, frame.HelpSection{Title: "Options of " + s.Name, Rows: helpRows(s.Options)})
		}
	}
	frame.AddHelpSections(cmd, append([]frame.HelpSection{all}, tables...)...)
}

func helpRows(options []dialect.Option) []frame.HelpRow {
	var rows []frame.HelpRow
	for _, o := range options {
		rows = append(rows, frame.HelpRow{Name: o.Name, Usage: o.Usage})
	}
	return rows
}
