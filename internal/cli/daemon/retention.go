package daemon

import (
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/retention"
)

// retentionOptions are the options for how long a server keeps data.
type retentionOptions struct {
	policy retention.Policy // nil fields are the defaults
	server retention.ServerPolicy
}

func newRetentionOptions() retentionOptions {
	return retentionOptions{server: retention.DefaultServerPolicy()}
}

func (o *retentionOptions) flags() []cli.Flag {
	defaults := retention.DefaultPolicy()
	project := func(name, usage string, dst **retention.Limit, fallback *retention.Limit) cli.Flag {
		shown := *fallback
		return app.Var(app.Option{Name: name, Value: "limit", Usage: usage, Group: "Retention"}.WithEnv(), &shown, func(s string) (retention.Limit, error) {
			l, err := retention.ParseLimit(s)
			if err == nil {
				*dst = &l
			}
			return l, err
		}, retention.Limit.String)
	}
	server := func(name, usage string, dst *retention.Limit) cli.Flag {
		return app.Var(app.Option{Name: name, Value: "limit", Usage: usage, Group: "Retention"}.WithEnv(), dst, retention.ParseLimit, retention.Limit.String)
	}
	return []cli.Flag{
		project("keep-jobs", "How long to keep ended jobs: an age (30d), a number (1000), a size (50GiB), several with commas, or forever", &o.policy.Jobs, defaults.Jobs),
		project("keep-logs", "How long to keep logs of ended jobs", &o.policy.Logs, defaults.Logs),
		project("keep-artifacts", "How long to keep artifacts and checkpoints of ended jobs", &o.policy.Artifacts, defaults.Artifacts),
		project("keep-late-reports", "How long to keep reports of attempts that had been given up", &o.policy.LateReports, defaults.LateReports),
		server("keep-uploads", "How long to keep uploaded files that no job refers to, at least 1h", &o.server.Uploads),
		server("keep-workers", "How long to keep workers that left", &o.server.Workers),
		server("keep-audit", "How long to keep records of the audit log: an age, at least 1d, or a number, at least 1000", &o.server.Audit),
		app.Option{Name: "keep-events", Value: "number", Usage: "How many events to keep for clients that reconnect", Group: "Retention"}.WithEnv().IntVar(&o.server.Events, minEvents, maxEvents),
	}
}

// The range of --keep-events; each takes some 200 bytes of memory.
const (
	minEvents = 100
	maxEvents = 10_000_000
)

// check returns an error for limits that cannot hold.
func (o *retentionOptions) check() error {
	if age := o.server.Uploads.Age; age > 0 && age < retention.MinGrace {
		return muster.Errorf(muster.Invalid, "--keep-uploads %s is too short: a client that has uploaded files needs time to submit its job; use at least 1h", o.server.Uploads)
	}
	switch l := o.server.Audit; {
	case l.Bytes > 0:
		return muster.Errorf(muster.Invalid, "--keep-audit %s: the audit log has no limit of size; use an age, a number or forever", l)
	case l.Age > 0 && l.Age < minAuditAge, l.Number > 0 && l.Number < minAuditRecords:
		return muster.Errorf(muster.Invalid, "--keep-audit %s is too short: use at least 1d or 1000", l)
	}
	return nil
}

// The least limits of the audit log.
const (
	minAuditAge     = muster.Duration(24 * time.Hour)
	minAuditRecords = 1000
)
