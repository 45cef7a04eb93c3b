package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
)

type versionConfig struct{ app.OutputOptions }

func (c *versionConfig) flags() []cli.Flag { return c.Flags() }

func (a *runner) versionCommand() *cli.Command {
	c := &versionConfig{}
	return a.NewCommand(app.Command{
		Name: "version", Usage: "say which build this is", Category: app.CategorySetup, Flags: c.flags(),
		Run: func(_ context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			b := app.CurrentBuild()
			return a.Print(c.OutputOptions, b, []string{b.Version}, func() error {
				details := app.NonEmpty([]string{b.Commit, b.Go, b.Platform})
				return app.WriteOutput(a.Out, fmt.Appendf(nil, "muster %s (%s)\n", b.Version, strings.Join(details, ", ")))
			})
		},
	})
}
