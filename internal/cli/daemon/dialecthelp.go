package daemon

import (
	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serverd"
)

// addDialectHelp lists what --dialect takes in the help text of a command.
func addDialectHelp(cmd *cli.Command) {
	systems := serverd.Dialects()
	all := app.HelpSection{Title: "Systems of --dialect SYSTEM[=ADDRESS][,OPTION=VALUE…]"}
	tables := []app.HelpSection{{Title: "Options of every system", Rows: helpRows(dialect.CommonOptions())}}
	for i := range systems {
		s := &systems[i]
		all.Rows = append(all.Rows, app.HelpRow{Name: s.Name, Usage: s.Title + " (default address: " + s.Address + ")"})
		if len(s.Options) > 0 {
			tables = append(tables, app.HelpSection{Title: "Options of " + s.Name, Rows: helpRows(s.Options)})
		}
	}
	app.AddHelpSections(cmd, append([]app.HelpSection{all}, tables...)...)
}

func helpRows(options []dialect.Option) []app.HelpRow {
	var rows []app.HelpRow
	for _, o := range options {
		rows = append(rows, app.HelpRow{Name: o.Name, Usage: o.Usage})
	}
	return rows
}
