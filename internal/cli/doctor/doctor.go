// Package doctor is the command that says what is wrong with this machine.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/doctor"
)

const defaultListen = ":8700" // of muster server

type config struct {
	frame.Format
	remote.Remote
	doctor.Config
	data    string
	sandbox string
	fix     bool
}

func (c *config) flags() []cli.Flag {
	const worker = "Worker"
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "fix", Usage: "mend what can be mended safely, and look again"}.On(&c.fix),
		frame.Option{Name: "listen", Usage: "a server of this machine would listen on this `ADDRESS` (default: " + defaultListen + ")"}.Variable().Text(&c.Listen),
		frame.Option{Name: "online", Usage: "ask the index of Python packages, too"}.On(&c.Online),
		frame.Option{Name: "data", Usage: "look at this `FOLDER` of a worker (default: muster/worker in the user's data folder)", Group: worker}.Variable().Text(&c.data),
		frame.Option{Name: "engine", Usage: "the container engine is at this `URL`; none means none (default: auto, those that are found)", Group: worker}.Variable().Text(&c.Engine),
		frame.Option{Name: "image-disk", Usage: "images would be kept within these `BYTES` of disk", Group: worker}.Variable().Size(&c.ImageDisk),
		frame.Option{Name: "task-user", Usage: "tasks would run as this `USER`", Group: worker}.Variable().Text(&c.Limits.TaskUser),
		frame.Option{Name: "sandbox", Usage: "tasks would be kept to their own files: `WHEN` the kernel can (auto), never (off), or not without it (strict)", Group: worker}.
			Variable().Choice(&c.sandbox, string(limit.Auto), string(limit.Off), string(limit.Strict)),
	}, c.Remote.Flags(), c.Format.Flags())
}

// Command returns the command.
func Command(app *frame.App) *cli.Command {
	c := &config{sandbox: string(limit.Auto)}
	return app.Command(frame.Command{
		Name: "doctor", Usage: "say what is wrong with this machine, and how to mend it", Category: frame.SetUp, Flags: c.flags(),
		About: "It looks at the machine as a worker and as a client of its server, and changes nothing without --fix. The exit status is 1 if there is a problem.",
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return c.run(ctx, app)
		},
	})
}

func (c *config) run(ctx context.Context, app *frame.App) error {
	ctx, stop := frame.Interruptible(ctx)
	defer stop()
	if err := c.resolve(); err != nil {
		return err
	}
	d := doctor.New(c.Config)
	found, err := d.Look(ctx)
	if err != nil {
		return err
	}
	if c.fix {
		found, err = d.Mend(ctx, found, func(does string) { app.Say("%s", does) })
		if err != nil {
			return err
		}
	}
	more, err := bridges()
	if err != nil {
		return err
	}
	found = append(found, more...)
	if err := app.Show(c.Format, found, troubles(found), func() error { return draw(app, found) }); err != nil {
		return err
	}
	if doctor.Worst(found) == doctor.Problem {
		return &frame.StatusError{Status: frame.ExitFailed}
	}
	return nil
}

// resolve fills in what this user has saved, and defaults.
func (c *config) resolve() error {
	var err error
	if c.Data, err = frame.DataFolder(c.data, "worker"); err != nil {
		return err
	}
	c.Version = frame.BuildVersion().Version
	c.Limits.Sandbox = limit.Mode(c.sandbox)
	c.Listens = c.Listen != ""
	if !c.Listens {
		c.Listen = defaultListen
	}
	if c.Saved, err = remote.SavedPath(); err != nil {
		return err
	}
	saved, err := remote.ReadSaved()
	c.SavedErr = err
	known := saved.Server(strings.TrimRight(c.URL, "/"))
	c.Named = known.URL != ""
	if !c.Named {
		known = saved.Server(remote.DefaultServer)
	}
	token, err := c.Token.Read()
	if err != nil {
		return err
	}
	if token != "" {
		known.Token = token
	}
	c.Server = doctor.Known{URL: known.URL, Token: known.Token, JoinToken: known.JoinToken, Data: known.Data}
	return nil
}

// troubles names what should be looked at.
func troubles(found []doctor.Finding) []string {
	var names []string
	for _, f := range found {
		if name := fmt.Sprintf("%s/%s", f.Group, f.Name); (f.Status == doctor.Warning || f.Status == doctor.Problem) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
