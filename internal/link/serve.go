package link

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

const (
	helloTimeout = 10 * time.Second // for the first frame
	sendTimeout  = 30 * time.Second // for any one frame to leave
	byeTimeout   = 2 * time.Second  // for a Goodbye that nobody waits for
	silentBeats  = 3                // heartbeats of silence that end a session
	maxWaiting   = 1 << 17          // messages in the server's outbox of one session
)

// Serve runs the server's side of one session on conn, for the worker that the
// transport authenticated, and returns when all of it has stopped. It returns nil after an orderly
// Goodbye of the worker, and otherwise why the session ended. When ctx ends the
// worker is told to come back later, or the cause if that is a *muster.Error. A worker that names no address of its own is
// taken to be where conn comes from; whether it may name another one is for the desk to decide.
func Serve(ctx context.Context, conn ServerConn, desk Desk, worker muster.WorkerID, log *slog.Logger) error {
	defer conn.Close()
	hello, err := greet(ctx, conn, worker)
	if err != nil {
		refuse(ctx, conn, err)
		return err
	}
	hello.Peer = conn.Peer()
	hello.Address = cmp.Or(hello.Address, hello.Peer)
	box := NewOutbox(maxWaiting)
	open, welcome, err := desk.Open(ctx, hello, box.Post)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		refuse(ctx, conn, err)
		return err
	}
	s := &serverSession{conn: conn, desk: open, box: box, idle: silentBeats * welcome.Heartbeat.Std(), labels: hello.Labels}
	log.Info("worker connected", slog.String("worker", string(worker)), slog.String("name", hello.Name))
	err = s.run(ctx, welcome)
	open.Close(err == nil)
	if err != nil && ctx.Err() == nil {
		log.Info("worker disconnected", slog.String("worker", string(worker)), slog.Any("error", err))
	}
	return err
}

// greet reads the Hello and checks who says it.
func greet(ctx context.Context, conn ServerConn, worker muster.WorkerID) (*Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	f, err := conn.Recv(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	h := f.Hello
	switch {
	case h == nil:
		return nil, muster.Errorf(muster.Invalid, "the first frame has no hello")
	case h.Version != Version:
		return nil, muster.Errorf(muster.Invalid,
			"the worker (build %q) speaks link version %d and the server version %d: install the server's release of muster on the worker",
			h.Build, h.Version, Version)
	case h.Worker != worker:
		return nil, muster.Errorf(muster.Forbidden, "the key belongs to worker %s, but the hello is from %s", worker, h.Worker)
	}
	return h, nil
}

// refuse tells the worker why it is not let in, if it still listens.
func refuse(ctx context.Context, conn ServerConn, why error) {
	g := farewell(why)
	if g == nil {
		g = &Goodbye{Code: muster.Unavailable, Message: why.Error()}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), byeTimeout)
	defer cancel()
	_ = conn.Send(ctx, &ToWorker{Goodbye: g}) // a courtesy: the connection may be gone
}

type serverSession struct {
	conn ServerConn
	desk Session
	box  *Outbox
	idle time.Duration

	labels map[string]string // of the hello
}

// errOrderly ends a session after the worker's Goodbye.
var errOrderly = errors.New("the worker said goodbye")

// run pumps both ways until one of them ends, and joins both. The connection outlives the
// session by as much as it takes to say why it ended.
func (s *serverSession) run(ctx context.Context, w *Welcome) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	wire, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	last := time.AfterFunc(time.Hour, cut)
	last.Stop()
	defer last.Stop()
	defer context.AfterFunc(ctx, func() {
		g := farewell(context.Cause(ctx))
		if g == nil {
			cut()
			return
		}
		last.Reset(byeTimeout)
		s.box.Post(&ToWorker{Goodbye: g})
	})()
	var reader sync.WaitGroup
	reader.Go(func() { end(s.read(ctx, wire)) })
	end(s.write(wire, w))
	cut()
	reader.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, errOrderly) {
		return cause
	}
	return nil
}

// farewell is what to tell the worker when a session ends for err: nothing if
// it knows, or if the connection is broken.
func farewell(err error) *Goodbye {
	if errors.Is(err, context.Canceled) {
		return &Goodbye{Code: muster.Unavailable, Message: "the server shuts down"}
	}
	me, ok := errors.AsType[*muster.Error](err)
	if !ok {
		return nil
	}
	switch me.Code {
	case muster.Unavailable:
		return nil
	case muster.Internal, muster.StorageFull, muster.Undetermined:
		return &Goodbye{Code: muster.Unavailable, Message: me.Message} // the server's trouble: come back
	default:
		return &Goodbye{Code: me.Code, Message: me.Message}
	}
}

// read passes frames to the desk, in order, until the worker says goodbye or is
// silent for too long. Time that the desk takes is not the worker's silence.
func (s *serverSession) read(ctx, wire context.Context) error {
	for ctx.Err() == nil {
		f, err := s.recv(wire)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			break // what came after the end does not count
		}
		if f.Ping {
			s.box.Post(&ToWorker{Pong: true})
		}
		if f.Offer != nil {
			if err := within("offer", boundOffer(f.Offer, s.labels)); err != nil {
				return muster.Errorf(muster.Invalid, "the worker is refused: %w", err)
			}
		}
		if err := s.desk.Handle(ctx, f); err != nil {
			return err
		}
		if f.Goodbye != nil {
			return errOrderly
		}
	}
	return ctx.Err()
}

func (s *serverSession) recv(wire context.Context) (*ToServer, error) {
	wire, cancel := context.WithTimeoutCause(wire, s.idle,
		muster.Errorf(muster.Unavailable, "the worker was silent for %s", s.idle))
	defer cancel()
	f, err := s.conn.Recv(wire)
	if err != nil && wire.Err() != nil {
		return nil, context.Cause(wire)
	}
	return f, err
}

// write sends the welcome and then whatever waits, up to a Goodbye.
func (s *serverSession) write(wire context.Context, w *Welcome) error {
	f := &ToWorker{Welcome: w}
	for {
		if err := s.send(wire, f); err != nil {
			return err
		}
		if g := f.Goodbye; g != nil {
			return muster.Errorf(g.Code, "%s", g.Message)
		}
		var err error
		if f, err = s.box.Take(wire); err != nil {
			return err
		}
	}
}

func (s *serverSession) send(wire context.Context, f *ToWorker) error {
	wire, cancel := context.WithTimeoutCause(wire, sendTimeout,
		muster.Errorf(muster.Unavailable, "the worker did not take a frame within %s", sendTimeout))
	defer cancel()
	err := s.conn.Send(wire, f)
	if err != nil && wire.Err() != nil {
		return context.Cause(wire)
	}
	return err
}
