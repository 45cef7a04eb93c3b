package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/frame"
)

type versionConfig struct{ frame.OutputOptions }

func (c *versionConfig) flags() []cli.Flag { return c.Flags() }

func (a *runner) versionCommand() *cli.Command {
	c := &versionConfig{}
	return a.NewCommand(frame.Command{
		Name: "version", Usage: "say which build this is", Category: frame.CategorySetup, Flags: c.flags(),
		Run: func(_ context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			b := frame.CurrentBuild()
			return a.Print(c.OutputOptions, b, []string{b.Version}, func() error {
				details := frame.NonEmpty([]string{b.Commit, b.Go, b.Platform})
				return frame.WriteOutput(a.Out, fmt.Appendf(nil, "muster %s (%s)\n", b.Version, strings.Join(details, ", ")))
			})
		},
	})
}
