package link

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/wake"
)

// maxBatch is the most messages of one type that are merged into one frame, so
// that the receiver can handle the first ones while later ones arrive.
const maxBatch = 4096

// Outbox queues the messages for one worker and merges those that wait while its
// writer is busy, so batching needs no timer. Its methods may be called from any goroutine.
type Outbox struct {
	mu      sync.Mutex
	frames  []*ToWorker   // waiting, in order; messages are added to the last one
	waiting int           // messages in frames
	limit   int           // of waiting
	err     error         // why it ended: io.EOF after a Goodbye
	ended   bool          // a Goodbye was posted
	wake    chan struct{} // holds one token if frames or err may have changed
}

// NewOutbox returns an empty Outbox that fails when more than limit messages wait.
func NewOutbox(limit int) *Outbox {
	return &Outbox{limit: limit, wake: wake.New()}
}

// Post adds messages and never blocks. The outbox copies the lists of w but may keep what they point to, which
// the caller must not change. Messages after a Goodbye, or after the outbox failed, are dropped.
func (o *Outbox) Post(w *ToWorker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.err != nil {
		return
	}
	if n := len(o.frames); n == 0 || !o.frames[n-1].merge(w) {
		f := new(ToWorker)
		f.merge(w)
		o.frames = append(o.frames, f)
	}
	o.waiting += w.messages()
	o.ended = w.Goodbye != nil
	if max(o.waiting, len(o.frames)) > o.limit {
		o.err = muster.Errorf(muster.Unavailable, "the worker reads too slowly: %d messages wait for it", o.waiting)
		o.frames = nil
	}
	wake.Set(o.wake)
}

