package obs

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// maxBatches is how many batches of the engine wait for tracing. Others are dropped, so that the engine does not wait.
const maxBatches = 256

// queuedBatch has the data of spans.
type queuedBatch struct {
	start, decided, committed time.Time
	submitted                 []sched.Submitted
	commands                  []sched.Command
	ended                     []sched.AttemptEnded
	jobsEnded                 []sched.JobEnded
}

// QueueBatch queues a batch of the engine for tracing. It returns false if it dropped the batch. It does not block.
func (t *Tracer) QueueBatch(b *sched.Batch) bool {
	if t == nil || b.Failed || b.Committed.IsZero() {
		return true
	}
	fx := &b.Effects
	if len(b.Submitted)+len(fx.Commands)+len(fx.AttemptsEnded)+len(fx.JobsEnded) == 0 {
		return true
	}
	select {
	case t.batches <- queuedBatch{b.Began, b.Decided, b.Committed, b.Submitted, fx.Commands, fx.AttemptsEnded, fx.JobsEnded}:
		return true
	default:
		return false
	}
}

// drainTimeout is how long Run may wait for the collector after its context has ended.
const drainTimeout = time.Second

// Run emits spans of queued batches until ctx ends, and then those of the remaining ones. It waits while the queue of spans is full.
func (t *Tracer) Run(ctx context.Context) error {
	if t == nil {
		return nil
	}
	drainCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTimeout, stop) })()
	for {
		select {
		case b := <-t.batches:
			t.emitBatch(drainCtx, &b)
			continue
		default:
		}
		select {
		case b := <-t.batches:
			t.emitBatch(drainCtx, &b)
		case <-ctx.Done():
			if len(t.batches) == 0 {
				return nil
			}
		}
	}
}

// maxSpansPerItem is the most spans of one element of a batch.
const maxSpansPerItem = 3

func (t *Tracer) emitBatch(ctx context.Context, b *queuedBatch) {
	for i := range b.submitted {
		t.queue.waitForSpace(ctx)
		t.emitSubmitted(b, &b.submitted[i])
	}
	for _, send := range b.commands {
		if a, ok := send.(sched.Assign); ok {
			t.queue.waitForSpace(ctx)
			t.emitAssigned(b, &a)
		}
	}
	for i := range b.ended {
		t.queue.waitForSpace(ctx)
		t.emitEnded(&b.ended[i])
	}
	for i := range b.jobsEnded {
		t.queue.waitForSpace(ctx)
		t.emitJob(&b.jobsEnded[i])
	}
}

// The subjects of spans, from which their ids are derived.
const jobSpanKey = "job"

func attemptSpanKey(a muster.AttemptID) string { return "attempt " + a.String() }
func runSpanKey(a muster.AttemptID) string     { return "run " + a.String() }

func jobAttribute(id muster.JobID) attribute.KeyValue {
	return attribute.String("muster.job", id.String())
}

func attemptAttributes(a muster.AttemptID) []attribute.KeyValue {
	return []attribute.KeyValue{
		jobAttribute(a.Task.Job), attribute.String("muster.task", a.Task.String()), attribute.Int("muster.attempt", a.N),
	}
}

// emitSubmitted emits the spans of an accepted job.
func (t *Tracer) emitSubmitted(b *queuedBatch, s *sched.Submitted) {
	j, ok := t.traceOf(s.UID)
	if !ok {
		return
	}
	attrs := []attribute.KeyValue{jobAttribute(s.Job)}
	t.emit(&j, &span{name: "submit", key: "submit", parent: j.spanContext(jobSpanKey), kind: trace.SpanKindServer, start: s.At, end: b.committed, attributes: attrs})
	t.emitDecision(&j, b, j.spanContext("submit"), latest(b.start, s.At), attrs)
}

// emitDecision emits the spans of a decision and its commit.
func (t *Tracer) emitDecision(j *jobTrace, b *queuedBatch, parent trace.SpanContext, start time.Time, attrs []attribute.KeyValue) {
	t.emit(j, &span{name: "decide", parent: parent, kind: trace.SpanKindInternal, start: start, end: b.decided, attributes: attrs})
	t.emit(j, &span{name: "commit", parent: parent, kind: trace.SpanKindInternal, start: b.decided, end: b.committed, attributes: attrs})
}

// emitAssigned emits the spans of an assignment.
func (t *Tracer) emitAssigned(b *queuedBatch, a *sched.Assign) {
	if j, ok := t.traceOf(a.UID); ok {
		t.emitDecision(&j, b, j.spanContext(attemptSpanKey(a.Attempt)), b.start, attemptAttributes(a.Attempt))
	}
}

// emitEnded emits the spans of an ended attempt.
func (t *Tracer) emitEnded(e *sched.AttemptEnded) {
	j, ok := t.traceOf(e.UID)
	if !ok {
		return
	}
	attrs := attemptAttributes(e.Attempt)
	assigned, end := e.AssignedAt.Std(), e.At.Std()
	if e.QueuedAt != 0 {
		t.emit(&j, &span{name: "queue " + e.Attempt.Task.String(), parent: j.spanContext(jobSpanKey), kind: trace.SpanKindInternal, start: e.QueuedAt.Std(), end: assigned, attributes: attrs})
	}
	attempt := &span{
		name: "attempt " + e.Attempt.String(), key: attemptSpanKey(e.Attempt), parent: j.spanContext(jobSpanKey), kind: trace.SpanKindInternal, start: assigned, end: end,
		attributes: append(slices.Clip(attrs), attribute.String("muster.stage", e.Spec.Name), attribute.String("muster.kind", e.Spec.Kind),
			attribute.String("muster.worker", string(e.Worker)), attribute.String("muster.outcome", string(e.Outcome))),
	}
	if e.Reason != muster.NoReason {
		attempt.attributes = append(attempt.attributes, attribute.String("muster.reason", string(e.Reason)))
	}
	attempt.failure = failureText(e.Outcome, e.Reason)
	t.emit(&j, attempt)
	started := end
	if e.StartedAt != 0 {
		started = e.StartedAt.Std()
	}
	t.emit(&j, &span{name: "assign", parent: j.spanContext(attemptSpanKey(e.Attempt)), kind: trace.SpanKindProducer, start: assigned, end: started, attributes: attrs})
}

// failureText returns why an attempt failed, or "".
func failureText(o muster.Outcome, r muster.Reason) string {
	switch {
	case o == muster.AttemptSucceeded:
		return ""
	case r != muster.NoReason:
		return string(r)
	default:
		return string(o)
	}
}

// emitJob emits the span of an ended job. A job that is retried ends again: then the same span is sent with another end.
func (t *Tracer) emitJob(d *sched.JobEnded) {
	j, ok := t.traceOf(d.UID)
	if !ok {
		return
	}
	s := &span{
		name: "job " + d.Job.String(), key: jobSpanKey, parent: j.parent, kind: trace.SpanKindInternal, start: d.CreatedAt.Std(), end: d.At.Std(),
		attributes: []attribute.KeyValue{jobAttribute(d.Job), attribute.String("muster.job_name", d.Name), attribute.String("muster.state", string(d.State))},
	}
	if d.State != muster.JobSucceeded {
		s.failure = string(d.State)
	}
	t.emit(&j, s)
}
