package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/store"
)

type notifyConfig struct {
	remote.ServerOptions
	app.OutputOptions
	project string
}

func newNotifyConfig() notifyConfig { return notifyConfig{project: muster.DefaultProject} }

func (c *notifyConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "project", Short: "p", Usage: "the notifications of this `PROJECT`"}.WithEnv().StringVar(&c.project),
	}, c.OutputOptions.Flags(), c.ServerOptions.Flags())
}

// defaultDeliveryRows is how many deliveries a table has, if nothing else is asked for.
const defaultDeliveryRows = 50

func (a *runner) notifyCommand() *cli.Command {
	return a.NewCommand(app.Command{
		Name: "notify", Usage: "send HTTP requests (webhooks) when the jobs of a project end or wait long", Category: app.CategoryAdmin,
		Description: "Notifications of a single job are in its spec, in notify. docs/webhooks.md describes the requests and their signatures.",
		Commands: []*cli.Command{
			a.notifyListCommand(), a.notifySetCommand(), a.notifyDeleteCommand(), a.deliveriesCommand(), a.notifyTestCommand(),
		},
	})
}

func (a *runner) notifyListCommand() *cli.Command {
	c := newNotifyConfig()
	show := false
	return a.NewCommand(app.Command{
		Name: "list", Usage: "list the notifications of a project",
		Flags: append([]cli.Flag{app.Option{Name: "show-secret", Usage: "write only the secret that signs them, unless one has its own"}.BoolVar(&show)}, c.flags()...),
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			p, err := server.ProjectNotify(ctx, c.project)
			if err != nil {
				return err
			}
			if show {
				return app.WriteOutput(a.Out, []byte(p.Secret+"\n"))
			}
			return a.showNotify(&c, p)
		},
	})
}

func (a *runner) showNotify(c *notifyConfig, p client.ProjectNotify) error {
	p.Secret = "" // list --show-secret writes it
	l := app.Listing[muster.Notify]{
		OutputOptions: c.OutputOptions,
		ID:            func(n muster.Notify) string { return n.URL },
		Table: term.NewTable(term.Column{Title: "URL"}, term.Column{Title: "ON"}, term.Column{Title: "AFTER", AlignRight: true, NoTruncate: true},
			term.Column{Title: "PRESET", NoTruncate: true}, term.Column{Title: "SIGNED BY", NoTruncate: true}),
		Row: func(n muster.Notify) []string {
			after := ""
			if wait, ok := n.WaitThreshold(); ok {
				after = term.FormatDuration(wait.Std())
			}
			signer := "project"
			if n.Secret != "" {
				signer = "own secret"
			}
			on := n.On
			if len(on) == 0 {
				on = []string{muster.OnEnded}
			}
			return []string{n.URL, strings.Join(on, ", "), after, n.Preset, signer}
		},
		EmptyMessage: fmt.Sprintf("project %s has no notifications", p.Project),
		Rows: func(yield func(muster.Notify, error) bool) {
			for _, n := range p.Notify {
				if !yield(n, nil) {
					return
				}
			}
		},
	}
	return l.Write(a.App)
}

func (a *runner) notifySetCommand() *cli.Command {
	c := newNotifyConfig()
	var n muster.Notify
	var secret app.Secret
	return a.NewCommand(app.Command{
		Name: "set", Usage: "add a notification, or replace the one with the same URL", Args: "URL",
		Flags: slices.Concat([]cli.Flag{
			app.Option{Name: "on", Usage: "notify these `EVENTS`: ended, succeeded, failed, cancelled, waiting_long (default: ended)"}.ListVar(&n.On),
			app.Option{Name: "after", Usage: "how long a job waits until that is notified, a `DURATION` (default: 10m)"}.DurationVar(&n.After),
			app.Option{Name: "preset", Usage: "the form of the body, a `PRESET`: slack, discord or ntfy (default: Muster's own JSON)"}.StringVar(&n.Preset),
		}, app.Option{Name: "webhook-secret", Usage: "sign by this `SECRET` (default: the project's)"}.WithEnv().SecretVars(&secret, "the secret that signs"), c.flags()),
		Run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return muster.Errorf(muster.Invalid, "muster notify set takes one URL")
			}
			var err error
			if n.Secret, err = secret.Read(); err != nil {
				return err
			}
			n.URL = args[0]
			server, err := c.Connect()
			if err != nil {
				return err
			}
			p, err := server.ProjectNotify(ctx, c.project)
			if err != nil {
				return err
			}
			list := append(withoutURL(p.Notify, n.URL), n)
			if p, err = server.SetProjectNotify(ctx, c.project, list); err != nil {
				return err
			}
			return a.showNotify(&c, p)
		},
	})
}

// withoutURL leaves out the notification with a URL.
func withoutURL(list []muster.Notify, url string) []muster.Notify {
	return slices.DeleteFunc(list, func(n muster.Notify) bool { return n.URL == url })
}

