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
)

// newsWait is how long news may gather that nobody waits for: that a task was started, what
// it prints and says.
const newsWait = 5 * time.Millisecond

// session is a server's connection with a worker.
type session struct {
	*server
	out   *wire.Outbox
	soon  chan struct{} // holds one token if there is news that may wait a little
	heard chan struct{} // closed when all that the worker said was heard

	mu    sync.Mutex
	fresh []*attempt // of which there is news
	ended bool
}

// listen does what the worker asks for until the connection ends. None of it blocks:
// one slow disk must not keep the word from other attempts.
func (ss *session) listen(in *wire.Frames) error {
	for {
		var f wire.ToShim
		if err := in.Next(&f); errors.Is(err, wire.ErrUnreadable) {
			ss.log.Error("a word of the worker is not understood", slog.Any("error", err))
			continue
		} else if err != nil {
			return err
		}
		if err := fault.Run(func() { ss.handle(&f) }); err != nil {
			ss.refuse(&f, err)
		}
	}
}

// handle does what a frame asks for.
func (ss *session) handle(f *wire.ToShim) {
	switch {
	case f.Start != nil:
		ss.wg.Go(func() { ss.start(f) })
	case f.Stop != nil:
		if a := ss.find(f.Stop.Attempt); a != nil {
			a.stop(&f.Stop.Why, f.Stop.How)
		}
	case f.Record != nil:
		ss.record(f.Seq, f.Record)
	case f.Settle != nil:
		if a := ss.find(f.Settle.Attempt); a != nil {
			a.settle(f.Settle)
		}
	case f.Freeze != nil:
		ss.wg.Go(func() {
			if err := fault.Run(func() { ss.freeze(f.Seq, f.Freeze) }); err != nil {
				ss.refuse(f, err)
			}
		})
	case f.Contact != 0:
		ss.touch(f.Contact)
	case f.Forget != nil:
		ss.forget(f.Forget)
	case f.Ping:
		ss.answer(&wire.ToWorker{Seq: f.Seq})
	}
}

// refuse answers a frame at which this process panicked, and fails the attempt that it is of.
func (ss *session) refuse(f *wire.ToShim, err error) {
	var id muster.AttemptID
	switch {
	case f.Stop != nil:
		id = f.Stop.Attempt
	case f.Record != nil:
		id = f.Record.Attempt
	case f.Settle != nil:
		id = f.Settle.Attempt
	case f.Freeze != nil:
		id = f.Freeze.Attempt
	}
	const doing = "it did what the worker asked for"
	if a := ss.find(id); a != nil {
		a.fail(doing, err)
	} else {
		logPanic(ss.log, err, slog.String("doing", doing))
	}
	if f.Seq != 0 {
		ss.answer(&wire.ToWorker{Seq: f.Seq, Failed: failure(err)})
	}
}

// answer sends a reply. A worker that is gone needs none.
func (ss *session) answer(f *wire.ToWorker) { _ = ss.out.Put(f) }

func (ss *session) start(f *wire.ToShim) {
	if a := ss.find(f.Start.Attempt); a != nil && f.Again {
		ss.answer(a.startedAs(f.Seq))
		return
	}
	a, err := ss.begin(f.Start)
	if err != nil {
		ss.answer(&wire.ToWorker{Seq: f.Seq, Failed: failure(err)})
		return
	}
	// A task that ends soon is told with its end: most of the small ones cost one frame.
	_ = ss.out.Queue(a.startedAs(f.Seq)) // a worker that is gone needs none
	ss.flushSoon()
	a.try(telling, func() { ss.tellNext(a) })
	a.supervise()
}

// telling is what is done when a worker is told of an attempt.
const telling = "it told the worker"

// tellNext tells the worker that took over meanwhile of what this one had started. It
// may have been told in its greeting, which is one thing with the lock.
func (ss *session) tellNext(a *attempt) {
	ss.server.mu.Lock()
	defer ss.server.mu.Unlock()
	if next := ss.worker.Load(); next != nil && next != ss {
		a.tellHeld(next)
	}
}

func (ss *session) record(seq uint64, r *wire.RecordFrame) {
	a := ss.find(r.Attempt)
	switch {
	case a == nil && seq != 0:
		ss.answer(&wire.ToWorker{Seq: seq})
	case a == nil:
	case seq == 0:
		a.record(r, time.Now(), nil)
	default:
		a.record(r, time.Now(), func() {
			ss.answer(&wire.ToWorker{Seq: seq, News: []wire.News{{Attempt: r.Attempt, LogSize: a.size.Load()}}})
		})
	}
}

func (ss *session) freeze(seq uint64, f *wire.FreezeFrame) {
	err := fmt.Errorf("%s does not run here", f.Attempt)
	if a := ss.find(f.Attempt); a != nil {
		err = a.freeze(f.On)
	}
	if err != nil {
		ss.answer(&wire.ToWorker{Seq: seq, Failed: failure(err)})
		return
	}
	ss.answer(&wire.ToWorker{Seq: seq})
}

// failure is what a worker is told that asked in vain.
func failure(err error) *wire.FailedFrame {
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		return &wire.FailedFrame{Reason: f.Reason, Message: f.Message}
	}
	return &wire.FailedFrame{Reason: muster.WorkerInternal, Message: err.Error(), Ending: errors.Is(err, errEnding)}
}

// hear notes that there is news of a, for the next flush.
func (ss *session) hear(a *attempt) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !ss.ended {
		ss.fresh = append(ss.fresh, a)
	}
}

// flushSoon sends the news in a while, when there may be more of it.
func (ss *session) flushSoon() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !ss.ended {
		token(ss.soon)
	}
}

// hurryUp turns what may wait a little into what is sent.
func (ss *session) hurryUp() {
	for range ss.soon {
		time.Sleep(newsWait)
		ss.out.Flush()
	}
}

// end ends hurryUp.
func (ss *session) end() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.ended = true
	close(ss.soon)
}

// gather puts the news of all attempts into the outbox, merged.
func (ss *session) gather() {
	ss.mu.Lock()
	fresh := ss.fresh
	ss.fresh = nil
	ss.mu.Unlock()
	for len(fresh) > 0 {
		now := fresh[:min(len(fresh), newsAtOnce)]
		fresh = fresh[len(now):]
		f := &wire.ToWorker{News: make([]wire.News, 0, len(now))}
		of := make([]*attempt, 0, len(now))
		for _, a := range now {
			a.try(telling, func() { f.News, of = append(f.News, a.news(ss)), append(of, a) })
		}
		if err := ss.out.Queue(f); errors.Is(err, wire.ErrNotSent) { // else a worker that is gone needs none
			for i, a := range of {
				ss.tellAlone(a, &f.News[i])
			}
		}
	}
}

// tellAlone sends the news of one attempt. If they cannot be encoded the attempt fails, and that is sent. It does not look
// the attempt up: whoever flushes may hold the lock of the server.
func (ss *session) tellAlone(a *attempt, n *wire.News) {
	err := ss.out.Queue(&wire.ToWorker{News: []wire.News{*n}})
	if !errors.Is(err, wire.ErrNotSent) {
		return
	}
	a.fail(telling, err)
	_ = ss.out.Queue(&wire.ToWorker{News: []wire.News{a.plainNews()}}) // a worker that is gone needs none
}

// newsAtOnce is of how many attempts one frame tells.
const newsAtOnce = 256
