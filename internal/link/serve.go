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
	helloTimeout        = 10 * time.Second // for the first frame
	sendTimeout         = 30 * time.Second // for one frame
	goodbyeTimeout      = 2 * time.Second  // for a Goodbye
	maxMissedHeartbeats = 3                // heartbeats of silence that end a session
	maxQueued           = 1 << 17          // messages in the server's outbox of one session
)

// Serve runs the server's side of one session on conn, for the worker that the
// transport authenticated, and returns when all its goroutines have stopped: nil after an orderly
// Goodbye of the worker, and otherwise why the session ended. When ctx ends, the
// Goodbye asks the worker to reconnect later, or has the cause if that is a *muster.Error. The address of
// a worker that names none is that of conn; the handler decides whether to trust one that it names.
func Serve(ctx context.Context, conn ServerConn, handler SessionHandler, worker muster.WorkerID, log *slog.Logger) error {
	defer conn.Close()
	hello, err := readHello(ctx, conn, worker)
	if err != nil {
		sendRefusal(ctx, conn, err)
		return err
	}
	hello.RemoteIP = conn.RemoteIP()
	hello.Address = cmp.Or(hello.Address, hello.RemoteIP)
	hello.Alive = func(ctx context.Context) error { return checkAlive(ctx, conn) }
	outbox := NewOutbox(maxQueued)
	session, welcome, err := handler.Open(ctx, hello, outbox.Post)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		sendRefusal(ctx, conn, err)
		return err
	}
	s := &serverSession{conn: conn, session: session, outbox: outbox, idle: maxMissedHeartbeats * welcome.Heartbeat.Std(), labels: hello.Labels}
	log.Info("worker connected", slog.String("worker", string(worker)), slog.String("name", hello.Name))
	err = s.run(ctx, welcome)
	session.Close(err == nil)
	if err != nil && ctx.Err() == nil {
		log.Info("worker disconnected", slog.String("worker", string(worker)), slog.Any("error", err))
	}
	return err
}

// readHello reads the Hello and checks its version and worker.
func readHello(ctx context.Context, conn ServerConn, worker muster.WorkerID) (*Hello, error) {
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

// checkAlive pings a worker that waits for the answer to its hello.
func checkAlive(ctx context.Context, conn ServerConn) error {
	err := conn.Send(ctx, &ToWorker{Ping: true})
	if err != nil {
		return muster.Errorf(muster.Unavailable, "the worker closed the connection before its session was open: %w", err)
	}
	f, err := conn.Recv(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return muster.Errorf(muster.Unavailable, "the worker did not answer a ping before its session was open")
	case err != nil:
		return muster.Errorf(muster.Unavailable, "the worker closed the connection before its session was open: %w", err)
	case !f.Pong:
		return muster.Errorf(muster.Invalid, "a worker answers a ping before its session is open with a pong")
	}
	return nil
}

// sendRefusal sends the reason why the worker is refused.
func sendRefusal(ctx context.Context, conn ServerConn, cause error) {
	g := goodbyeFor(cause)
	if g == nil {
		g = &Goodbye{Code: muster.Unavailable, Message: cause.Error()}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	_ = conn.Send(ctx, &ToWorker{Goodbye: g}) // best effort: the connection may be broken
}

type serverSession struct {
	conn    ServerConn
	session Session
	outbox  *Outbox
	idle    time.Duration

	labels map[string]string // of the hello
}

// errOrderly ends a session after the worker's Goodbye.
var errOrderly = errors.New("the worker said goodbye")

// run reads and writes until one of them ends, and joins both. The connection stays
// open until the Goodbye is sent.
func (s *serverSession) run(ctx context.Context, w *Welcome) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	connCtx, cancelConn := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelConn()
	goodbyeTimer := time.AfterFunc(time.Hour, cancelConn)
	goodbyeTimer.Stop()
	defer goodbyeTimer.Stop()
	defer context.AfterFunc(ctx, func() {
		g := goodbyeFor(context.Cause(ctx))
		if g == nil {
			cancelConn()
			return
		}
		goodbyeTimer.Reset(goodbyeTimeout)
		s.outbox.Post(&ToWorker{Goodbye: g})
	})()
	var reader sync.WaitGroup
	reader.Go(func() { end(s.read(ctx, connCtx)) })
	end(s.write(connCtx, w))
	cancelConn()
	reader.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, errOrderly) {
		return cause
	}
	return nil
}

// goodbyeFor returns the Goodbye for a session that ends with err: nil if
// the worker knows the reason, or if the connection is broken.
func goodbyeFor(err error) *Goodbye {
	if errors.Is(err, context.Canceled) {
		return &Goodbye{Code: muster.Unavailable, Message: "the server shuts down"}
	}
	if _, ok := errors.AsType[*FrameError](err); ok || errors.Is(err, errSuspended) {
		return &Goodbye{Code: muster.Unavailable, Message: "the server ended the session: " + err.Error()}
	}
	me, ok := errors.AsType[*muster.Error](err)
	if !ok {
		return nil
	}
	switch me.Code {
	case muster.Unavailable:
		return nil
	case muster.Internal, muster.StorageFull, muster.Undetermined:
		return &Goodbye{Code: muster.Unavailable, Message: me.Message} // the server's fault: the worker reconnects
	default:
		return &Goodbye{Code: me.Code, Message: me.Message}
	}
}

// read passes frames to the session, in order, until the worker says goodbye or is
// silent for too long. Time spent in Handle does not count as silence.
func (s *serverSession) read(ctx, connCtx context.Context) error {
	for ctx.Err() == nil {
		var f *ToServer
		err := withTimeout(connCtx, s.idle, "the worker was silent for", func(ctx context.Context) (err error) {
			f, err = s.conn.Recv(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			break // frames after the end are ignored
		}
		if f.Ping {
			s.outbox.Post(&ToWorker{Pong: true})
		}
		if f.Offer != nil {
			if err := inField("offer", checkDescription(f.Offer, s.labels)); err != nil {
				return muster.Errorf(muster.Invalid, "%w", err)
			}
		}
		if err := s.session.Handle(ctx, f); err != nil {
			return err
		}
		if f.Goodbye != nil {
			return errOrderly
		}
	}
	return ctx.Err()
}

// write sends the welcome and then the frames of the outbox, up to a Goodbye.
func (s *serverSession) write(connCtx context.Context, w *Welcome) error {
	f := &ToWorker{Welcome: w}
	for {
		err := withTimeout(connCtx, sendTimeout, "the worker did not take a frame within", func(ctx context.Context) error { return s.conn.Send(ctx, f) })
		if err != nil {
			return err
		}
		if g := f.Goodbye; g != nil {
			return muster.Errorf(g.Code, "%s", g.Message)
		}
		if f, err = s.outbox.Next(connCtx); err != nil {
			return err
		}
	}
}