// Next waits for messages and returns all that fit in one frame. After the frame
// with the Goodbye it returns io.EOF, and after too many messages waited,
// Unavailable. One goroutine may call it.
func (o *Outbox) Next(ctx context.Context) (*ToWorker, error) {
	for {
		f, err := o.tryNext()
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryNext is Next without waiting: it returns nil, nil if no frame waits.
func (o *Outbox) tryNext() (*ToWorker, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || len(o.frames) == 0 {
		return nil, o.err
	}
	f := o.frames[0]
	if rest := f.splitOverflow(); rest != nil {
		o.frames[0] = rest
	} else {
		o.frames[0] = nil
		o.frames = o.frames[1:]
	}
	o.waiting -= f.messages()
	if f.Goodbye != nil {
		o.err = io.EOF
	}
	return f, nil
}

// frameBudget is how many bytes the lists of one frame may fill; the rest of
// MaxFrame is for fields that are not lists and for punctuation.
const frameBudget = MaxFrame - 1<<20

// merge adds w at the end of f. It returns false if f is full, as after a Drain or a Goodbye.
func (f *ToWorker) merge(w *ToWorker) bool {
	if f.Drain || f.Goodbye != nil || len(f.Assign) >= maxBatch || len(f.FinishedAck) >= maxBatch ||
		len(f.LogAck) >= maxBatch || len(f.Cancel) >= maxBatch || len(f.Exec) >= maxBatch || len(f.Heal)+len(w.Heal) > maxGPUs && len(f.Heal) > 0 {
		return false
	}
	if len(f.Specs) > 0 && len(f.Specs)+len(w.Specs) > MaxNewGroupSpecs {
		return false
	}
	if w.Welcome != nil {
		f.Welcome = w.Welcome
	}
	f.Specs = append(f.Specs, w.Specs...)
	f.Assign = append(f.Assign, w.Assign...)
	f.Cancel = append(f.Cancel, w.Cancel...)
	f.FinishedAck = append(f.FinishedAck, w.FinishedAck...)
	f.LogAck = append(f.LogAck, w.LogAck...)
	f.Heal = append(f.Heal, w.Heal...)
	f.Exec = append(f.Exec, w.Exec...)
	f.Approved = f.Approved || w.Approved
	f.Ping, f.Pong = f.Ping || w.Ping, f.Pong || w.Pong
	f.Drain, f.Goodbye = w.Drain, w.Goodbye
	return true
}

func (f *ToWorker) messages() int {
	return len(f.Specs) + len(f.Assign) + len(f.Cancel) + len(f.FinishedAck) + len(f.LogAck) + len(f.Heal) + len(f.Exec)
}

// splitOverflow keeps what fits in a frame and returns the rest, or nil. The fields are
// filled in their order, so the order of effect stays.
func (f *ToServer) splitOverflow() *ToServer {
	var rest ToServer
	budget, logs := frameBudget, MaxLogs
	f.Accepted, rest.Accepted = takeFitting(f.Accepted, &budget, attemptSize)
	f.Rejected, rest.Rejected = takeFitting(f.Rejected, &budget, func(r *Rejected) int { return messageOverhead + textSize(r.Message) })
	f.Started, rest.Started = takeFitting(f.Started, &budget, func(*Started) int { return messageOverhead })
	f.Progress, rest.Progress = takeFitting(f.Progress, &budget, progressSize)
	logBudget := budget
	f.Logs, rest.Logs = takeFitting(f.Logs, &logBudget, func(c *LogChunk) int {
		if logs -= len(c.Data); logs < 0 {
			return MaxFrame // over its own limit: as if it filled the frame
		}
		return messageOverhead + (len(c.Data)/3+1)*4
	})
	budget = logBudget
	f.Saved, rest.Saved = takeFitting(f.Saved, &budget, func(*Saved) int { return messageOverhead })
	f.Finished, rest.Finished = takeFitting(f.Finished, &budget, reportSize)
	if budget >= 0 {
		return nil
	}
	rest.Renew, f.Renew = f.Renew, nil
	rest.Goodbye, f.Goodbye = f.Goodbye, nil
	return &rest
}

// splitOverflow is like ToServer.splitOverflow.
func (f *ToWorker) splitOverflow() *ToWorker {
	var rest ToWorker
	budget := frameBudget
	f.Specs, rest.Specs = takeFitting(f.Specs, &budget, func(s *GroupSpec) int { return messageOverhead + maxUID + textSize(s.Name) + jsonSize(&s.Spec) })
	f.Assign, rest.Assign = takeFitting(f.Assign, &budget, assignSize)
	f.Cancel, rest.Cancel = takeFitting(f.Cancel, &budget, func(*Cancel) int { return messageOverhead })
	f.FinishedAck, rest.FinishedAck = takeFitting(f.FinishedAck, &budget, attemptSize)
	f.LogAck, rest.LogAck = takeFitting(f.LogAck, &budget, func(*LogAck) int { return messageOverhead })
	f.Heal, rest.Heal = takeFitting(f.Heal, &budget, func(uuid *string) int { return textSize(*uuid) })
	f.Exec, rest.Exec = takeFitting(f.Exec, &budget, func(*Exec) int { return messageOverhead })
	if budget >= 0 {
		return nil
	}
	rest.Drain, f.Drain = f.Drain, false
	rest.Goodbye, f.Goodbye = f.Goodbye, nil
	return &rest
}

// takeFitting splits a list at the first element that exceeds the budget, and makes the budget
// negative if there was one. The first element of a frame always fits.
func takeFitting[T any](list []T, budget *int, size func(*T) int) (in, out []T) {
	if *budget < 0 {
		return nil, list
	}
	for i := range list {
		n := size(&list[i])
		if n > *budget && (i > 0 || *budget < frameBudget) {
			*budget = -1
			return list[:i:i], list[i:]
		}
		*budget = max(*budget-n, 0)
	}
	return list, nil
}

// messageOverhead is an upper limit, in bytes, for the field names, numbers and ids of any message.
const messageOverhead = 256

func attemptSize(*muster.AttemptID) int { return 48 }

func progressSize(p *muster.Progress) int {
	n := messageOverhead
	if p.Step != nil {
		n += textSize(*p.Step)
	}
	for name := range p.Metrics {
		n += textSize(name) + 32
	}
	return n + artifactsSize(p.Artifacts)
}

func artifactsSize(list []muster.Artifact) int {
	n := 0
	for i := range list {
		n += messageOverhead + textSize(list[i].Name) + textSize(list[i].CID) + textSize(list[i].URL)
	}
	return n
}

func reportSize(r *muster.Report) int {
	n := messageOverhead + textSize(r.Message) + 6*len(r.Result)
	if r.Usage != nil {
		n += 4 * messageOverhead
	}
	return n + artifactsSize(r.Artifacts)
}

func assignSize(a *Assign) int {
	n := 2*messageOverhead + textSize(a.Element)
	for _, id := range a.Grant.GPUs {
		n += textSize(id)
	}
	for i := range a.Inputs {
		n += messageOverhead + textSize(a.Inputs[i].Path)
	}
	if a.Gang != nil {
		n += textSize(a.Gang.Master)
	}
	for i := range a.Secrets {
		n += messageOverhead + len(a.Secrets[i].Name) + base64.StdEncoding.EncodedLen(len(a.Secrets[i].Value))
	}
	if a.Spec != nil {
		n += jsonSize(a.Spec)
	}
	return n
}

// textSize is the most bytes of s as JSON: six for a control character.
func textSize(s string) int { return 6*len(s) + 4 }

// jsonSize returns the exact size of a spec, or 0 if it cannot be encoded: then the encoder reports the error.
func jsonSize(spec *muster.TaskSpec) int {
	b, err := json.Marshal(spec)
	if err != nil {
		return 0
	}
	return len(b)
}
