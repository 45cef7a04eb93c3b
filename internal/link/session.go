package link

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
)

// FrameSource is the source of a worker's frames. A session takes the next frame when the previous one is
// sent: it has all messages queued meanwhile, so batching needs no timer.
type FrameSource interface {
	// Next waits for messages and returns the next frame, of any size; io.EOF after a Goodbye.
	Next(ctx context.Context) (*ToServer, error)
	// Post queues a Ping of the session. It never blocks.
	Post(f *ToServer)
}

// RunSession runs the worker's side of one session on conn: it sends hello,
// passes every frame from the server to handle, in order, beginning with the Welcome,
// and sends frames. It closes conn and returns when all its goroutines have
// stopped:
//
//   - nil after a Goodbye of the worker,
//   - ctx.Err() when ctx ends: at once, without a Goodbye, so that the server keeps the leases,
//   - an error with the code of the server's Goodbye: see Retryable,
//   - an Unavailable error when the connection broke, or the server did not answer pings for three heartbeats,
//   - handle's error.
func RunSession(ctx context.Context, conn WorkerConn, hello *Hello, frames FrameSource, handle func(*ToWorker) error) error {
	defer conn.Close()
	first, err := handshake(ctx, conn, hello)
	if err != nil {
		return sessionError(ctx, err)
	}
	if first.Goodbye != nil {
		return goodbyeError(first.Goodbye)
	}
	s := &workerSession{conn: conn, frames: frames, handle: handle, heartbeat: first.Welcome.Heartbeat.Std()}
	if err := handle(first); err != nil {
		return err
	}
	return sessionError(ctx, s.run(ctx))
}

// Retryable reports whether to reconnect after err of a session or of a Dial.
// It is false if the server permanently refused this worker, or another process replaced it.
func Retryable(err error) bool {
	final := []muster.Code{muster.Unauthenticated, muster.Forbidden, muster.Conflict, muster.Invalid, muster.InvalidSpec, muster.NotFound, muster.TooLarge}
	return !slices.Contains(final, muster.CodeOf(err))
}

func handshake(ctx context.Context, conn WorkerConn, hello *Hello) (*ToWorker, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	err := conn.Send(ctx, &ToServer{Hello: hello})
	var f *ToWorker
	for err == nil {
		if f, err = conn.Recv(ctx); err != nil || f.Welcome != nil || f.Goodbye != nil {
			break
		}
		err = conn.Send(ctx, &ToServer{Pong: true}) // the frame was a Ping
	}
	if err != nil && ctx.Err() != nil {
		return nil, muster.Errorf(muster.Unavailable, "the server did not answer the hello within %s", helloTimeout)
	}
	return f, err
}

// goodbyeError returns the server's Goodbye as an error.
func goodbyeError(g *Goodbye) error {
	if g.Code == "" {
		return muster.Errorf(muster.Unavailable, "the server ended the session")
	}
	return muster.Errorf(g.Code, "%s", g.Message)
}

// serverError marks errors from the server's Goodbye or the worker's handler, whose code is kept.
type serverError struct{ error }

func (e serverError) Unwrap() error { return e.error }

// sessionError gives err the code that determines what the worker does: any error of the transport
// becomes Unavailable; a serverError and the error of ctx stay as they are.
func sessionError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if serverErr, ok := errors.AsType[serverError](err); ok {
		return serverErr.error
	}
	switch muster.CodeOf(err) {
	case muster.Unauthenticated, muster.Forbidden, muster.Unavailable:
		return err
	default:
		return muster.Errorf(muster.Unavailable, "the connection to the server broke: %w", err)
	}
}

type workerSession struct {
	conn      WorkerConn
	frames    FrameSource
	handle    func(*ToWorker) error
	heartbeat time.Duration

	goodbyeSent atomic.Bool
	missed      atomic.Int32 // heartbeats since the last frame; negative while one is handled
}

func (s *workerSession) run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var loops sync.WaitGroup
	loops.Go(func() { end(s.read(ctx)) })
	loops.Go(func() { end(s.watch(ctx)) })
	loops.Go(func() {
		err := s.write(ctx)
		if err == nil {
			s.goodbyeSent.Store(true)
			_ = backoff.Sleep(ctx, goodbyeTimeout) // the server reads the Goodbye and closes
			err = io.EOF
		}
		end(err)
	})
	loops.Wait()
	if s.goodbyeSent.Load() {
		return nil
	}
	return context.Cause(ctx)
}

func (s *workerSession) read(ctx context.Context) error {
	for {
		f, err := s.conn.Recv(ctx)
		if err != nil {
			return err
		}
		if f.Welcome != nil {
			return muster.Errorf(muster.Unavailable, "the server sent a second welcome")
		}
		s.missed.Store(-1 << 30)
		err = s.handle(f)
		s.missed.Store(0)
		if err != nil {
			return serverError{err}
		}
		if f.Goodbye != nil {
			return serverError{goodbyeError(f.Goodbye)}
		}
	}
}

// write sends frames until an error, or a Goodbye, for which it returns nil.
// The connection may fail with io.EOF, too, which is an error.
func (s *workerSession) write(ctx context.Context) error {
	for {
		f, err := s.frames.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for f != nil {
			rest := f.splitOverflow()
			err := withTimeout(ctx, sendTimeout, "the server did not take a frame within", func(ctx context.Context) error { return s.conn.Send(ctx, f) })
			if err != nil {
				return err
			}
			f = rest
		}
	}
}

// withTimeout calls fn with a context that ends after limit: then the error is Unavailable, and its message problem and limit.
func withTimeout(ctx context.Context, limit time.Duration, problem string, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, muster.Errorf(muster.Unavailable, "%s %s", problem, limit))
	defer cancel()
	err := fn(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watch pings after a heartbeat of silence. It counts ticks instead of time: after a
// suspend, frames that arrived meanwhile are read first.
func (s *workerSession) watch(ctx context.Context) error {
	tick := time.NewTicker(s.heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		switch n := s.missed.Add(1); {
		case n > maxMissedHeartbeats:
			return muster.Errorf(muster.Unavailable, "the server was silent for %s", maxMissedHeartbeats*s.heartbeat)
		case n > 0:
			s.frames.Post(&ToServer{Ping: true})
		}
	}
}
