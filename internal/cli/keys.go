package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type keysConfig struct {
	remote.ServerOptions
	app.OutputOptions
}

func (c *keysConfig) flags() []cli.Flag {
	return slices.Concat(c.OutputOptions.Flags(), c.ServerOptions.Flags())
}

type createKeyConfig struct {
	keysConfig
	key client.NewKey
}

func (c *createKeyConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "name", Usage: "what the key is for, as `TEXT` (default: its role)"}.StringVar(&c.key.Name),
		app.Option{Name: "role", Usage: "what it may do, a `ROLE`: admin, submitter, viewer, or join (lets workers join)"}.EnumVar(&c.key.Role, "admin", "submitter", "viewer", "join"),
		app.Option{Name: "project", Short: "p", Usage: "the only `PROJECT` that it may touch"}.StringVar(&c.key.Project),
		app.Option{Name: "ttl", Usage: "how long it is valid, a `DURATION` such as 30d (default: for ever)"}.DurationVar(&c.key.TTL),
	}, c.keysConfig.flags())
}

func (a *runner) keysCommand() *cli.Command {
	c := &createKeyConfig{key: client.NewKey{Role: "submitter"}}
	return a.NewCommand(app.Command{
		Name: "keys", Usage: "create, list and revoke API keys", Category: app.CategoryAdmin,
		Commands: []*cli.Command{
			a.NewCommand(app.Command{
				Name: "create", Usage: "make a key and print it; it is not shown again", Flags: c.flags(),
				Run: func(ctx context.Context, args []string) error {
					if err := app.NoArgs(args); err != nil {
						return err
					}
					return a.createKey(ctx, c)
				},
			}),
			a.keysSubcommand("list", "list all keys, without their secrets", "", a.listKeys),
			a.keysSubcommand("revoke", "make keys useless at once", "KEY-ID…", a.revokeKeys),
		},
	})
}

func (a *runner) keysSubcommand(name, usage, args string, fn func(context.Context, *keysConfig, []string) error) *cli.Command {
	c := &keysConfig{}
	return a.NewCommand(app.Command{
		Name: name, Usage: usage, Args: args, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error { return fn(ctx, c, args) },
	})
}

func (a *runner) createKey(ctx context.Context, c *createKeyConfig) error {
	c.key.Name = cmp.Or(c.key.Name, c.key.Role)
	server, err := c.Connect()
	if err != nil {
		return err
	}
	created, err := server.CreateKey(ctx, c.key)
	if err != nil {
		return err
	}
	return a.Print(c.OutputOptions, created, []string{created.Secret}, func() error {
		a.Messagef("key %s (%s) is made; its secret is shown this once:", created.Key.ID, created.Key.Role)
		return app.WriteOutput(a.Out, []byte(created.Secret+"\n"))
	})
}

func (a *runner) listKeys(ctx context.Context, c *keysConfig, args []string) error {
	if err := app.NoArgs(args); err != nil {
		return err
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	all, err := server.Keys(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b client.Key) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Name, b.Name))
	})
	now := time.Now()
	l := app.Listing[client.Key]{
		OutputOptions: c.OutputOptions,
		ID:            func(k client.Key) string { return k.ID },
		Table: term.NewTable(term.Column{Title: "KEY", NoTruncate: true}, term.Column{Title: "NAME"}, term.Column{Title: "ROLE", NoTruncate: true},
			term.Column{Title: "PROJECT"}, term.Column{Title: "WORKER"}, term.Column{Title: "AGE", AlignRight: true, NoTruncate: true}, term.Column{Title: "EXPIRES"}),
		Row: func(k client.Key) []string {
			return []string{k.ID, k.Name, k.Role, k.Project, string(k.Worker), app.Age(k.CreatedAt, now), k.ExpiresAt.String()}
		},
		EmptyMessage: "no keys",
		Rows: func(yield func(client.Key, error) bool) {
			for _, k := range all {
				if !yield(k, nil) {
					return
				}
			}
		},
	}
	return l.Write(a.App)
}

func (a *runner) revokeKeys(ctx context.Context, c *keysConfig, args []string) error {
	if len(args) == 0 {
		return muster.Errorf(muster.Invalid, "no key is named: muster keys list shows their ids")
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	for _, id := range args {
		if err := server.RevokeKey(ctx, id); err != nil {
			return err
		}
		if c.Human() {
			a.Messagef("key %s is revoked", id)
		} else {
			fmt.Fprintln(a.Out, id)
		}
	}
	return nil
}
