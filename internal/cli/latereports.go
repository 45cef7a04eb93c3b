package cli

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// lateReports shows the reports of jobs that arrived after their attempts had been given up.
func (a *runner) lateReports(ctx context.Context, c *jobConfig, server *client.Client, ids []muster.JobID) error {
	now := time.Now()
	l := app.Listing[muster.LateReport]{
		OutputOptions: c.OutputOptions,
		ID:            func(r muster.LateReport) string { return r.Attempt.String() },
		Table: term.NewTable(term.Column{Title: "ATTEMPT", NoTruncate: true}, term.Column{Title: "WORKER"}, term.Column{Title: "OUTCOME", NoTruncate: true},
			term.Column{Title: "REASON"}, term.Column{Title: "ARRIVED", AlignRight: true, NoTruncate: true}, term.Column{Title: "MESSAGE"}),
		Row: func(r muster.LateReport) []string {
			return []string{r.Attempt.String(), string(r.Worker), string(r.Outcome), string(r.Reason), app.Age(r.At, now), r.Message}
		},
		EmptyMessage: "no late reports",
		Rows: func(yield func(muster.LateReport, error) bool) {
			for _, id := range ids {
				list, err := server.LateReports(ctx, id)
				if err != nil {
					yield(muster.LateReport{}, err)
					return
				}
				for _, r := range list {
					if !yield(r, nil) {
						return
					}
				}
			}
		},
	}
	return l.Write(a.App)
}
