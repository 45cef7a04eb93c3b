// Package doctor is the command that says what is wrong with this machine.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/doctor"
)

const defaultListen = ":8700" // of muster server

type config struct {
	app.OutputOptions
	remote.ServerOptions
	doctor.Config
	data    string
	sandbox string
	fix     bool
}

func (c *config) flags() []cli.Flag {
	const worker = "Worker"
	return slices.Concat([]cli.Flag{
		app.Option{Name: "fix", Usage: "mend what can be mended safely, and look again"}.BoolVar(&c.fix),
		app.Option{Name: "listen", Usage: "a server of this machine would listen on this `ADDRESS` (default: " + defaultListen + ")"}.WithEnv().StringVar(&c.Listen),
		app.Option{Name: "online", Usage: "ask the index of Python packages, too"}.BoolVar(&c.Online),
		app.Option{Name: "data", Usage: "look at this `FOLDER` of a worker (default: muster/worker in the user's data folder)", Group: worker}.WithEnv().StringVar(&c.data),
		app.Option{Name: "engine", Usage: "the container engine is at this `URL`; none means none (default: auto, those that are found)", Group: worker}.WithEnv().StringVar(&c.Engine),
		app.Option{Name: "image-disk", Usage: "images would be kept within these `BYTES` of disk", Group: worker}.WithEnv().SizeVar(&c.ImageDisk),
		app.Option{Name: "task-user", Usage: "tasks would run as this `USER`", Group: worker}.WithEnv().StringVar(&c.Limits.TaskUser),
		app.Option{Name: "sandbox", Usage: "tasks would be kept to their own files: `WHEN` the kernel can (auto), never (off), or not without it (strict)", Group: worker}.
			WithEnv().EnumVar(&c.sandbox, string(isolation.Auto), string(isolation.Off), string(isolation.Strict)),
	}, c.ServerOptions.Flags(), c.OutputOptions.Flags())
}

// Command returns the command.
func Command(a *app.App) *cli.Command {
	c := &config{sandbox: string(isolation.Auto)}
	return a.NewCommand(app.Command{
		Name: "doctor", Usage: "say what is wrong with this machine, and how to mend it", Category: app.CategorySetup, Flags: c.flags(),
		Description: "It looks at the machine as a worker and as a client of its server, and changes nothing without --fix. The exit status is 1 if there is a problem.",
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			return c.run(ctx, a)
		},
	})
}

func (c *config) run(ctx context.Context, a *app.App) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	if err := c.resolve(); err != nil {
		return err
	}
	d := doctor.New(c.Config)
	found, err := d.Run(ctx)
	if err != nil {
		return err
	}
	if c.fix {
		found, err = d.Repair(ctx, found, func(does string) { a.Messagef("%s", does) })
		if err != nil {
			return err
		}
	}
	more, err := bridges()
	if err != nil {
		return err
	}
	found = append(found, more...)
	if err := a.Print(c.OutputOptions, found, problemNames(found), func() error { return draw(a, found) }); err != nil {
		return err
	}
	if doctor.Worst(found) == doctor.Problem {
		return &app.StatusError{Status: app.ExitFailed}
	}
	return nil
}

// resolve fills in what this user has saved, and defaults.
func (c *config) resolve() error {
	var err error
	if c.Data, err = app.DataDir(c.data, "worker"); err != nil {
		return err
	}
	c.Version = app.CurrentBuild().Version
	c.Limits.Sandbox = isolation.Mode(c.sandbox)
	c.ListenSet = c.Listen != ""
	if !c.ListenSet {
		c.Listen = defaultListen
	}
	if c.SavedPath, err = remote.ContextPath(); err != nil {
		return err
	}
	saved, err := remote.LoadContext()
	c.SavedErr = err
	target := saved.Lookup(strings.TrimRight(c.URL, "/"))
	c.ServerSet = target.URL != ""
	if !c.ServerSet {
		target = saved.Lookup(remote.DefaultServer)
	}
	token, err := c.Token.Read()
	if err != nil {
		return err
	}
	if token != "" {
		target.Token = token
	}
	c.Server = doctor.SavedServer{URL: target.URL, Token: target.Token, JoinToken: target.JoinToken, Data: target.Data}
	return nil
}

// problemNames names what should be looked at.
func problemNames(found []doctor.Finding) []string {
	var names []string
	for _, f := range found {
		if name := fmt.Sprintf("%s/%s", f.Group, f.Name); (f.Status == doctor.Warning || f.Status == doctor.Problem) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
