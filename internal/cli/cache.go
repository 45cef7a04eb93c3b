package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

func (a *runner) cacheCommand() *cli.Command {
	return a.NewCommand(app.Command{
		Name: "cache", Usage: "Show and clear results that identical tasks share", Category: app.CategorySubmit,
		Description: "A stage with cache: true, or a lifetime such as cache: 7d, takes the result and the artifacts of an identical task of its project in place of running.",
		Commands:    []*cli.Command{a.cacheListCommand(), a.cacheExplainCommand(), a.cacheClearCommand()},
	})
}

func (a *runner) cacheListCommand() *cli.Command {
	var c struct {
		remote.QueryOptions
		project string
	}
	limit := 100
	return a.NewCommand(app.Command{
		Name: "list", Usage: "List results in the cache of a project, the newest first",
		Flags: c.Flags(app.Option{Name: "project", Usage: "Project (default: default)", Complete: c.CompleteProjects()}.WithEnv().StringVar(&c.project),
			app.Option{Name: "limit", Usage: "Maximum number of results, up to 1000"}.IntVar(&limit, 1, 1000)),
		Run: func(ctx context.Context, _ []string) error {
			server, err := c.Connect()
			if err != nil {
				return err
			}
			list, err := server.Cache(ctx, cmp.Or(c.project, muster.DefaultProject), limit)
			if err != nil {
				return err
			}
			l := app.Listing[client.CacheEntry]{
				OutputOptions: c.OutputOptions, EmptyMessage: "the cache has no results", Rows: app.Seq(list), ID: func(e client.CacheEntry) string { return e.Key },
				Columns: []term.Column{{Title: "KEY", NoTruncate: true}, {Title: "STAGE"}, {Title: "KIND"}, {Title: "ORIGIN", NoTruncate: true}, {Title: "SIZE", AlignRight: true}, {Title: "HITS", AlignRight: true}, {Title: "CREATED", AlignRight: true, NoTruncate: true}, {Title: "EXPIRES", NoTruncate: true}},
				Row: func(e client.CacheEntry, now time.Time) []string {
					return []string{e.Key[:min(12, len(e.Key))], e.Stage, e.Kind, e.Origin.String(), e.Size.String(), strconv.Itoa(e.Hits), app.Age(e.CreatedAt, now), app.FormatTime(e.ExpiresAt)}
				},
			}
			return l.Write(a.App)
		},
	})
}

func (a *runner) cacheExplainCommand() *cli.Command {
	var c remote.QueryOptions
	return a.NewCommand(app.Command{
		Name: "explain", Usage: "Say why tasks did or did not take a result from the cache", Args: "TASK…", Complete: c.CompleteSelectors(), Flags: c.Flags(),
		Description: "For a task that ran it names what differs from the nearest result in the cache, of the newest 1000 of its project. Long values are shown as their SHA-256.",
		Examples:    []app.HelpRow{{Name: "muster cache explain 17.0", Usage: "Why did the first task of job 17 run?"}},
		Run: func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return muster.Errorf(muster.Invalid, "give the ids of tasks, such as 17.0")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			list := make([]client.TaskCache, len(args))
			for i, arg := range args {
				id, err := muster.ParseTaskID(arg)
				if err != nil {
					return err
				}
				if list[i], err = server.ExplainCache(ctx, id); err != nil {
					return err
				}
			}
			return app.PrintItems(a.App, c.OutputOptions, list, func(x client.TaskCache) string { return x.Task.String() }, app.WithBlankLines(a.App, a.drawTaskCache))
		},
	})
}

func (a *runner) drawTaskCache(x client.TaskCache) error {
	if err := a.WriteLine(term.Sanitize(fmt.Sprintf("task %s: %s: %s", x.Task, x.Outcome, x.Summary))); err != nil || len(x.Differences) == 0 || x.Nearest == nil {
		return err
	}
	l := app.Listing[client.CacheDifferent]{
		Rows:    app.Seq(x.Differences),
		Columns: []term.Column{{Title: "DIFFERS", NoTruncate: true}, {Title: "TASK " + x.Task.String()}, {Title: "TASK " + x.Nearest.Origin.String()}},
		Row: func(d client.CacheDifferent, _ time.Time) []string {
			return []string{d.Name, cmp.Or(d.Task, "(none)"), cmp.Or(d.Entry, "(none)")}
		},
	}
	return l.Write(a.App)
}

func (a *runner) cacheClearCommand() *cli.Command {
	var c struct {
		remote.QueryOptions
		project string
	}
	var s client.CacheSelection
	all := false
	return a.NewCommand(app.Command{
		Name: "clear", Usage: "Delete results from the cache of a project", Args: "[KEY]", Complete: c.CompleteCache(&c.project).Once(),
		Description: "The tasks that took or made the results keep them. KEY is the beginning of a key in muster cache list. Results that have all of what is given are deleted.",
		Flags: c.Flags(app.Option{Name: "project", Usage: "Project (default: default)", Complete: c.CompleteProjects()}.WithEnv().StringVar(&c.project),
			app.Option{Name: "job", Value: "number", Usage: "Only results of tasks of this job"}.StringVar(&s.Job),
			app.Option{Name: "stage", Value: "name", Usage: "Only results of stages with this name"}.StringVar(&s.Stage),
			app.Option{Name: "kind", Value: "kind", Usage: "Only results of this kind"}.StringVar(&s.Kind),
			app.Option{Name: "all", Usage: "Delete all results of the project"}.BoolVar(&all)),
		Run: func(ctx context.Context, args []string) error {
			if len(args) == 1 {
				s.Key = args[0]
			}
			if len(args) > 1 || all == (s != client.CacheSelection{}) {
				return muster.Errorf(muster.Invalid, "give either the beginning of one key, --job, --stage or --kind, or --all")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			cleared, err := server.ClearCache(ctx, cmp.Or(c.project, muster.DefaultProject), s)
			if err != nil {
				return err
			}
			return app.PrintItems(a.App, c.OutputOptions, []client.CacheCleared{cleared}, func(c client.CacheCleared) string { return strconv.Itoa(c.Deleted) }, func(c client.CacheCleared) error {
				return a.WriteLine(fmt.Sprintf("deleted %d results", c.Deleted))
			})
		},
	})
}
