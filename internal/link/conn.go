package link

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/muster-dev/muster"
)

// The HTTP paths of the link.
const (
	PathSocket = "/link/v1"      // WebSocket, one text message a frame
	PathPoll   = "/link/v1/poll" // long-poll, for where WebSocket is blocked
	PathJoin   = "/link/v1/join" // POST: registers a worker and its public key with a join token

	PathKey     = "/link/v1/key"     // POST: registers a public key in place of the bearer key of earlier versions
	PathSession = "/link/v1/session" // POST: a handshake.SessionRequest for the token of the worker's requests

	PathExec     = "/link/v1/exec"      // WebSocket of an Exec, with ?id=
	PathExecPoll = "/link/v1/exec/poll" // long-poll of an Exec, with &id=
)

// WorkerConn is the worker's side of a session. Send and Recv may be called at
// the same time, each by one goroutine. Both set and check frame numbers. After
// an error the connection is unusable. Package linktest has the contract as tests, for every transport.
type WorkerConn interface {
	Send(ctx context.Context, f *ToServer) error
	Recv(ctx context.Context) (*ToWorker, error)
	Close() error // safe to call at any time and more than once
}

// ServerConn is the server's side of a session, like WorkerConn.
type ServerConn interface {
	Send(ctx context.Context, f *ToWorker) error
	Recv(ctx context.Context) (*ToServer, error)
	Close() error
	// RemoteIP returns the IP address that the session was opened from, or "". Behind a
	// proxy it is the proxy's address.
	RemoteIP() string
}

// FrameConn carries the encoded frames of one side of a session: what a transport implements. Write and
// Read may be called at the same time, each by one goroutine.
type FrameConn interface {
	// Write sends a frame. last is set for a Goodbye.
	Write(ctx context.Context, frame []byte, last bool) error
	// Read returns the next frame, which is valid until the next call.
	Read(ctx context.Context) ([]byte, error)
	Close() error // safe to call at any time and more than once
}

// NewWorkerConn returns the worker's side of a session over conn.
func NewWorkerConn(conn FrameConn) WorkerConn {
	return &codecConn[*ToServer, *ToWorker]{conn, new(WorkerCodec)}
}

// NewServerConn returns the server's side of a session over conn, which was opened from remoteIP.
func NewServerConn(conn FrameConn, remoteIP string) ServerConn {
	return &serverConn{codecConn[*ToWorker, *ToServer]{conn, new(ServerCodec)}, remoteIP}
}

// codecConn is one side of a session.
type codecConn[Out, In frame] struct {
	FrameConn

	codec interface {
		Encode(f Out) ([]byte, error)
		Decode(b []byte) (In, error)
	}
}

func (c *codecConn[Out, In]) Send(ctx context.Context, f Out) error {
	b, err := c.codec.Encode(f)
	if err != nil {
		return err
	}
	return c.Write(ctx, b, f.last())
}

func (c *codecConn[Out, In]) Recv(ctx context.Context) (f In, err error) {
	b, err := c.Read(ctx)
	if err != nil {
		return f, err
	}
	return c.codec.Decode(b)
}

type serverConn struct {
	codecConn[*ToWorker, *ToServer]

	remoteIP string
}

// RemoteIP implements ServerConn.
func (c *serverConn) RemoteIP() string { return c.remoteIP }

// RemoteIPOf returns the IP address that an HTTP request comes from, without zone, for
// ServerConn.RemoteIP. It ignores headers.
func RemoteIPOf(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return addr.Addr().Unmap().WithZone("").String()
}

// JoinRequest is the body of a POST to PathJoin, authorized by a join token (or an
// admin token).
type JoinRequest struct {
	Name      string          `json:"name"`
	Worker    muster.WorkerID `json:"worker,omitempty"` // the id that it asks for; "" for one that the server makes
	PublicKey []byte          `json:"public_key"`       // Ed25519
	At        muster.Time     `json:"at"`               // by the worker's clock
	Proof     []byte          `json:"proof"`            // of handshake.ProveJoin
	// Replaces is the worker that this one was, "" for none. If that was revoked or quarantined, only a token for it lets the worker join.
	Replaces muster.WorkerID `json:"replaces,omitempty"`
}

// KeyRequest is the body of a POST to PathKey, authorized by the worker's bearer key.
type KeyRequest struct {
	PublicKey []byte      `json:"public_key"` // Ed25519
	At        muster.Time `json:"at"`         // by the worker's clock
	Proof     []byte      `json:"proof"`      // of handshake.ProveMove
}

// Joined is the response to a JoinRequest and a KeyRequest, with status 200. A repeated request has the same response.
type Joined struct {
	Worker muster.WorkerID `json:"worker"`
	Server string          `json:"server"` // id of the server, which the worker pins: see handshake.ServerID
}

// SessionHandler opens server-side sessions.
type SessionHandler interface {
	// Open starts the session of the worker that sent h. It passes messages for the
	// worker to send, in order, until the returned session is closed;
	// send does not block. An open session of the same worker ends: see the package documentation.
	Open(ctx context.Context, h *Hello, send func(*ToWorker)) (Session, *Welcome, error)
}

// Session is one open session of a SessionHandler.
type Session interface {
	// Handle processes a frame after the first. It blocks only to slow down a worker that
	// sends faster than the server can commit. An error ends the session.
	Handle(ctx context.Context, f *ToServer) error
	// Close ends the session; orderly is true after a Goodbye of the worker.
	Close(orderly bool)
}