func (a *runner) notifyDeleteCommand() *cli.Command {
	c := newNotifyConfig()
	all := false
	return a.NewCommand(app.Command{
		Name: "delete", Usage: "remove notifications", Args: "URL…",
		Flags: append([]cli.Flag{app.Option{Name: "all", Short: "a", Usage: "remove all of the project"}.BoolVar(&all)}, c.flags()...),
		Run: func(ctx context.Context, args []string) error {
			if all == (len(args) > 0) {
				return muster.Errorf(muster.Invalid, "name the URLs to remove, or give --all: muster notify list shows them")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			if all {
				return server.DeleteProjectNotify(ctx, c.project)
			}
			p, err := server.ProjectNotify(ctx, c.project)
			if err != nil {
				return err
			}
			for _, url := range args {
				remaining := withoutURL(slices.Clone(p.Notify), url)
				if len(remaining) == len(p.Notify) {
					return muster.Errorf(muster.NotFound, "project %s has no notification with the URL %s: muster notify list shows them", c.project, url)
				}
				p.Notify = remaining
			}
			_, err = server.SetProjectNotify(ctx, c.project, p.Notify)
			return err
		},
	})
}

func (a *runner) notifyTestCommand() *cli.Command {
	c := newNotifyConfig()
	return a.NewCommand(app.Command{
		Name: "test", Usage: "send a test to all notifications of a project, or to one", Args: "[URL]", Flags: c.flags(),
		Description: "The exit status is 1 if one was not delivered.",
		Run: func(ctx context.Context, args []string) error {
			if len(args) > 1 {
				return muster.Errorf(muster.Invalid, "muster notify test takes one URL, or none for all")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			sent, err := server.TestNotify(ctx, c.project, strings.Join(args, ""))
			if err != nil {
				return err
			}
			err = a.showDeliveries(c.OutputOptions, 0, "project "+c.project+" has no notifications", func(yield func(client.Delivery, error) bool) {
				for _, d := range sent {
					if !yield(d, nil) {
						return
					}
				}
			})
			failed := slices.ContainsFunc(sent, func(d client.Delivery) bool { return d.State != store.DeliveryDelivered })
			if err == nil && failed {
				err = errors.New("not every test was delivered")
			}
			return err
		},
	})
}

type deliveriesConfig struct {
	notifyConfig
	query client.DeliveryQuery
	job   string
	limit int
}

func (a *runner) deliveriesCommand() *cli.Command {
	c := &deliveriesConfig{}
	return a.NewCommand(app.Command{
		Name: "deliveries", Usage: "list the requests that were and are to be sent, newest first",
		Flags: slices.Concat([]cli.Flag{
			app.Option{Name: "job", Usage: "only those of this `JOB`"}.StringVar(&c.job),
			app.Option{Name: "state", Usage: "only those in this `STATE`: pending, delivered or failed"}.EnumVar(&c.query.State, store.DeliveryPending, store.DeliveryDelivered, store.DeliveryFailed),
			app.Option{Name: "limit", Usage: fmt.Sprintf("list at most `N` (default: %d in a table, else all)", defaultDeliveryRows)}.IntVar(&c.limit, 1, math.MaxInt32),
		}, []cli.Flag{
			app.Option{Name: "project", Short: "p", Usage: "only those of this `PROJECT`"}.WithEnv().StringVar(&c.project),
		}, c.OutputOptions.Flags(), c.ServerOptions.Flags()),
		Run: func(ctx context.Context, args []string) error {
			if err := app.NoArgs(args); err != nil {
				return err
			}
			if c.job != "" {
				id, err := muster.ParseJobID(c.job)
				if err != nil {
					return err
				}
				c.query.Job = id
			}
			c.query.Project = c.project
			limit := c.limit
			if limit == 0 && c.Human() {
				limit = defaultDeliveryRows
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			return a.showDeliveries(c.OutputOptions, limit, "nothing was sent", server.Deliveries(ctx, c.query))
		},
	})
}

func (a *runner) showDeliveries(f app.OutputOptions, limit int, empty string, rows func(func(client.Delivery, error) bool)) error {
	now := time.Now()
	l := app.Listing[client.Delivery]{
		OutputOptions: f, Limit: limit, EmptyMessage: empty, Rows: rows, TruncatedMessage: "there are more deliveries: --limit lists more",
		ID: func(d client.Delivery) string { return d.ID },
		Table: term.NewTable(term.Column{Title: "AGE", AlignRight: true, NoTruncate: true}, term.Column{Title: "PROJECT"}, term.Column{Title: "JOB", AlignRight: true, NoTruncate: true},
			term.Column{Title: "EVENT", NoTruncate: true}, term.Column{Title: "TO"}, term.Column{Title: "STATE", NoTruncate: true, Style: deliveryStyle},
			term.Column{Title: "TRIES", AlignRight: true, NoTruncate: true}, term.Column{Title: "HTTP", NoTruncate: true}, term.Column{Title: "TOOK", AlignRight: true, NoTruncate: true}, term.Column{Title: "NOTE"}),
		Row: func(d client.Delivery) []string {
			job, status, elapsed, note := "", "", "", d.Error
			if d.Job != 0 {
				job = d.Job.String()
			}
			if d.Status != 0 {
				status = strconv.Itoa(d.Status)
			}
			if d.Took != 0 {
				elapsed = term.FormatDuration(d.Took.Std())
			}
			if d.NextAt != 0 && d.Attempts > 0 {
				note = fmt.Sprintf("again in %s: %s", term.FormatDuration(d.NextAt.Std().Sub(now)), note)
			}
			return []string{app.Age(d.CreatedAt, now), d.Project, job, d.Event, cmp.Or(d.Preset, d.Host), d.State,
				strconv.Itoa(d.Attempts), status, elapsed, note}
		},
	}
	return l.Write(a.App)
}

func deliveryStyle(state string) term.Style {
	switch state {
	case store.DeliveryDelivered:
		return term.Green
	case store.DeliveryFailed:
		return term.Red
	default:
		return term.Yellow
	}
}
