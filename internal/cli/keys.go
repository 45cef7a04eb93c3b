package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type keysConfig struct {
	remote.Remote
	frame.Format
}

func (c *keysConfig) flags() []cli.Flag { return slices.Concat(c.Format.Flags(), c.Remote.Flags()) }

type createConfig struct {
	keysConfig
	key client.NewKey
}

func (c *createConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "name", Usage: "what the key is for, as `TEXT` (default: its role)"}.Text(&c.key.Name),
		frame.Option{Name: "role", Usage: "what it may do, a `ROLE`: admin, submitter, viewer, or join (lets workers join)"}.Choice(&c.key.Role, "admin", "submitter", "viewer", "join"),
		frame.Option{Name: "project", Short: "p", Usage: "the only `PROJECT` that it may touch"}.Text(&c.key.Project),
		frame.Option{Name: "ttl", Usage: "how long it is valid, a `DURATION` such as 30d (default: for ever)"}.Duration(&c.key.TTL),
	}, c.keysConfig.flags())
}

func (a *app) keysCommand() *cli.Command {
	c := &createConfig{key: client.NewKey{Role: "submitter"}}
	return a.Command(frame.Command{
		Name: "keys", Usage: "create, list and revoke API keys", Category: frame.Admin,
		Commands: []*cli.Command{
			a.Command(frame.Command{
				Name: "create", Usage: "make a key and print it; it is not shown again", Flags: c.flags(),
				Run: func(ctx context.Context, args []string) error {
					if err := frame.NoArgs(args); err != nil {
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
	return a.Command(frame.Command{
		Name: name, Usage: usage, Args: args, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error { return do(ctx, c, args) },
	})
}

func (a *app) createKey(ctx context.Context, c *createConfig) error {
	c.key.Name = cmp.Or(c.key.Name, c.key.Role)
	server, err := c.Connect()
	if err != nil {
		return err
	}
	made, err := server.CreateKey(ctx, c.key)
	if err != nil {
		return err
	}
	return a.Show(c.Format, made, []string{made.Secret}, func() error {
		a.Say("key %s (%s) is made; its secret is shown this once:", made.Key.ID, made.Key.Role)
		return frame.Write(a.Out, []byte(made.Secret+"\n"))
	})
}

func (a *app) listKeys(ctx context.Context, c *keysConfig, args []string) error {
	if err := frame.NoArgs(args); err != nil {
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
	l := frame.Listing[client.Key]{
		Format: c.Format,
		ID:     func(k client.Key) string { return k.ID },
		Table: term.NewTable(term.Column{Title: "KEY", Whole: true}, term.Column{Title: "NAME"}, term.Column{Title: "ROLE", Whole: true},
			term.Column{Title: "PROJECT"}, term.Column{Title: "WORKER"}, term.Column{Title: "AGE", Right: true, Whole: true}, term.Column{Title: "EXPIRES"}),
		Row: func(k client.Key) []string {
			return []string{k.ID, k.Name, k.Role, k.Project, string(k.Worker), frame.Age(k.CreatedAt, now), k.ExpiresAt.String()}
		},
		Empty: "no keys",
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

func (a *app) revokeKeys(ctx context.Context, c *keysConfig, args []string) error {
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
		if c.People() {
			a.Say("key %s is revoked", id)
		} else {
			fmt.Fprintln(a.Out, id)
		}
	}
	return nil
}
