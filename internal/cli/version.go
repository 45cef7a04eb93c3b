package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v3"
)

// build is what the binary knows of its making.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // made from files that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

type versionConfig struct{ format }

func (c *versionConfig) flags() []cli.Flag { return c.format.flags() }

func (a *app) versionCommand() *cli.Command {
	c := &versionConfig{}
	return a.command(command{
		name: "version", usage: "say which build this is", category: setUp, flags: c.flags(),
		run: func(_ context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			b := buildVersion()
			return a.show(c.format, b, []string{b.Version}, func() error {
				_, err := fmt.Fprintf(a.out, "muster %s (%s, %s)\n", b.Version, b.Go, b.Platform)
				return err
			})
		},
	})
}
