package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/install"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/workerd"
)

// installConfig has the options of worker install: its own, and those of the worker.
type installConfig struct {
	workerConfig

	user   bool
	dryRun bool
}

func newInstallConfig() *installConfig {
	return &installConfig{workerConfig: workerConfig{workerOptions: newWorkerOptions(), LogOptions: app.DefaultLogOptions()}}
}

func (c *installConfig) flags() []cli.Flag { return append(c.ownFlags(), c.workerConfig.flags()...) }

// ownFlags are the options that the worker does not get.
func (c *installConfig) ownFlags() []cli.Flag {
	return []cli.Flag{userOption().BoolVar(&c.user), dryRunOption().BoolVar(&c.dryRun)}
}

func userOption() app.Option {
	return app.Option{Name: "user", Usage: "Use the service manager of this user instead of the machine's", Group: "Service"}
}

func dryRunOption() app.Option {
	return app.Option{Name: "dry-run", Usage: "Only print the files and commands", Group: "Service"}
}

func (a *runner) installCommand() *cli.Command {
	c := newInstallConfig()
	flags := c.flags()
	return a.NewCommand(app.Command{
		Name: "install", Usage: "Run the worker as a service of this machine", Flags: flags,
		Description: "Takes the options of 'muster worker', checks that the worker can join the server, and starts it as a service of systemd or launchd, now and at every boot. " +
			"Its data directory is /var/lib/muster/worker (of a user: that of 'muster worker'; macOS: /usr/local/var/lib/muster/worker). " +
			"Repeat it to change options: they replace the former ones, and on Linux running tasks continue.",
		Examples: []app.HelpRow{
			{Name: "sudo muster worker install --server http://10.0.0.5:8700 --token-file ~/join-token", Usage: "Join a server, as a service of the machine"},
			{Name: "muster worker install --user --server http://10.0.0.5:8700 --token-file ~/join-token", Usage: "The same without root"},
		},
		Run: func(ctx context.Context, _ []string) error { return a.install(ctx, c, flags) },
	})
}

func (a *runner) uninstallCommand() *cli.Command {
	user := false
	return a.NewCommand(app.Command{
		Name: "uninstall", Usage: "Stop and remove the service of muster worker install", Flags: []cli.Flag{userOption().BoolVar(&user)},
		Description: "Running tasks have --shutdown-grace to end. The worker's data directory stays.",
		Run: func(ctx context.Context, _ []string) error {
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			host, err := install.New(a.App, user)
			if err != nil {
				return err
			}
			return host.Uninstall(ctx)
		},
	})
}

func (a *runner) install(ctx context.Context, c *installConfig, flags []cli.Flag) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	host, err := install.New(a.App, c.user)
	if err != nil {
		return err
	}
	given := a.Args
	if len(given) < 3 || given[2] != "install" {
		return muster.Errorf(muster.Invalid, "the options of the worker must follow 'muster worker install'")
	}
	target, err := c.target()
	if err != nil {
		return err
	}
	service := install.Service{Token: auth.WithPin(target.JoinToken, target.CA), Server: target.URL}
	if service.Program, err = app.ProgramPath(); err != nil {
		return err
	}
	if service.Args, service.Env, err = c.serviceOptions(given[3:], target.URL, flags); err != nil {
		return err
	}
	data, err := app.DataDir(cmp.Or(c.data, host.DataDir()), "worker")
	if err != nil {
		return err
	}
	cfg, err := c.config(data)
	if err != nil {
		return err
	}
	cfg.Server, cfg.Token = target.URL, service.Token
	if cfg.ClientCert != "" {
		target.ClientCert, target.ClientKey = cfg.ClientCert, cfg.ClientKey
	}
	if _, err := workerd.New(cfg, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	if c.dryRun {
		return host.Print(&service)
	}
	if err := checkJoin(ctx, &target, data); err != nil {
		return err
	}
	return host.Install(ctx, &service)
}

// serviceOptions returns the arguments of the service, for the options that were given, and the variables that set others. The token is
// not among them.
func (c *installConfig) serviceOptions(given []string, server string, flags []cli.Flag) (args, env []string, err error) {
	own := append([]string{"server"}, optionNames(c.ownFlags())...)
	given = c.token.RemoveFlags(given)
	args = []string{"worker", "--server", server}
	for i := 0; i < len(given); i++ {
		name, value, hasValue := strings.Cut(strings.TrimLeft(given[i], "-"), "=")
		last := i
		if !hasValue && !isSwitch(flags, name) && i+1 < len(given) {
			last, value = i+1, given[i+1]
		}
		if err := checkPath(flags, name, "--"+name, value); err != nil {
			return nil, nil, err
		}
		if !slices.Contains(own, name) {
			args = append(args, given[i:last+1]...)
		}
		i = last
	}
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if !ok || slices.Contains(own, f.Names()[0]) || c.token.HasFlag(f.Names()[0]) {
			continue
		}
		for _, name := range d.GetEnvVars() {
			value := os.Getenv(name)
			if value == "" {
				continue
			}
			if err := checkPath(flags, f.Names()[0], name, value); err != nil {
				return nil, nil, err
			}
			env = append(env, name+"="+value)
		}
	}
	return args, env, nil
}

// checkPath returns an error if an option needs an absolute path. source is how it was given.
func checkPath(flags []cli.Flag, name, source, value string) error {
	if app.Placeholder(flags, name) == "path" && !filepath.IsAbs(value) {
		return muster.Errorf(muster.Invalid, "%s is the relative path %s, but the service has another working directory: use an absolute path", source, value)
	}
	return nil
}

func optionNames(flags []cli.Flag) []string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	return names
}

// isSwitch reports whether an option takes no value.
func isSwitch(flags []cli.Flag, name string) bool {
	return slices.ContainsFunc(flags, func(f cli.Flag) bool {
		_, ok := f.(*cli.BoolFlag)
		return ok && slices.Contains(f.Names(), name)
	})
}

// checkJoin returns an error if a worker with the server's join token and this data directory could not join or connect.
func checkJoin(ctx context.Context, target *remote.Server, data string) error {
	id, joined, err := agent.LoadIdentity(data)
	if err != nil {
		return err
	}
	server, token := target.URL, target.JoinToken
	whoami := func(key string) (auth.Role, error) {
		s := *target
		s.Token, s.CA = key, cmp.Or(s.CA, id.CA)
		return whoami(ctx, s)
	}
	if joined {
		_, err := whoami(id.Key)
		if err == nil || token == "" || muster.CodeOf(err) != muster.Unauthenticated {
			return err
		}
	}
	if token == "" {
		return muster.Errorf(muster.Unauthenticated, "the worker has not joined %s yet: set --token-file to a join token, which muster keys create --role join makes", server)
	}
	role, err := whoami(token)
	switch {
	case muster.CodeOf(err) == muster.Unauthenticated:
		return muster.Errorf(muster.Unauthenticated, "%s does not accept this join token (%w): muster keys create --role join makes one", server, err)
	case err != nil:
		return err
	case role != auth.Join && role != auth.Admin:
		return muster.Errorf(muster.Forbidden, "this is the key of a %s, not a join token: muster keys create --role join makes one", role)
	}
	return nil
}

// whoami returns the role of a server's key.
func whoami(ctx context.Context, server remote.Server) (auth.Role, error) {
	c, err := remote.NewClient(server, "")
	if err != nil {
		return "", err
	}
	who, err := c.Whoami(ctx)
	return auth.Role(who.Role), err
}
