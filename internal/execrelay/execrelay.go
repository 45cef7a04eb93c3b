// Package execrelay connects clients with workers, for commands in running tasks and copies of their files: see package execwire. A client's
// request waits until the worker has opened its connection; then frames are relayed in both directions until either side ends. Nothing of it
// is stored, and it neither passes through the engine nor through a worker's session, except for the request to connect.
//
// Each command is two lines of the server's log, for audits: who executes what where, and how it ended.
package execrelay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
)

// MaxPerWorker is the maximum of commands of one worker at a time.
const MaxPerWorker = 16

// writeTimeout is how long one side may take to accept a frame.
const writeTimeout = 30 * time.Second

// Opener asks a worker to open a connection.
type Opener interface {
	OpenExec(w muster.WorkerID, x link.Exec) error
}

// Relay relays commands. Its methods may be called concurrently.
type Relay struct {
	opener Opener
	log    *slog.Logger
	group  link.SessionGroup

	mu      sync.Mutex
	pending map[string]*pending     // by the id of the connection
	running map[muster.WorkerID]int // commands of each worker
}

// pending is a client that waits for its worker.
type pending struct {
	worker muster.WorkerID
	conn   chan link.FrameConn // has room for one
	done   chan struct{}       // closed when the worker's connection is not used any more
}

// New returns a Relay that refuses clients until Run.
func New(o Opener, log *slog.Logger) *Relay {
	return &Relay{opener: o, log: log, pending: map[string]*pending{}, running: map[muster.WorkerID]int{}}
}

// Run relays until ctx ends, then ends all commands and waits for their end.
func (r *Relay) Run(ctx context.Context) error { return r.group.Run(ctx) }

// Serve serves the request of a client, a WebSocket, until the end of its command. It returns an error only if it has not replied. The command
// ends with the context of q too.
func (r *Relay) Serve(w http.ResponseWriter, q *http.Request, t execwire.Target) error {
	release, err := r.acquire(&t)
	if err != nil {
		return err
	}
	defer release()
	return r.group.Do(q.Context(), func(ctx context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(q.Context(), func() { cancel(errRequestEnded) })() //nolint:contextcheck // the request ends it, too
		conn, err := wslink.Upgrade(w, q, execwire.Subprotocol, execwire.MaxFrame)
		if err != nil {
			return // it has replied
		}
		defer func() { _ = conn.Close() }()
		r.relay(ctx, conn, &t)
	})
}

var (
	errRequestEnded = errors.New("the request ended")
	// errEnding is the error for a client whose request or whose server ends.
	errEnding = muster.Errorf(muster.Unavailable, "the server shuts down, or the key was revoked or has expired: try again later")
)

// sendError sends an error as the last frame.
func sendError(ctx context.Context, conn link.FrameConn, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	code := muster.CodeOf(err)
	if b, err := json.Marshal(&execwire.Frame{Error: &execwire.Error{Code: code, Message: err.Error()}}); err == nil {
		_ = conn.Write(ctx, b, true) // the other side may be gone
	}
}

// acquire counts a command of a worker.
func (r *Relay) acquire(t *execwire.Target) (release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[t.Worker] >= MaxPerWorker {
		return nil, muster.Errorf(muster.Unavailable, "worker %s has the maximum of %d commands in tasks: end one of them, or try again later", t.WorkerName, MaxPerWorker)
	}
	r.running[t.Worker]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.running[t.Worker]--; r.running[t.Worker] == 0 {
			delete(r.running, t.Worker)
		}
	}, nil
}

// relay runs the command of a client.
func (r *Relay) relay(ctx context.Context, client link.FrameConn, t *execwire.Target) {
	start, err := readStart(ctx, client)
	if err != nil {
		sendError(ctx, client, err)
		return
	}
	start.Requester = t.KeyName
	log := r.log.With(slog.String("key", t.KeyName), slog.String("key_id", t.KeyID), slog.String("address", t.Address),
		slog.String("attempt", t.Attempt.String()), slog.String("worker", t.WorkerName), describe(start))
	log.Info("exec started")
	x := &exchange{}
	began := time.Now()
	err = r.exchange(ctx, client, t, start, x)
	result := slog.String("result", "the client left")
	switch {
	case err != nil:
		result = slog.String("result", err.Error())
	case x.last != "":
		result = slog.String("result", x.last)
	}
	log.Info("exec ended", result, slog.Duration("duration", time.Since(began)), slog.Int64("bytes_in", x.in.Load()), slog.Int64("bytes_out", x.out.Load()))
}

// exchange is what passes between a client and a worker.
type exchange struct {
	in, out atomic.Int64 // bytes of frames to and from the worker
	last    string       // the worker's last frame, "" if there was none
}

// exchange relays until either side ends. Its error was sent to the client.
func (r *Relay) exchange(ctx context.Context, client link.FrameConn, t *execwire.Target, start *execwire.Start, x *exchange) error {
	worker, done, err := r.open(ctx, t)
	if err == nil {
		defer done()
		var first []byte
		if first, err = json.Marshal(&execwire.Frame{Start: start}); err == nil {
			err = write(ctx, worker, first, false)
		}
		if err != nil {
			err = lost(t, err)
		}
	}
	if err != nil {
		sendError(ctx, client, err)
		return err
	}
	readCtx, stopReading := context.WithCancel(context.WithoutCancel(ctx)) // of the client: the end of a read closes its connection
	defer stopReading()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clientLeft := make(chan struct{})
	var fromClient sync.WaitGroup
	defer fromClient.Wait()
	fromClient.Go(func() {
		defer close(clientLeft)
		defer cancel(errClientLeft)
		for relaying := true; ; {
			b, err := read(readCtx, client)
			if err != nil {
				return
			}
			x.in.Add(int64(len(b)))
			relaying = relaying && write(ctx, worker, bytes.Clone(b), false) == nil // else the command has ended
		}
	})
	err = toClient(ctx, client, worker, t, x)
	if errors.Is(context.Cause(ctx), errClientLeft) {
		return nil
	}
	if err != nil {
		sendError(ctx, client, err)
	}
	select {
	case <-clientLeft: // it has read the last frame, which unread frames of it could destroy
	case <-time.After(lastFrameTimeout):
		stopReading()
	}
	return err
}

