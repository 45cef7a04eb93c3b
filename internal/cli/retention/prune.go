package retention

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/retention"
)

type pruneConfig struct {
	remote.QueryOptions
	req client.PruneRequest
	yes bool
}

// limitFlags returns the options for the limits of a policy.
func limitFlags(p *client.RetentionPolicy) []cli.Flag {
	flag := func(name, usage string, dst *string) cli.Flag {
		return app.Var(app.Option{Name: name, Value: "limit", Usage: usage}, dst, parseLimit, func(s string) string { return s })
	}
	return []cli.Flag{
		flag("keep-jobs", "How long to keep ended jobs: an age (30d), a number (1000), a size (50GiB), several with commas, or forever", &p.Jobs),
		flag("keep-logs", "How long to keep logs of ended jobs", &p.Logs),
		flag("keep-artifacts", "How long to keep artifacts and checkpoints of ended jobs", &p.Artifacts),
		flag("keep-late-reports", "How long to keep reports of attempts that had been given up", &p.LateReports),
	}
}

// parseLimit checks a limit, so that an error names the option.
func parseLimit(s string) (string, error) {
	l, err := retention.ParseLimit(s)
	return l.String(), err
}

func pruneCommand(a *app.App) *cli.Command {
	c := &pruneConfig{}
	return a.NewCommand(app.Command{
		Name: "prune", Usage: "Delete what exceeds the retention policies now", Category: app.CategoryAdmin,
		Description: "The server deletes in the background, a part at a time. It also applies the policies by itself every hour; muster retention list shows them.",
		Flags: c.Flags(append([]cli.Flag{
			app.Option{Name: "dry-run", Usage: "Only show what would be deleted"}.BoolVar(&c.req.DryRun),
			app.Option{Name: "project", Short: "p", Usage: "Only data of this project", Complete: c.CompleteProjects()}.StringVar(&c.req.Project),
			app.Option{Name: "yes", Short: "y", Usage: "Do not ask"}.BoolVar(&c.yes),
		}, limitFlags(&c.req.Keep)...)...),
		Examples: []app.HelpRow{
			{Name: "muster prune --dry-run", Usage: "Show what would be deleted"},
			{Name: "muster prune --keep-jobs 7d", Usage: "Delete jobs that ended more than a week ago"},
		},
		Run: func(ctx context.Context, _ []string) error { return prune(ctx, a, c) },
	})
}

func prune(ctx context.Context, a *app.App, c *pruneConfig) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	server, err := c.Connect()
	if err != nil {
		return err
	}
	dryRun := c.req.DryRun
	if !dryRun && !c.yes && a.Err.Interactive {
		c.req.DryRun = true
		plan, err := server.Prune(ctx, c.req)
		if err != nil {
			return err
		}
		answer, err := term.Prompt(ctx, a.Err, summary(&plan)+" [y/N] ")
		if err != nil {
			return err
		}
		if answer != "y" && answer != "yes" {
			a.Messagef("nothing was deleted")
			return nil
		}
		c.req.DryRun = false
	}
	pruned, err := server.Prune(ctx, c.req)
	if err != nil {
		return err
	}
	ids := make([]string, len(pruned.Examples))
	for i, id := range pruned.Examples {
		ids[i] = id.String()
	}
	err = a.Print(c.OutputOptions, pruned, ids, func() error { return drawCounts(a, &pruned) })
	if err == nil && !dryRun && c.Human() {
		a.Messagef("the server deletes them in the background")
	}
	return err
}

// summary is the question of a prune.
func summary(p *client.Pruned) string {
	parts := []string{
		fmt.Sprintf("%s (%s)", term.Plural(p.Jobs.Number, "job"), term.Plural(p.Jobs.Tasks, "task")),
		fmt.Sprintf("logs of %s (%s)", term.Plural(p.Logs.Number, "job"), p.Logs.Bytes),
		fmt.Sprintf("artifacts of %s (%s)", term.Plural(p.Artifacts.Number, "job"), p.Artifacts.Bytes),
	}
	for _, more := range []struct {
		n    int64
		noun string
	}{{p.Uploads.Number, "unused file"}, {p.LateReports.Number, "late report"}, {p.Workers.Number, "worker"}} {
		if more.n > 0 {
			parts = append(parts, term.Plural(more.n, more.noun))
		}
	}
	last := len(parts) - 1
	return "Delete " + strings.Join(parts[:last], ", ") + " and " + parts[last] + "?"
}

