// Package audit has the commands that read and verify the server's audit log.
package audit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// Command returns the command audit.
func Command(a *app.App) *cli.Command {
	return a.NewCommand(app.Command{
		Name: "audit", Usage: "Show and verify who did what", Category: app.CategoryAdmin,
		Description: "The audit log has a record of each change and of each denied request. Its records are chained by hashes, so that verify finds records that were changed, removed or inserted.",
		Commands:    []*cli.Command{listCommand(a), followCommand(a), verifyCommand(a), exportCommand(a)},
	})
}

type listConfig struct {
	remote.QueryOptions
	query client.AuditQuery
	limit int
}

// defaultRows is the number of rows of a table.
const defaultRows = 50

func (c *listConfig) filters(more ...cli.Flag) []cli.Flag {
	return c.Flags(append([]cli.Flag{
		app.Option{Name: "since", Usage: "Only records since then: a time ago (10m, 3d), 15:04, 2026-11-27, or RFC 3339"}.SinceVar(&c.query.Since),
		app.Option{Name: "key", Usage: "Only records of the API key with this id or name", Complete: c.CompleteKeys().List()}.StringVar(&c.query.Key),
		app.Option{Name: "operation", Usage: "Only records of this operation, such as cancel-job"}.StringVar(&c.query.Operation),
		app.Option{Name: "object", Usage: "Only records of this object, such as job/17, worker/gpu1 or key/k1234567"}.StringVar(&c.query.Object),
		app.Option{Name: "project", Short: "p", Usage: "Only records of this project", Complete: c.CompleteProjects()}.StringVar(&c.query.Project),
		app.Option{Name: "outcome", Usage: "Only records with this outcome: allowed, denied or failed"}.EnumVar(&c.query.Outcome, string(audit.Allowed), string(audit.Denied), string(audit.Failed)),
	}, more...)...)
}

func listCommand(a *app.App) *cli.Command {
	c := &listConfig{}
	c.QuietUsage = "Print only the numbers of the records"
	return a.NewCommand(app.Command{
		Name: "list", Usage: "List records, newest first",
		Examples: []app.HelpRow{
			{Name: "muster audit list --outcome denied --since 1d", Usage: "Show what was denied since yesterday"},
			{Name: "muster audit list --object job/17", Usage: "Show who did what to a job"},
		},
		Flags: c.filters(
			app.Option{Name: "until", Usage: "Only records until then"}.SinceVar(&c.query.Until),
			app.Option{Name: "limit", Usage: fmt.Sprintf("Maximum number of rows (default: %d in a table, else unlimited)", defaultRows)}.IntVar(&c.limit, 1, math.MaxInt32)),
		Run: func(ctx context.Context, _ []string) error {
			limit := c.limit
			if limit == 0 && c.Human() {
				limit = defaultRows
			}
			if c.query.Page = limit; limit > 0 {
				c.query.Page++ // to know whether there are more
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			l := app.Listing[client.AuditRecord]{
				OutputOptions: c.OutputOptions, Limit: limit, DefaultLimit: c.limit == 0, Rows: server.Audit(ctx, c.query), ID: number,
				Columns: []term.Column{
					{Title: "SEQ", AlignRight: true, NoTruncate: true}, {Title: "TIME", NoTruncate: true}, {Title: "KEY"}, {Title: "ROLE", NoTruncate: true}, {Title: "ADDRESS", NoTruncate: true}, {Title: "VIA", NoTruncate: true},
					{Title: "OPERATION", NoTruncate: true}, {Title: "OBJECT"}, {Title: "PROJECT"}, {Title: "OUTCOME", NoTruncate: true, Style: outcomeStyle}, {Title: "COUNT", AlignRight: true, NoTruncate: true}, {Title: "DETAIL"},
				},
				Row:          row,
				EmptyMessage: "no records", TruncatedMessage: "older records are not shown: use --limit or --since",
			}
			return l.Write(a)
		},
	})
}

func number(r client.AuditRecord) string { return strconv.FormatInt(r.Seq, 10) }

func row(r client.AuditRecord, _ time.Time) []string {
	count := ""
	if r.Count > 1 {
		count = strconv.FormatInt(r.Count, 10)
	}
	return []string{
		number(r), localTime(&r), cmp.Or(r.KeyName, r.Key), r.Role, r.Address, r.Via, r.Operation, r.Object, r.Project, string(r.Outcome), count, r.Detail,
	}
}

func localTime(r *client.AuditRecord) string { return r.At.Std().Local().Format(time.DateTime) }

func outcomeStyle(cell string) term.Style {
	if cell != string(audit.Allowed) {
		return term.Red
	}
	return term.Plain
}

// followInterval is the time between two requests for new records.
const followInterval = time.Second

func followCommand(a *app.App) *cli.Command {
	c := &listConfig{}
	c.QuietUsage = "Print only the numbers of the records"
	return a.NewCommand(app.Command{
		Name: "follow", Usage: "Show new records as they are written, until Ctrl-C",
		Examples: []app.HelpRow{{Name: "muster audit follow --outcome denied -o json", Usage: "Write denials, one JSON object per line"}},
		Flags:    c.filters(),
		Run: func(ctx context.Context, _ []string) error {
			ctx, stop := app.SignalContext(ctx)
			defer stop()
			err := follow(ctx, a, c)
			if ctx.Err() != nil {
				return nil
			}
			return err
		},
	})
}

// follow prints the records since a time, or those from now on.
func follow(ctx context.Context, a *app.App, c *listConfig) error {
	server, err := c.Connect()
	if err != nil {
		return err
	}
	if c.query.Since == 0 {
		for r, err := range server.Audit(ctx, client.AuditQuery{Page: 1}) {
			if err != nil {
				return err
			}
			c.query.After = r.Seq
			break
		}
	}
	c.query.Oldest = true
	for {
		for r, err := range server.Audit(ctx, c.query) {
			if err != nil {
				return err
			}
			if err := a.PrintLine(c.OutputOptions, r, number(r), func() error { return app.WriteOutput(a.Out, []byte(line(&r)+"\n")) }); err != nil {
				return err
			}
			c.query.After = r.Seq
		}
		if err := backoff.Sleep(ctx, followInterval); err != nil {
			return err
		}
	}
}

// line returns a record for people.
func line(r *client.AuditRecord) string {
	who := cmp.Or(r.KeyName, r.Key, r.Role, "no key")
	if r.Address != "" {
		who += " (" + strings.Join(app.NonEmpty([]string{r.Address, r.Via}), " via ") + ")"
	}
	count := ""
	if r.Count > 1 {
		count = fmt.Sprintf("%d times", r.Count)
	}
	details := strings.Join(app.NonEmpty([]string{r.Object, count, r.Detail}), ", ")
	return strings.TrimRight(term.Sanitize(fmt.Sprintf("%s  %-7s  %-20s  %s  %s", localTime(r), r.Outcome, r.Operation, who, details)), " ")
}
