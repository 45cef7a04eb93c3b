package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/frame"
)

type versionConfig struct{ frame.Format }

func (c *versionConfig) flags() []cli.Flag { return c.Flags() }

func (a *app) versionCommand() *cli.Command {
	c := &versionConfig{}
	return a.Command(frame.Command{
		Name: "version", Usage: "say which build this is", Category: frame.SetUp, Flags: c.flags(),
		Run: func(_ context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			b := frame.BuildVersion()
			return a.Show(c.Format, b, []string{b.Version}, func() error {
				made := frame.NonEmpty([]string{b.Commit, b.Go, b.Platform})
				return frame.Write(a.Out, fmt.Appendf(nil, "muster %s (%s)\n", b.Version, strings.Join(made, ", ")))
			})
		},
	})
}
