package shim

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/wake"
)

// flushDelay is how long updates that are not urgent are collected: starts, log sizes and progress.
const flushDelay = 5 * time.Millisecond

// session is a server's connection to a worker.
type session struct {
	*server
	out           *wire.Outbox
	flushRequests chan struct{} // holds one token if there are updates to flush after flushDelay
	drained       chan struct{} // closed when all frames of the worker are handled

	mu    sync.Mutex
	dirty []*attempt // with updates
	ended bool
}

// readLoop handles frames until the connection ends. Handling does not block: a slow disk must not delay other attempts.
func (ss *session) readLoop(in *wire.FrameReader) error {
	for {
		var f wire.ToShim
		if err := in.Next(&f); errors.Is(err, wire.ErrDecode) {
			ss.log.Error("invalid frame from the worker", slog.Any("error", err))
			continue
		} else if err != nil {
			return err
		}
		if err := fault.Run(func() { ss.handle(&f) }); err != nil {
			ss.replyFailed(&f, err)
		}
	}
}

func (ss *session) handle(f *wire.ToShim) {
	switch {
	case f.Start != nil:
		ss.wg.Go(func() { ss.start(f) })
	case f.Stop != nil:
		if a := ss.find(f.Stop.Attempt); a != nil {
			a.stop(&f.Stop.Why, f.Stop.Kill)
		}
	case f.Record != nil:
		ss.record(f.Seq, f.Record)
	case f.Report != nil:
		if a := ss.find(f.Report.Attempt); a != nil {
			a.saveReport(f.Report)
		}
	case f.Freeze != nil:
		ss.wg.Go(func() {
			if err := fault.Run(func() { ss.freeze(f.Seq, f.Freeze) }); err != nil {
				ss.replyFailed(f, err)
			}
		})
	case f.Contact != 0:
		ss.setContact(f.Contact)
	case f.Forget != nil:
		ss.forget(f.Forget)
	case f.Ping:
		ss.reply(&wire.ToWorker{Seq: f.Seq})
	}
}

// replyFailed replies to a frame whose handling panicked, and fails its attempt.
func (ss *session) replyFailed(f *wire.ToShim, err error) {
	var id muster.AttemptID
	switch {
	case f.Stop != nil:
		id = f.Stop.Attempt
	case f.Record != nil:
		id = f.Record.Attempt
	case f.Report != nil:
		id = f.Report.Attempt
	case f.Freeze != nil:
		id = f.Freeze.Attempt
	}
	const doing = "handling a request of the worker"
	if a := ss.find(id); a != nil {
		a.fail(doing, err)
	} else {
		logPanic(ss.log, err, slog.String("doing", doing))
	}
	if f.Seq != 0 {
		ss.reply(&wire.ToWorker{Seq: f.Seq, Failed: failedFrame(err)})
	}
}

// reply sends a reply. An error means that the worker has disconnected.
func (ss *session) reply(f *wire.ToWorker) { _ = ss.out.Send(f) }

func (ss *session) start(f *wire.ToShim) {
	if a := ss.find(f.Start.Attempt); a != nil && f.Resent {
		ss.reply(a.startReply(f.Seq))
		return
	}
	a, err := ss.begin(f.Start)
	if err != nil {
		ss.reply(&wire.ToWorker{Seq: f.Seq, Failed: failedFrame(err)})
		return
	}
	// The start is sent with the end of a task that ends soon: most small tasks cost one frame.
	_ = ss.out.Queue(a.startReply(f.Seq)) // the worker may have disconnected
	ss.flushLater()
	a.try(doingNotify, func() { ss.notifySuccessor(a) })
	a.supervise()
}

// doingNotify describes the update of a worker.
const doingNotify = "notifying the worker"

// notifySuccessor sends an attempt to the worker that took over while it was started. That worker may have it already: the handshake holds
// the lock.
func (ss *session) notifySuccessor(a *attempt) {
	ss.server.mu.Lock()
	defer ss.server.mu.Unlock()
	if next := ss.worker.Load(); next != nil && next != ss {
		a.sendSnapshot(next)
	}
}

func (ss *session) record(seq uint64, r *wire.RecordFrame) {
	a := ss.find(r.Attempt)
	switch {
	case a == nil && seq != 0:
		ss.reply(&wire.ToWorker{Seq: seq})
	case a == nil:
	case seq == 0:
		a.record(r, time.Now(), nil)
	default:
		a.record(r, time.Now(), func() {
			ss.reply(&wire.ToWorker{Seq: seq, Updates: []wire.Update{{Attempt: r.Attempt, LogSize: a.size.Load()}}})
		})
	}
}

func (ss *session) freeze(seq uint64, f *wire.FreezeFrame) {
	err := fmt.Errorf("attempt %s is not running on this worker", f.Attempt)
	if a := ss.find(f.Attempt); a != nil {
		err = a.freeze(f.On)
	}
	if err != nil {
		ss.reply(&wire.ToWorker{Seq: seq, Failed: failedFrame(err)})
		return
	}
	ss.reply(&wire.ToWorker{Seq: seq})
}

func failedFrame(err error) *wire.FailedFrame {
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		return &wire.FailedFrame{Reason: f.Reason, Message: f.Message, ExitCode: f.ExitCode}
	}
	return &wire.FailedFrame{Reason: muster.WorkerInternal, Message: err.Error(), ShuttingDown: errors.Is(err, errShuttingDown)}
}

// markDirty notes that a has an update for the next flush.
func (ss *session) markDirty(a *attempt) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !ss.ended {
		ss.dirty = append(ss.dirty, a)
	}
}

// flushLater flushes after flushDelay, to collect more updates.
func (ss *session) flushLater() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !ss.ended {
		wake.Set(ss.flushRequests)
	}
}

// flushLoop flushes the outbox after flushDelay, whenever flushLater was called.
func (ss *session) flushLoop() {
	for range ss.flushRequests {
		time.Sleep(flushDelay)
		ss.out.Flush()
	}
}

func (ss *session) stopFlushLoop() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.ended = true
	close(ss.flushRequests)
}

// queueUpdates puts the merged updates of all attempts into the outbox.
func (ss *session) queueUpdates() {
	ss.mu.Lock()
	dirty := ss.dirty
	ss.dirty = nil
	ss.mu.Unlock()
	for len(dirty) > 0 {
		batch := dirty[:min(len(dirty), maxFrameUpdates)]
		dirty = dirty[len(batch):]
		f := &wire.ToWorker{Updates: make([]wire.Update, 0, len(batch))}
		included := make([]*attempt, 0, len(batch))
		for _, a := range batch {
			a.try(doingNotify, func() { f.Updates, included = append(f.Updates, a.takeUpdate(ss)), append(included, a) })
		}
		if err := ss.out.Queue(f); errors.Is(err, wire.ErrEncode) { // else it is queued, or the worker has disconnected
			for i, a := range included {
				ss.sendUpdate(a, &f.Updates[i])
			}
		}
	}
}

// sendUpdate sends the update of one attempt. If it cannot be encoded the attempt fails, and that is sent. It does not look the attempt up:
// the caller may hold the lock of the server.
func (ss *session) sendUpdate(a *attempt, n *wire.Update) {
	err := ss.out.Queue(&wire.ToWorker{Updates: []wire.Update{*n}})
	if !errors.Is(err, wire.ErrEncode) {
		return
	}
	a.fail(doingNotify, err)
	_ = ss.out.Queue(&wire.ToWorker{Updates: []wire.Update{a.minimalUpdate()}}) // the worker may have disconnected
}

// maxFrameUpdates is the maximum of attempts in one frame.
const maxFrameUpdates = 256