// lastFrameTimeout is how long a client may take to read the last frame and to close its connection.
const lastFrameTimeout = 5 * time.Second

// toClient relays the worker's frames up to its last one.
func toClient(ctx context.Context, client, worker link.FrameConn, t *execwire.Target, x *exchange) error {
	for {
		b, err := read(ctx, worker)
		switch {
		case ctx.Err() != nil:
			return errEnding
		case err != nil:
			return lost(t, err)
		}
		x.out.Add(int64(len(b)))
		last := isLast(b)
		if last {
			x.last = string(b[:min(len(b), maxLogged)])
		}
		if err := write(ctx, client, bytes.Clone(b), last); err != nil || last {
			return err
		}
	}
}

var errClientLeft = errors.New("the client left")

// lost is the error of a worker's connection that ended without a last frame.
func lost(t *execwire.Target, err error) error {
	return muster.Errorf(muster.Unavailable, "the connection to worker %s was lost: %w", t.WorkerName, err)
}

// maxLast is more than the bytes of a last frame.
const maxLast = 16 << 10

// isLast reports whether a frame of a worker is its last one. Data is in base64, which has no quotes.
func isLast(b []byte) bool {
	if len(b) > maxLast || !bytes.Contains(b, []byte(`"exit"`)) && !bytes.Contains(b, []byte(`"error"`)) {
		return false
	}
	var f execwire.Frame
	return json.Unmarshal(b, &f) == nil && (f.Exit != nil || f.Error != nil)
}

func read(ctx context.Context, c link.FrameConn) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, execwire.Silence)
	defer cancel()
	return c.Read(ctx)
}

func write(ctx context.Context, c link.FrameConn, b []byte, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return c.Write(ctx, b, last)
}

func readStart(ctx context.Context, client link.FrameConn) (*execwire.Start, error) {
	ctx, cancel := context.WithTimeout(ctx, execwire.StartTimeout)
	defer cancel()
	b, err := client.Read(ctx)
	if err != nil {
		return nil, err
	}
	var f execwire.Frame
	if err := json.Unmarshal(b, &f); err != nil || f.Start == nil {
		return nil, muster.Errorf(muster.Invalid, "the first frame must be a start")
	}
	return f.Start, f.Start.Check()
}

// open asks the worker to connect and returns its connection. The caller calls done when it does not use it any more.
func (r *Relay) open(ctx context.Context, t *execwire.Target) (conn link.FrameConn, done func(), err error) {
	id := rand.Text()
	p := &pending{worker: t.Worker, conn: make(chan link.FrameConn, 1), done: make(chan struct{})}
	r.mu.Lock()
	r.pending[id] = p
	r.mu.Unlock()
	forget := func() {
		r.mu.Lock()
		delete(r.pending, id)
		r.mu.Unlock()
	}
	defer forget()
	if err := r.opener.OpenExec(t.Worker, link.Exec{ID: id, Attempt: t.Attempt}); err != nil {
		close(p.done)
		return nil, nil, err
	}
	timer := time.NewTimer(execwire.OpenTimeout)
	defer timer.Stop()
	select {
	case conn := <-p.conn:
		return conn, func() { close(p.done) }, nil
	case <-timer.C:
		err = muster.Errorf(muster.Unavailable, "worker %s did not open a connection within %s: it may be busy or its network slow; try again",
			t.WorkerName, execwire.OpenTimeout)
	case <-ctx.Done():
		err = errEnding
	}
	forget()
	close(p.done) // also for a connection that has just arrived
	return nil, nil, err
}

// Accept passes the connection of a worker to the client that waits for it, and returns when it is not used any more. An unknown id, also one of
// another worker, ends the connection. It is a link.AcceptFrames.
func (r *Relay) Accept(ctx context.Context, q *http.Request, conn link.FrameConn, peer link.Peer) {
	defer func() { _ = conn.Close() }()
	id := q.URL.Query().Get("id")
	r.mu.Lock()
	p := r.pending[id]
	if p != nil && p.worker == peer.Worker {
		delete(r.pending, id) // an id works once
		p.conn <- conn
	}
	r.mu.Unlock()
	if p == nil || p.worker != peer.Worker {
		sendError(ctx, conn, muster.Errorf(muster.NotFound, "no client waits for this connection"))
		return
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	}
}

// maxLogged is the maximum length of a command in the log, in bytes.
const maxLogged = 512

// describe returns what a client does, for the log. Values of the environment are secret.
func describe(s *execwire.Start) slog.Attr {
	switch {
	case s.Get != nil:
		return slog.String("get", s.Get.Path)
	case s.Put != nil:
		return slog.String("put", s.Put.Path)
	}
	text := strings.Join(s.Command.Argv, " ")
	return slog.String("command", cmp.Or(text[:min(len(text), maxLogged)], "(empty)"))
}
