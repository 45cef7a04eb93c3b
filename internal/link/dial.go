package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// Dialer opens sessions to one server. An Unauthenticated or Forbidden error
// means that the server refuses this worker's key: retrying does not help. Retry
// after other errors, with a backoff.
type Dialer interface {
	Dial(ctx context.Context) (WorkerConn, error)
}

// ExecDialer opens the connection of an Exec. Its errors are those of a Dialer.
type ExecDialer interface {
	DialExec(ctx context.Context, id string) (FrameConn, error)
}

// fallbackFor is how long a Fallback prefers its second dialer.
const fallbackFor = 10 * time.Minute

// Fallback dials by First, and by Second if First fails although the
// server's machine answers: a proxy may block WebSocket. If Second works, it is tried first
// for the next ten minutes. A refusal by the server is final.
type Fallback struct {
	First, Second interface {
		Dialer
		ExecDialer
	}

	mu                sync.Mutex
	preferSecondUntil time.Time
}

// Dial implements Dialer. If both dialers fail, the error has both reasons.
func (f *Fallback) Dial(ctx context.Context) (WorkerConn, error) {
	return dialFallback(ctx, f, f.First.Dial, f.Second.Dial)
}

// DialExec implements ExecDialer, by the dialer that works for sessions.
func (f *Fallback) DialExec(ctx context.Context, id string) (FrameConn, error) {
	dial := func(d ExecDialer) func(context.Context) (FrameConn, error) {
		return func(ctx context.Context) (FrameConn, error) { return d.DialExec(ctx, id) }
	}
	return dialFallback(ctx, f, dial(f.First), dial(f.Second))
}

func dialFallback[C any](ctx context.Context, f *Fallback, primary, secondary func(context.Context) (C, error)) (none C, err error) {
	f.mu.Lock()
	swapped := time.Now().Before(f.preferSecondUntil)
	f.mu.Unlock()
	if swapped {
		primary, secondary = secondary, primary
	}
	conn, err := primary(ctx)
	if err == nil || !transportBlocked(ctx, err) {
		return conn, err
	}
	conn, err2 := secondary(ctx)
	if err2 != nil {
		if !transportBlocked(ctx, err2) {
			return none, err2
		}
		return none, muster.Errorf(muster.Unavailable, "%w; then: %w", err, err2)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.preferSecondUntil = (time.Time{}); !swapped {
		f.preferSecondUntil = time.Now().Add(fallbackFor)
	}
	return conn, nil
}

// IsRefusal reports whether a server answered a request with a token that it refuses it, or something in between that writes like one.
func IsRefusal(err error) bool {
	code := muster.CodeOf(err)
	return code == muster.Unauthenticated || code == muster.Forbidden
}

// transportBlocked reports whether err may come from a proxy that blocks only this
// transport: not if no machine answered, nor if the server refused, nor if there is no credential.
func transportBlocked(ctx context.Context, err error) bool {
	if IsRefusal(err) || ctx.Err() != nil {
		return false
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !errors.Is(err, errBusy) && !errors.As(err, new(credentialError)) && (!ok || op.Op != "dial")
}

// credentialError is in the chain of errors of a Dialer that has no credential.
type credentialError struct{ error }

func (e credentialError) Unwrap() error { return e.error }

// CredentialError marks an error of Credentials.Current: another transport would not have a credential either.
func CredentialError(err error) error { return credentialError{err} }

// DialError converts the error of a transport's Dial to server: a refusal of the key stays as it is,
// any other error becomes Unavailable.
func DialError(server string, err error) error {
	if IsRefusal(err) {
		return err
	}
	return muster.Errorf(muster.Unavailable, "cannot connect to %s: %w", server, err)
}
