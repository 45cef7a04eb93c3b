package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
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
					app.Option{Name: "ttl", Usage: "Lifetime, such as 30d (default: unlimited)"}.DurationVar(&c.key.TTL),
					app.Option{Name: "addresses", Usage: "Networks from which the key, and those of workers that join by it, may be used, such as 10.0.0.0/8 (default: all)"}.ListVar(&c.key.Addresses),
					app.Option{Name: "uses", Usage: "With --role join: how many workers may join (default: unlimited)", Group: joinGroup}.IntVar(&c.key.Uses, 1, maxUses),
					app.Option{Name: "tags", Usage: "With --role join: give workers these tags, which no other worker can give itself", Group: joinGroup}.ListVar(&c.key.Tags),
					app.Option{Name: "approve", Usage: "With --role join: workers get no tasks until muster workers approve", Group: joinGroup}.BoolVar(&c.key.Approval)),
				Run: func(ctx context.Context, _ []string) error { return a.createKey(ctx, c) },
			}),
			a.keysSubcommand("list", "List keys, without their secrets", "", a.listKeys),
			a.rotateKeyCommand(),
			a.revokeKeysCommand(),
		},
	})
}

const (
	joinGroup = "Join tokens"
	maxUses   = 1_000_000
)

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
		Columns: []term.Column{{Title: "KEY", NoTruncate: true}, {Title: "PREFIX", NoTruncate: true}, {Title: "NAME"}, {Title: "ROLE", NoTruncate: true}, {Title: "PROJECT"}, {Title: "WORKER"}, {Title: "JOINED BY", NoTruncate: true}, {Title: "USES LEFT", AlignRight: true, NoTruncate: true}, {Title: "BOUND TO"}, {Title: "AGE", AlignRight: true, NoTruncate: true}, {Title: "LAST USED", AlignRight: true, NoTruncate: true}, {Title: "FROM"}, {Title: "EXPIRES", Style: func(cell string) term.Style {
			if strings.HasPrefix(cell, expired) {
				return term.Red
			}
			return term.Plain
		}}},
		Row: func(k client.Key, now time.Time) []string {
			prefix, name, used := "-", k.Name, "-"
			switch {
			case k.Prefix != "":
				prefix = k.Prefix + "…"
			case k.Role == string(auth.Worker):
				prefix = "public key" // it has no secret
			}
			if k.RotatedTo != "" {
				name = "old secret of " + k.RotatedTo
			}
			if k.LastUsedAt != 0 {
				used = app.Age(k.LastUsedAt, now)
			}
			return []string{k.ID, prefix, name, k.Role, k.Project, string(k.Worker), k.JoinedBy, usesLeft(&k), boundTo(&k), app.Age(k.CreatedAt, now), used, k.LastUsedFrom, formatExpiry(k.ExpiresAt, now)}
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

// usesLeft returns how many workers may still join by a key, "" for any number.
func usesLeft(k *client.Key) string {
	if k.Uses == nil {
		return ""
	}
	return strconv.Itoa(*k.Uses)
}

// boundTo describes what a key is bound to.
func boundTo(k *client.Key) string {
	var parts []string
	if len(k.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(k.Tags, " "))
	}
	if len(k.Addresses) > 0 {
		parts = append(parts, "addresses "+app.JoinComma(k.Addresses))
	}
	switch {
	case k.Approval && k.Worker != "":
		parts = append(parts, "waits for approval")
	case k.Approval:
		parts = append(parts, "approval")
	}
	return strings.Join(parts, "; ")
}

func (a *runner) revokeKeysCommand() *cli.Command {
	c := &remote.QueryOptions{}
	var workers bool
	return a.NewCommand(app.Command{
		Name: "revoke", Usage: "Revoke keys", Args: "KEY-ID…", Complete: c.CompleteKeys(),
		Flags:       c.Flags(app.Option{Name: "workers", Usage: "Also revoke the keys of the workers that joined by these keys, which may be revoked already"}.BoolVar(&workers)),
		Description: "Workers keep their own keys when the key by which they joined is revoked: the command names them. With --workers their sessions end, and their tasks are requeued when their leases expire.",
		Run:         func(ctx context.Context, args []string) error { return a.revokeKeys(ctx, c, args, workers) },
	})
}

func (a *runner) revokeKeys(ctx context.Context, c *remote.QueryOptions, args []string, workers bool) error {
	if len(args) == 0 {
		return muster.Errorf(muster.Invalid, "missing key id: muster keys list shows them")
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	revoke := server.RevokeKey
	if workers {
		revoke = server.RevokeJoinToken
	}
	keys, listErr := server.Keys(ctx) // for the names only
	for _, id := range args {
		if err := revoke(ctx, id); err != nil {
			return err
		}
		if c.Human() {
			a.Messagef("key %s revoked%s", id, joinedWorkers(id, keys, workers))
		} else {
			fmt.Fprintln(a.Out, id)
		}
	}
	return listErr
}

// joinedWorkers describes the workers that joined by a revoked key.
func joinedWorkers(id string, keys []client.Key, revoked bool) string {
	var names []string
	for i := range keys {
		if k := &keys[i]; k.Worker != "" && k.JoinedBy == id {
			names = append(names, fmt.Sprintf("%s (%s)", term.Sanitize(k.Name), k.Worker))
		}
	}
	switch list := strings.Join(names, ", "); {
	case list == "":
		return ""
	case revoked:
		return "; these workers can no longer connect: " + list
	default:
		return fmt.Sprintf("; these workers joined by it and can still connect: %s (muster keys revoke --workers %s ends that)", list, id)
	}
}
