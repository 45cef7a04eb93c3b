package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type keysConfig struct {
	remote
	format
}

func (c *keysConfig) flags() []cli.Flag { return slices.Concat(c.format.flags(), c.remote.flags()) }

type createConfig struct {
	keysConfig
	key client.NewKey
}

func (c *createConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "name", usage: "what the key is for, as `TEXT`"}.text(&c.key.Name),
		option{name: "role", usage: "what it may do, a `ROLE`: admin, submitter, viewer, or join (lets workers join)"}.choice(&c.key.Role, "admin", "submitter", "viewer", "join"),
		option{name: "project", short: "p", usage: "the only `PROJECT` that it may touch"}.text(&c.key.Project),
		option{name: "ttl", usage: "how long it is valid, a `DURATION` such as 30d (default: for ever)"}.duration(&c.key.TTL),
	}, c.keysConfig.flags())
}

func (a *app) keysCommand() *cli.Command {
	c := &createConfig{key: client.NewKey{Role: "submitter"}}
	return a.command(command{
		name: "keys", usage: "create, list and revoke API keys", category: admin,
		commands: []*cli.Command{
			a.command(command{
				name: "create", usage: "make a key and print it; it is not shown again", flags: c.flags(),
				run: func(ctx context.Context, args []string) error {
					if err := noArgs(args); err != nil {
						return err
					}
					return a.createKey(ctx, c)
				},
			}),
			a.keysBelow("list", "list all keys, without their secrets", "", a.listKeys),
			a.keysBelow("revoke", "make keys useless at once", "KEY-ID…", a.revokeKeys),
		},
	})
}

func (a *app) keysBelow(name, usage, args string, do func(context.Context, *keysConfig, []string) error) *cli.Command {
	c := &keysConfig{}
	return a.command(command{
		name: name, usage: usage, args: args, flags: c.flags(),
		run: func(ctx context.Context, args []string) error { return do(ctx, c, args) },
	})
}

func (a *app) createKey(ctx context.Context, c *createConfig) error {
	if c.key.Name == "" {
		return muster.Errorf(muster.Invalid, "the key has no name: say what it is for with --name")
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	made, err := server.CreateKey(ctx, c.key)
	if err != nil {
		return err
	}
	return a.show(c.format, made, []string{made.Secret}, func() error {
		a.say("key %s (%s) is made; its secret is shown this once:", made.Key.ID, made.Key.Role)
		return write(a.out, []byte(made.Secret+"\n"))
	})
}

func (a *app) listKeys(ctx context.Context, c *keysConfig, args []string) error {
	if err := noArgs(args); err != nil {
		return err
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	all, err := server.Keys(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	l := listing[client.Key]{
		format: c.format,
		id:     func(k client.Key) string { return k.ID },
		table: term.NewTable(term.Column{Title: "KEY", Whole: true}, term.Column{Title: "NAME"}, term.Column{Title: "ROLE", Whole: true},
			term.Column{Title: "PROJECT"}, term.Column{Title: "WORKER"}, term.Column{Title: "AGE", Right: true, Whole: true}, term.Column{Title: "EXPIRES"}),
		row: func(k client.Key) []string {
			return []string{k.ID, k.Name, k.Role, k.Project, string(k.Worker), age(k.CreatedAt, now), k.ExpiresAt.String()}
		},
		empty: "no keys",
		rows: func(yield func(client.Key, error) bool) {
			for _, k := range all {
				if !yield(k, nil) {
					return
				}
			}
		},
	}
	return l.write(a)
}

func (a *app) revokeKeys(ctx context.Context, c *keysConfig, args []string) error {
	if len(args) == 0 {
		return muster.Errorf(muster.Invalid, "no key is named: muster keys list shows their ids")
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	for _, id := range args {
		if err := server.RevokeKey(ctx, id); err != nil {
			return err
		}
		if c.people() {
			a.say("key %s is revoked", id)
		} else {
			fmt.Fprintln(a.out, id)
		}
	}
	return nil
}
