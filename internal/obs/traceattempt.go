package obs

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/traceparent"
)

// maxReports is of how many ended attempts a worker remembers when they ended, until their reports are acknowledged.
const maxReports = 10_000

// unsettled is an attempt whose report the server does not have.
type unsettled struct {
	job   job
	since time.Time
}

// Traceparent returns what an attempt finds in TRACEPARENT: the context of its run, or, if nothing is traced here, the one that the job was
// submitted in, if there is one. Else it is "".
func (t *Tracer) Traceparent(uid string, a muster.AttemptID) string {
	p, inherited := traceparent.Of(uid)
	if t != nil && uid != "" {
		j, sampled := t.jobOf(uid)
		c := j.at(ofRun(a))
		p = traceparent.Parent{Trace: c.TraceID(), Span: c.SpanID()}
		if sampled {
			p.Flags = byte(trace.FlagsSampled)
		}
		return p.String()
	}
	if !inherited {
		return ""
	}
	return p.String()
}

// Ran makes the span of an attempt's execution here. started is when its task started, zero if it did not.
func (t *Tracer) Ran(uid string, r *muster.Report, a muster.AttemptID, worker muster.WorkerID, began, started, end time.Time) {
	if t == nil {
		return
	}
	j, ok := t.jobOf(uid)
	if !ok {
		return
	}
	s := &span{
		name: "run", of: ofRun(a), parent: j.at(ofAttempt(a)), kind: trace.SpanKindConsumer, start: began, end: end,
		attributes: append(attemptAttributes(a), attribute.String("muster.worker", string(worker)), attribute.String("muster.outcome", string(r.Outcome))),
		failed:     failure(r.Outcome, r.Reason),
	}
	if r.ExitCode != nil {
		s.attributes = append(s.attributes, attribute.Int("process.exit.code", *r.ExitCode))
	}
	if !started.IsZero() {
		s.event, s.eventAt = "started", started
	}
	t.emit(&j, s)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.reports) < maxReports {
		t.reports[a] = unsettled{j, end}
	}
}

// Settled makes the span of an attempt's report, which the server has recorded or did not want. It does not block.
func (t *Tracer) Settled(a muster.AttemptID, recorded bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	u, ok := t.reports[a]
	delete(t.reports, a)
	t.mu.Unlock()
	if !ok {
		return
	}
	s := &span{
		name: "report", parent: u.job.at(ofAttempt(a)), kind: trace.SpanKindClient, start: u.since, end: time.Now(), attributes: attemptAttributes(a),
	}
	if !recorded {
		s.failed = "the server did not want it any more"
	}
	t.emit(&u.job, s)
}
