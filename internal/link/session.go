package link

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
)

// FrameSource is where a session takes what a worker has to say, whenever the line is
// free: everything that came up meanwhile, so that batching needs no timer.
type FrameSource interface {
	// Next waits for words and returns the next frame, of any size; io.EOF after a Goodbye.
	Next(ctx context.Context) (*ToServer, error)
	// Post adds a word of the session's own, which is a Ping. It never blocks.
	Post(w *ToServer)
}

// RunSession runs the worker's side of one session on conn: it says hello,
// passes every frame from the server to handle, in order, beginning with the one that has the Welcome,
// and sends what it takes from words. It closes conn and returns when all of it has
// stopped:
//
//   - nil after a Goodbye that was taken from words,
//   - ctx.Err() when ctx ends: at once, so that the server keeps the leases running,
//   - an error with the code of the server's Goodbye: see Retryable,
//   - an Unavailable error when the connection broke, or the server was silent for three
//     heartbeats although it was asked for a sign of life,
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

// Retryable reports whether a session that ended with err, or that could not be
// dialed for err, is worth another try. It is not where the server refused this worker for good, or where
// another process took the worker's place.
func Retryable(err error) bool {
	switch muster.CodeOf(err) {
	case muster.Unauthenticated, muster.Forbidden, muster.Conflict, muster.Invalid, muster.InvalidSpec, muster.NotFound, muster.TooLarge:
		return false
	case muster.Unavailable, muster.StorageFull, muster.Undetermined, muster.Internal:
	}
	return true
}

func handshake(ctx context.Context, conn WorkerConn, hello *Hello) (*ToWorker, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := conn.Send(ctx, &ToServer{Hello: hello}); err != nil {
		return nil, err
	}
	f, err := conn.Recv(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, muster.Errorf(muster.Unavailable, "the server did not answer the hello within %s", helloTimeout)
	}
	return f, err
}

// goodbyeError is the server's Goodbye as an error.
func goodbyeError(g *Goodbye) error {
	if g.Code == "" {
		return muster.Errorf(muster.Unavailable, "the server ended the session")
	}
	return muster.Errorf(g.Code, "%s", g.Message)
}

// serverError marks errors that carry the server's own word.
type serverError struct{ error }

func (e serverError) Unwrap() error { return e.error }

// sessionError gives err the code that says what the worker should do about it: what goes wrong on the way
// is Unavailable, whatever the transport calls it; only the server's own word and ctx stand as they are.
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

	goodbyeSent atomic.Bool  // the worker's own Goodbye is sent
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
			err = linger(ctx)
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

// write sends words until a Goodbye, which is nil, or an error. The end of words is
// told from that of the connection, which may say io.EOF, too.
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
			if err := s.send(ctx, f); err != nil {
				return err
			}
			f = rest
		}
	}
}

func (s *workerSession) send(ctx context.Context, f *ToServer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTimeout,
		muster.Errorf(muster.Unavailable, "the server did not take a frame within %s", sendTimeout))
	defer cancel()
	err := s.conn.Send(ctx, f)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watch asks for a sign of life after a heartbeat of silence. It counts ticks instead of time: after a
// suspend, frames that came in meanwhile are read first.
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

// linger gives the server the time to read the Goodbye and to close.
func linger(ctx context.Context) error {
	t := time.NewTimer(goodbyeTimeout)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return io.EOF
}
