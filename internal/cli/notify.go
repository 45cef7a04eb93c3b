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
	remote.QueryOptions
	project string
}

func newNotifyConfig() notifyConfig { return notifyConfig{project: muster.DefaultProject} }

func (c *notifyConfig) flags(more ...cli.Flag) []cli.Flag {
	return c.Flags(append(more, app.Option{Name: "project", Short: "p", Usage: "Project of the notifications", Complete: c.CompleteProjects()}.WithEnv().StringVar(&c.project))...)
}

// completeURLs completes the notifications of the project.
func (c *notifyConfig) completeURLs() app.Completer {
	return c.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		p, err := server.ProjectNotify(ctx, c.project)
		var urls []string
		for _, n := range p.Notify {
			urls = append(urls, n.URL)
		}
		all, _ := app.Values(urls...)(ctx, "", nil)
		return all, err
	})
}

// connect returns a client of the server and the notifications of the project.
func (c *notifyConfig) connect(ctx context.Context) (*client.Client, client.ProjectNotify, error) {
	server, err := c.Connect()
	if err != nil {
		return nil, client.ProjectNotify{}, err
	}
	p, err := server.ProjectNotify(ctx, c.project)
	return server, p, err
}

// defaultDeliveryRows is the default limit of a table of deliveries.
const defaultDeliveryRows = 50

func (a *runner) notifyCommand() *cli.Command {
	return a.NewCommand(app.Command{
		Name: "notify", Usage: "Manage notifications (webhooks) of a project", Category: app.CategoryAdmin,
		Description: "Notifications are HTTP requests, sent when a job ends or waits for long. Those of a single job are in the field notify of its spec. " +
			"docs/webhooks.md describes the requests and their signatures.",
		Commands: []*cli.Command{
			a.notifyListCommand(), a.notifySetCommand(), a.notifyDeleteCommand(), a.deliveriesCommand(), a.notifyTestCommand(),
		},
	})
}

func (a *runner) notifyListCommand() *cli.Command {
	c := newNotifyConfig()
	show := false
	return a.NewCommand(app.Command{
		Name: "list", Usage: "List the notifications of a project",
		Flags: c.flags(app.Option{Name: "show-secret", Usage: "Print only the project's signing secret"}.BoolVar(&show)),
		Run: func(ctx context.Context, _ []string) error {
			_, p, err := c.connect(ctx)
			if err != nil {
				return err
			}
			if show {
				return a.WriteLine(p.Secret)
			}
			return a.showNotify(&c, p)
		},
	})
}

