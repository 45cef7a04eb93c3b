package link

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/muster-dev/muster"
)

// encoder appends fields of a JSON object and keeps the first error.
type encoder struct {
	b   []byte
	err error
}

func appendToServer(b []byte, f *ToServer) ([]byte, error) {
	e := &encoder{b: b}
	e.b = strconv.AppendUint(append(e.b, `{"seq":`...), f.Seq, 10)
	if f.Hello != nil {
		e.value("hello", f.Hello)
	}
	if f.Ready != nil {
		e.value("ready", f.Ready)
	}
	if f.Offer != nil {
		e.value("offer", f.Offer)
	}
	appendList(e, "accepted", f.Accepted, e.attempt)
	if len(f.Rejected) > 0 {
		e.value("rejected", f.Rejected)
	}
	appendList(e, "started", f.Started, e.started)
	if len(f.Progress) > 0 {
		e.value("progress", f.Progress)
	}
	appendList(e, "logs", f.Logs, e.logChunk)
	if len(f.Saved) > 0 {
		e.value("saved", f.Saved)
	}
	appendList(e, "finished", f.Finished, e.report)
	if f.Renew != nil {
		e.value("renew", f.Renew)
	}
	if f.Ping {
		e.field("ping").b = append(e.b, "true"...)
	}
	return e.finish(f.Goodbye)
}

func appendToWorker(b []byte, f *ToWorker) ([]byte, error) {
	e := &encoder{b: b}
	e.b = strconv.AppendUint(append(e.b, `{"seq":`...), f.Seq, 10)
	if f.Welcome != nil {
		e.value("welcome", f.Welcome)
	}
	if len(f.Specs) > 0 {
		e.value("specs", f.Specs)
	}
	appendList(e, "assign", f.Assign, e.assign)
	if len(f.Cancel) > 0 {
		e.value("cancel", f.Cancel)
	}
	appendList(e, "finished_ack", f.FinishedAck, e.attempt)
	appendList(e, "log_ack", f.LogAck, e.logAck)
	if f.Drain {
		e.field("drain").b = append(e.b, "true"...)
	}
	if len(f.Heal) > 0 {
		e.value("heal", f.Heal)
	}
	if f.Pong {
		e.field("pong").b = append(e.b, "true"...)
	}
	return e.finish(f.Goodbye)
}

func (e *encoder) finish(g *Goodbye) ([]byte, error) {
	if g != nil {
		e.value("goodbye", g)
	}
	return append(e.b, '}'), e.err
}

// field begins a field; the first one of an object follows its brace.
func (e *encoder) field(n string) *encoder {
	if e.b[len(e.b)-1] != '{' {
		e.b = append(e.b, ',')
	}
	e.b = append(append(append(e.b, '"'), n...), '"', ':')
	return e
}

// value appends a field by encoding/json.
func (e *encoder) value(n string, v any) {
	b, err := json.Marshal(v)
	if err != nil && e.err == nil {
		e.err = inField(n, err)
	}
	e.b = append(e.field(n).b, b...)
}

func appendList[T any](e *encoder, n string, list []T, elem func(*T)) {
	if len(list) == 0 {
		return
	}
	e.b = append(e.field(n).b, '[')
	for i := range list {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		good := e.err == nil
		if elem(&list[i]); good && e.err != nil {
			e.err = inField(n, inField("["+strconv.Itoa(i)+"]", e.err))
		}
	}
	e.b = append(e.b, ']')
}

func (e *encoder) attempt(a *muster.AttemptID) {
	e.b = strconv.AppendInt(append(e.b, '"'), int64(a.Task.Job), 10)
	e.b = strconv.AppendInt(append(e.b, '.'), int64(a.Task.Num), 10)
	e.b = append(strconv.AppendInt(append(e.b, '#'), int64(a.N), 10), '"')
}

// beginAttempt begins a message about an attempt.
func (e *encoder) beginAttempt(a *muster.AttemptID) {
	e.b = append(e.b, `{"attempt":`...)
	e.attempt(a)
}

// text appends a string field.
func (e *encoder) text(n, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			e.value(n, s)
			return
		}
	}
	e.b = append(append(append(e.field(n).b, '"'), s...), '"')
}

func (e *encoder) int(n string, v int64) { e.b = strconv.AppendInt(e.field(n).b, v, 10) }

func (e *encoder) time(n string, t muster.Time) {
	e.field(n).b = append(e.b, '"')
	if t != 0 {
		e.b = t.Std().AppendFormat(e.b, "2006-01-02T15:04:05.000Z")
	}
	e.b = append(e.b, '"')
}

func (e *encoder) started(m *Started) {
	e.beginAttempt(&m.Attempt)
	e.time("at", m.At)
	e.b = append(e.b, '}')
}

func (e *encoder) logAck(m *LogAck) {
	e.beginAttempt(&m.Attempt)
	e.int("size", m.Size)
	if m.Pause != 0 {
		e.value("pause", m.Pause)
	}
	e.b = append(e.b, '}')
}

func (e *encoder) logChunk(m *LogChunk) {
	e.beginAttempt(&m.Attempt)
	e.int("offset", m.Offset)
	e.b = append(e.field("data").b, '"')
	e.b = append(base64.StdEncoding.AppendEncode(e.b, m.Data), '"', '}')
}

func (e *encoder) report(m *muster.Report) {
	e.beginAttempt(&m.Attempt)
	e.text("outcome", string(m.Outcome))
	if m.Reason != "" {
		e.text("reason", string(m.Reason))
	}
	if m.Message != "" {
		e.text("message", m.Message)
	}
	if m.ExitCode != nil {
		e.int("exit_code", int64(*m.ExitCode))
	}
	if len(m.Result) > 0 {
		compact := bytes.NewBuffer(make([]byte, 0, len(m.Result)))
		if err := json.Compact(compact, m.Result); err != nil && e.err == nil {
			e.err = inField("result", fieldErrorf("is not JSON: %s", err))
		}
		e.b = append(e.field("result").b, compact.Bytes()...)
	}
	if len(m.Artifacts) > 0 {
		e.value("artifacts", m.Artifacts)
	}
	if m.Usage != nil {
		e.value("usage", m.Usage)
	}
	if m.Image != "" {
		e.text("image", m.Image)
	}
	if m.LogSize != 0 {
		e.int("log_size", m.LogSize)
	}
	if m.StartedAt != 0 {
		e.time("started_at", m.StartedAt)
	}
	e.time("finished_at", m.FinishedAt)
	e.b = append(e.b, '}')
}

func (e *encoder) assign(m *Assign) {
	e.beginAttempt(&m.Attempt)
	e.int("ref", int64(m.Ref))
	if m.Element != "" {
		e.text("element", m.Element)
	}
	if m.Spec != nil {
		e.value("spec", m.Spec)
	}
	e.grant(&m.Grant)
	if len(m.Inputs) > 0 {
		e.value("inputs", m.Inputs)
	}
	if m.Checkpoint != "" {
		e.text("checkpoint", m.Checkpoint)
	}
	if m.Gang != nil {
		e.value("gang", m.Gang)
	}
	e.b = append(e.b, '}')
}

func (e *encoder) grant(g *muster.Grant) {
	if g.CPUs == 0 && g.Memory == 0 && g.Disk == 0 && g.PIDs == 0 && len(g.GPUs) == 0 && g.GPUMemory == 0 {
		if g.Slots != 0 {
			e.b = append(e.field("grant").b, `{"slots":`...)
			e.b = append(strconv.AppendInt(e.b, int64(g.Slots), 10), '}')
		}
		return
	}
	e.value("grant", g)
}
