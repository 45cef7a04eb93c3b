package obs

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/traceparent"
)

// maxReports is how many pending reports a worker remembers.
const maxReports = 10_000

// pendingReport is an ended attempt whose report the server has not acknowledged.
type pendingReport struct {
	job   jobTrace
	since time.Time
}

// Traceparent returns the value of an attempt's environment variable TRACEPARENT: the context of its run or, if t is nil, the one that the job was
// submitted in, or "".
func (t *Tracer) Traceparent(uid string, a muster.AttemptID) string {
	p, inherited := traceparent.ParentOf(uid)
	if t != nil && uid != "" {
		j, sampled := t.traceOf(uid)
		c := j.spanContext(runSpanKey(a))
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

// AttemptRun emits the span of an attempt's execution on this worker. started is when its task started, or zero.
func (t *Tracer) AttemptRun(uid string, r *muster.Report, a muster.AttemptID, worker muster.WorkerID, start, started, end time.Time) {
	if t == nil {
		return
	}
	j, ok := t.traceOf(uid)
	if !ok {
		return
	}
	s := &span{
		name: "run", key: runSpanKey(a), parent: j.spanContext(attemptSpanKey(a)), kind: trace.SpanKindConsumer, start: start, end: end,
		attributes: append(attemptAttributes(a), attribute.String("muster.worker", string(worker)), attribute.String("muster.outcome", string(r.Outcome))),
		failure:    failureText(r.Outcome, r.Reason),
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
	if len(t.pendingReports) < maxReports {
		t.pendingReports[a] = pendingReport{j, end}
	}
}

// ReportAcked emits the span of an attempt's report, which the server recorded or no longer needed. It does not block.
func (t *Tracer) ReportAcked(a muster.AttemptID, recorded bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	u, ok := t.pendingReports[a]
	delete(t.pendingReports, a)
	t.mu.Unlock()
	if !ok {
		return
	}
	s := &span{
		name: "report", parent: u.job.spanContext(attemptSpanKey(a)), kind: trace.SpanKindClient, start: u.since, end: time.Now(), attributes: attemptAttributes(a),
	}
	if !recorded {
		s.failure = "no longer needed by the server"
	}
	t.emit(&u.job, s)
}