func (a *runner) showNotify(c *notifyConfig, p client.ProjectNotify) error {
	p.Secret = "" // list --show-secret prints it
	l := app.Listing[muster.Notify]{
		OutputOptions: c.OutputOptions,
		ID:            func(n muster.Notify) string { return n.URL },
		Columns:       []term.Column{{Title: "URL"}, {Title: "ON"}, {Title: "AFTER", AlignRight: true, NoTruncate: true}, {Title: "PRESET", NoTruncate: true}, {Title: "SIGNED BY", NoTruncate: true}},
		Row: func(n muster.Notify, _ time.Time) []string {
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
		Rows:         app.Seq(p.Notify),
	}
	return l.Write(a.App)
}

func (a *runner) notifySetCommand() *cli.Command {
	c := newNotifyConfig()
	var n muster.Notify
	var secret app.Secret
	return a.NewCommand(app.Command{
		Name: "set", Usage: "Add a notification, or replace the one with the same URL", Args: "URL", Complete: c.completeURLs().Once(),
		Flags: c.flags(append(app.Option{Name: "webhook-secret", Usage: "Signing secret (default: the project's)"}.WithEnv().SecretVars(&secret, "signing secret"),
			app.Option{Name: "on", Usage: "Events: ended, succeeded, failed, cancelled, waiting_long (default: ended)", Complete: app.Values(muster.NotifyOn...).List()}.ListVar(&n.On),
			app.Option{Name: "after", Usage: "Time after which a job waits for long (default: 10m)"}.DurationVar(&n.After),
			app.Option{Name: "preset", Usage: "Format of the body: slack, discord or ntfy (default: Muster's JSON)", Complete: app.Values(muster.NotifyPresets...)}.StringVar(&n.Preset))...),
		Run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return muster.Errorf(muster.Invalid, "muster notify set takes one URL")
			}
			var err error
			if n.Secret, err = secret.Read(); err != nil {
				return err
			}
			n.URL = args[0]
			server, p, err := c.connect(ctx)
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

// withoutURL deletes the notification with the URL.
func withoutURL(list []muster.Notify, url string) []muster.Notify {
	return slices.DeleteFunc(list, func(n muster.Notify) bool { return n.URL == url })
}

func (a *runner) notifyDeleteCommand() *cli.Command {
	c := newNotifyConfig()
	all := false
	return a.NewCommand(app.Command{
		Name: "delete", Usage: "Delete notifications", Args: "URL…", Complete: c.completeURLs(),
		Flags: c.flags(app.Option{Name: "all", Short: "a", Usage: "Delete all notifications of the project"}.BoolVar(&all)),
		Run: func(ctx context.Context, args []string) error {
			if all == (len(args) > 0) {
				return muster.Errorf(muster.Invalid, "requires the URLs to delete, or --all: muster notify list shows them")
			}
			server, p, err := c.connect(ctx)
			if err != nil {
				return err
			}
			if all {
				return server.DeleteProjectNotify(ctx, c.project)
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
		Name: "test", Usage: "Send a test to the notifications of a project", Args: "[URL]", Complete: c.completeURLs().Once(), Flags: c.flags(),
		Description: "Sends to all notifications, or to the one with the URL. The exit status is 1 if one was not delivered.",
		Run: func(ctx context.Context, args []string) error {
			if len(args) > 1 {
				return muster.Errorf(muster.Invalid, "muster notify test takes at most one URL")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			sent, err := server.TestNotify(ctx, c.project, strings.Join(args, ""))
			if err != nil {
				return err
			}
			err = a.showDeliveries(c.OutputOptions, 0, "project "+c.project+" has no notifications", app.Seq(sent))
			failed := slices.ContainsFunc(sent, func(d client.Delivery) bool { return d.State != store.DeliveryDelivered })
			if err == nil && failed {
				err = errors.New("some tests were not delivered")
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
		Name: "deliveries", Usage: "List sent and pending requests, newest first",
		Flags: c.flags(
			app.Option{Name: "job", Usage: "Only those of this job", Complete: c.CompleteJobs()}.StringVar(&c.job),
			app.Option{Name: "state", Usage: "Only those in this state: pending, delivered or failed"}.EnumVar(&c.query.State, store.DeliveryPending, store.DeliveryDelivered, store.DeliveryFailed),
			app.Option{Name: "limit", Usage: fmt.Sprintf("Maximum number of rows (default: %d in a table, else unlimited)", defaultDeliveryRows)}.IntVar(&c.limit, 1, math.MaxInt32)),
		Run: func(ctx context.Context, _ []string) error {
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
			return a.showDeliveries(c.OutputOptions, limit, "no deliveries", server.Deliveries(ctx, c.query))
		},
	})
}

func (a *runner) showDeliveries(f app.OutputOptions, limit int, empty string, rows func(func(client.Delivery, error) bool)) error {
	l := app.Listing[client.Delivery]{
		OutputOptions: f, Limit: limit, DefaultLimit: limit == defaultDeliveryRows, EmptyMessage: empty, Rows: rows, TruncatedMessage: "more deliveries are not shown: use --limit",
		ID: func(d client.Delivery) string { return d.ID },
		Columns: []term.Column{
			{Title: "AGE", AlignRight: true, NoTruncate: true}, {Title: "PROJECT"}, {Title: "JOB", AlignRight: true, NoTruncate: true}, {Title: "EVENT", NoTruncate: true}, {Title: "TO"},
			{Title: "STATE", NoTruncate: true, Style: deliveryStyle}, {Title: "TRIES", AlignRight: true, NoTruncate: true}, {Title: "HTTP", NoTruncate: true}, {Title: "TOOK", AlignRight: true, NoTruncate: true}, {Title: "NOTE"},
		},
		Row: func(d client.Delivery, now time.Time) []string {
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
				note = fmt.Sprintf("retry in %s: %s", term.FormatDuration(d.NextAt.Std().Sub(now)), note)
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
