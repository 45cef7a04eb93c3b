// Package doctor has the command that diagnoses this machine.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/doctor"
)

const defaultListen = ":8700" // of muster server

type config struct {
	remote.QueryOptions
	doctor.Config
	data    string
	sandbox string
}

func (c *config) flags() []cli.Flag {
	const worker = "Worker"
	return c.Flags(
		app.Option{Name: "listen", Value: "address", Usage: "Address that a server on this machine would listen on (default: " + defaultListen + ")"}.WithEnv().StringVar(&c.Listen),
		app.Option{Name: "online", Usage: "Also check the Python package index"}.BoolVar(&c.Online),
		app.Option{Name: "data", Value: "path", Usage: "Data directory of the worker (default: muster/worker in the user's data directory)", Group: worker}.WithEnv().StringVar(&c.data),
		app.Option{Name: "engine", Value: "url", Usage: "Container engine; none disables containers (default: auto, those that are found)", Group: worker}.WithEnv().StringVar(&c.Engine),
		app.Option{Name: "image-disk", Usage: "Maximum disk space of images", Group: worker}.WithEnv().SizeVar(&c.ImageDisk),
		app.Option{Name: "task-user", Value: "user", Usage: "User that tasks run as", Group: worker}.WithEnv().StringVar(&c.Limits.TaskUser),
		app.Option{Name: "sandbox", Usage: "Sandbox of tasks: auto, off or strict", Group: worker}.
			WithEnv().EnumVar(&c.sandbox, string(isolation.Auto), string(isolation.Off), string(isolation.Strict)))
}

// Command returns the command.
func Command(a *app.App) *cli.Command {
	c := &config{sandbox: string(isolation.Auto)}
	return a.NewCommand(app.Command{
		Name: "doctor", Usage: "Diagnose problems of this machine", Category: app.CategorySetup, Flags: c.flags(),
		Description: "Checks the machine as a worker and as a client of its server, and changes nothing. The exit status is 1 if there is a problem.",
		Run:         func(ctx context.Context, _ []string) error { return c.run(ctx, a) },
	})
}

func (c *config) run(ctx context.Context, a *app.App) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	if err := c.resolve(); err != nil {
		return err
	}
	found, err := doctor.New(c.Config).Run(ctx)
	if err != nil {
		return err
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

// resolve sets defaults and values from the saved context.
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
	token, err := c.Token.Read()
	if err != nil {
		return err
	}
	target, err := saved.LookupFor(c.URL, token)
	switch {
	case err != nil && c.URL != "":
		target = remote.Server{URL: c.URL} // a finding
	case err != nil:
		c.SavedErr = err
	}
	c.ServerSet = target.URL != ""
	if !c.ServerSet {
		if target, err = saved.Lookup(remote.DefaultServer); err != nil {
			return err
		}
	}
	target.UseEnvironment()
	target.Token = cmp.Or(token, target.Token)
	c.Server = doctor.SavedServer{URL: target.URL, Token: target.Token, JoinToken: target.JoinToken, Data: target.Data, CA: target.CA, TLSServerName: target.TLSServerName, ClientCert: target.ClientCert, ClientKey: target.ClientKey}
	return nil
}

// problemNames returns the names of warnings and problems.
func problemNames(found []doctor.Finding) []string {
	var names []string
	for _, f := range found {
		if name := fmt.Sprintf("%s/%s", f.Group, f.Name); (f.Status == doctor.Warning || f.Status == doctor.Problem) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
