package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type createKeyConfig struct {
	remote.QueryOptions
	key client.NewKey
}

func (a *runner) keysCommand() *cli.Command {
	c := &createKeyConfig{key: client.NewKey{Role: "submitter"}}
	c.QuietUsage = quietUsage
	return a.NewCommand(app.Command{
		Name: "keys", Usage: "Manage API keys", Category: app.CategoryAdmin,
		Commands: []*cli.Command{
			a.NewCommand(app.Command{
				Name: "create", Usage: "Create a key and print it once",
				Flags: c.Flags(
					app.Option{Name: "name", Usage: "Name of the key (default: its role)"}.StringVar(&c.key.Name),
					app.Option{Name: "role", Usage: "Permissions: admin, operator, submitter, viewer, or join (for workers)"}.EnumVar(&c.key.Role, "admin", "operator", "submitter", "viewer", "join"),
					app.Option{Name: "project", Short: "p", Usage: "Restrict the key to this project (default: that of the key in use, if any)", Complete: c.CompleteProjects()}.StringVar(&c.key.Project),
					app.Option{Name: "ttl", Usage: "Lifetime, such as 30d (default: unlimited)"}.DurationVar(&c.key.TTL)),
				Run: func(ctx context.Context, _ []string) error { return a.createKey(ctx, c) },
			}),
			a.keysSubcommand("list", "List keys, without their secrets", "", a.listKeys),
			a.rotateKeyCommand(),
			a.keysSubcommand("revoke", "Revoke keys", "KEY-ID…", a.revokeKeys),
		},
	})
}

// quietUsage describes --quiet of commands that create a secret.
const quietUsage = "Print only the secret"

func (a *runner) keysSubcommand(name, usage, args string, fn func(context.Context, *remote.QueryOptions, []string) error) *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: name, Usage: usage, Args: args, Complete: c.CompleteKeys(), Flags: c.Flags(),
		Run: func(ctx context.Context, args []string) error { return fn(ctx, c, args) },
	})
}

type rotateKeyConfig struct {
	remote.QueryOptions
	how client.RotateKey
}

func (a *runner) rotateKeyCommand() *cli.Command {
	c := &rotateKeyConfig{}
	c.QuietUsage = quietUsage
	return a.NewCommand(app.Command{
		Name: "rotate", Usage: "Give a key a new secret and print it once", Args: "KEY-ID", Complete: c.CompleteKeys(),
		Flags: c.Flags(
			app.Option{Name: "overlap", Usage: "How long the old secret still works, such as 24h; at most 30d (default: it ends at once)"}.DurationVar(&c.how.Overlap),
			app.Option{Name: "ttl", Usage: "New lifetime of the key, such as 30d (default: its expiry stays)"}.DurationVar(&c.how.TTL)),
		Run: func(ctx context.Context, args []string) error { return a.rotateKey(ctx, c, args) },
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
		a.Messagef("key %s (%s) created; its secret is shown only once:", created.Key.ID, created.Key.Role)
		return a.WriteLine(created.Secret)
	})
}

func (a *runner) listKeys(ctx context.Context, c *remote.QueryOptions, _ []string) error {
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
	l := app.Listing[client.Key]{
		OutputOptions: c.OutputOptions,
		ID:            func(k client.Key) string { return k.ID },
		Columns: []term.Column{{Title: "KEY", NoTruncate: true}, {Title: "PREFIX", NoTruncate: true}, {Title: "NAME"}, {Title: "ROLE", NoTruncate: true}, {Title: "PROJECT"}, {Title: "WORKER"}, {Title: "AGE", AlignRight: true, NoTruncate: true}, {Title: "LAST USED", AlignRight: true, NoTruncate: true}, {Title: "FROM"}, {Title: "EXPIRES", Style: func(cell string) term.Style {
			if strings.HasPrefix(cell, expired) {
				return term.Red
			}
			return term.Plain
		}}},
		Row: func(k client.Key, now time.Time) []string {
			prefix, name, used := "-", k.Name, "-"
			if k.Prefix != "" {
				prefix = k.Prefix + "…"
			}
			if k.RotatedTo != "" {
				name = "old secret of " + k.RotatedTo
			}
			if k.LastUsedAt != 0 {
				used = app.Age(k.LastUsedAt, now)
			}
			return []string{k.ID, prefix, name, k.Role, k.Project, string(k.Worker), app.Age(k.CreatedAt, now), used, k.LastUsedFrom, formatExpiry(k.ExpiresAt, now)}
		},
		EmptyMessage: "no keys",
		Rows:         app.Seq(all),
	}
	return l.Write(a.App)
}

func (a *runner) rotateKey(ctx context.Context, c *rotateKeyConfig, args []string) error {
	if len(args) != 1 {
		return muster.Errorf(muster.Invalid, "muster keys rotate takes one key id: muster keys list shows them")
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	rotated, err := server.RotateKey(ctx, args[0], c.how)
	if err != nil {
		return err
	}
	return a.Print(c.OutputOptions, rotated, []string{rotated.Secret}, func() error {
		old := "ended"
		if c.how.Overlap > 0 {
			old = "ends in " + term.FormatDuration(c.how.Overlap.Std())
		}
		a.Messagef("key %s (%s) has a new secret, which is shown only once; the old one %s:", rotated.Key.ID, rotated.Key.Role, old)
		return a.WriteLine(rotated.Secret)
	})
}

// expired begins the expiry of a key that is no longer valid.
const expired = "expired "

// formatExpiry returns when a key expires or has expired, "" for never.
func formatExpiry(t muster.Time, now time.Time) string {
	if t != 0 && !now.Before(t.Std()) {
		return expired + app.Age(t, now)
	}
	return t.String()
}

func (a *runner) revokeKeys(ctx context.Context, c *remote.QueryOptions, args []string) error {
	if len(args) == 0 {
		return muster.Errorf(muster.Invalid, "missing key id: muster keys list shows them")
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
			a.Messagef("key %s revoked", id)
		} else {
			fmt.Fprintln(a.Out, id)
		}
	}
	return nil
}