func drawCounts(a *app.App, p *client.Pruned) error {
	table := term.NewTable(term.Column{Title: "KIND", NoTruncate: true}, term.Column{Title: "NUMBER", AlignRight: true, NoTruncate: true},
		term.Column{Title: "TASKS", AlignRight: true, NoTruncate: true}, term.Column{Title: "SIZE", AlignRight: true, NoTruncate: true}, term.Column{Title: "OLDEST", NoTruncate: true})
	now := time.Now()
	for _, kind := range []struct {
		name  string
		count client.PruneCount
	}{{"jobs", p.Jobs}, {"logs", p.Logs}, {"artifacts", p.Artifacts}, {"uploads", p.Uploads}, {"late reports", p.LateReports}, {"workers", p.Workers}} {
		tasks, size := "", ""
		if kind.count.Tasks > 0 {
			tasks = strconv.FormatInt(kind.count.Tasks, 10)
		}
		if kind.count.Bytes > 0 {
			size = kind.count.Bytes.String()
		}
		table.AddRow(kind.name, strconv.FormatInt(kind.count.Number, 10), tasks, size, app.Age(kind.count.OldestAt, now))
	}
	return table.Draw(a.Out)
}

func policyCommand(a *app.App) *cli.Command {
	return a.NewCommand(app.Command{
		Name: "retention", Usage: "Show or change how long data is kept", Category: app.CategoryAdmin,
		Description: "The server's policies are options of muster server. docs/retention.md describes what is deleted, and when.",
		Commands:    []*cli.Command{listCommand(a), setCommand(a), deleteCommand(a)},
	})
}

func listCommand(a *app.App) *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "list", Usage: "List the policies of the server and its projects", Flags: c.Flags(),
		Run: func(ctx context.Context, _ []string) error {
			server, err := c.Connect()
			if err != nil {
				return err
			}
			r, err := server.Retention(ctx)
			if err != nil {
				return err
			}
			ids := make([]string, len(r.Projects))
			for i := range r.Projects {
				ids[i] = r.Projects[i].Project
			}
			return a.Print(c.OutputOptions, r, ids, func() error { return drawPolicies(a, &r) })
		},
	})
}

func drawPolicies(a *app.App, r *client.Retention) error {
	table := term.NewTable(term.Column{Title: "PROJECT", NoTruncate: true}, term.Column{Title: "JOBS", NoTruncate: true}, term.Column{Title: "LOGS", NoTruncate: true},
		term.Column{Title: "ARTIFACTS", NoTruncate: true}, term.Column{Title: "LATE REPORTS", NoTruncate: true})
	table.AddRow("(default)", r.Defaults.Jobs, r.Defaults.Logs, r.Defaults.Artifacts, r.Defaults.LateReports)
	for _, p := range r.Projects {
		table.AddRow(p.Project, cmp.Or(p.Jobs, r.Defaults.Jobs), cmp.Or(p.Logs, r.Defaults.Logs), cmp.Or(p.Artifacts, r.Defaults.Artifacts), cmp.Or(p.LateReports, r.Defaults.LateReports))
	}
	if err := table.Draw(a.Out); err != nil {
		return err
	}
	a.Messagef("unused uploads are kept for %s, departed workers for %s", r.Uploads, r.Workers)
	if r.StartsAt != 0 {
		a.Messagef("the built-in defaults apply from %s on", app.FormatFuture(r.StartsAt))
	}
	if r.DelayedUntil != 0 {
		a.Messagef("deleting by age waits until %s, because the server was off for more than a week", app.FormatFuture(r.DelayedUntil))
	}
	if r.WaitingJobs > 0 {
		a.Messagef("the files of %s are being deleted", term.Plural(r.WaitingJobs, "removed job"))
	}
	return nil
}

func projectFlag(project *string, server *remote.ServerOptions) cli.Flag {
	return app.Option{Name: "project", Short: "p", Usage: "Project of the policy", Complete: server.CompleteProjects()}.WithEnv().StringVar(project)
}

func setCommand(a *app.App) *cli.Command {
	c := &remote.QueryOptions{}
	project := muster.DefaultProject
	var policy client.RetentionPolicy
	return a.NewCommand(app.Command{
		Name: "set", Usage: "Replace the policy of a project", Flags: c.Flags(append([]cli.Flag{projectFlag(&project, &c.ServerOptions)}, limitFlags(&policy)...)...),
		Description: "Limits that are not given are those of the server. For example, -p vision --keep-jobs 90d --keep-logs 7d,50GiB keeps jobs for 90 days, and logs for a week and up to 50 GiB.",
		Run: func(ctx context.Context, _ []string) error {
			server, err := c.Connect()
			if err != nil {
				return err
			}
			p, err := server.SetRetention(ctx, project, policy)
			if err != nil {
				return err
			}
			return a.Print(c.OutputOptions, p, []string{project}, func() error {
				a.Messagef("the policy of project %s is set: muster prune --dry-run -p %s shows what it deletes", project, project)
				return nil
			})
		},
	})
}

func deleteCommand(a *app.App) *cli.Command {
	c := &remote.ServerOptions{}
	project := muster.DefaultProject
	return a.NewCommand(app.Command{
		Name: "delete", Usage: "Apply the policies of the server to a project again", Flags: append([]cli.Flag{projectFlag(&project, c)}, c.Flags()...),
		Run: func(ctx context.Context, _ []string) error {
			server, err := c.Connect()
			if err != nil {
				return err
			}
			return server.DeleteRetention(ctx, project)
		},
	})
}
