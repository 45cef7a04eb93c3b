package host

import (
	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serve"
)

// describeSystems lists what --dialect takes in the help text of a command.
func describeSystems(cmd *cli.Command) {
	systems := serve.Dialects()
	all := frame.Section{Title: "Systems of --dialect SYSTEM[=ADDRESS][,OPTION=VALUE…]"}
	tables := []frame.Section{{Title: "Options of every system", Rows: rowsOf(dialect.CommonOptions())}}
	for i := range systems {
		s := &systems[i]
		all.Rows = append(all.Rows, frame.Row{Name: s.Name, Usage: s.Title + " (default address: " + s.Address + ")"})
		if len(s.Options) > 0 {
			tables = append(tables, frame.Section{Title: "Options of " + s.Name, Rows: rowsOf(s.Options)})
		}
	}
	frame.Describe(cmd, append([]frame.Section{all}, tables...)...)
}

func rowsOf(options []dialect.Option) []frame.Row {
	var rows []frame.Row
	for _, o := range options {
		rows = append(rows, frame.Row{Name: o.Name, Usage: o.Usage})
	}
	return rows
}
