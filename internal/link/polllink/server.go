package polllink

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
	"github.com/muster-dev/muster/internal/link"
)

const (
	pollTimeout = 20 * time.Second // how long a recv waits for frames
	idleTimeout = 60 * time.Second // without a request; then the session ends
	maxSessions = 4                // of one worker: one is in use, and others may be ending
)

// Server answers polls and owns their sessions.
type Server struct {
	identify link.Identify
	accept   link.AcceptFrames
	limit    int // sessions of one worker; the newest ones stay
	group    link.SessionGroup

	mu       sync.Mutex
	sessions map[key]*serverConn
}

// key identifies a session. It includes the worker, so that no worker can use another's session.
type key struct {
	worker muster.WorkerID
	id     string
}

// NewServer returns a Server that identifies requests by identify and passes each session to accept.
func NewServer(identify link.Identify, accept link.Accept) *Server {
	return NewFrameServer(identify, link.AcceptSessions(accept), maxSessions)
}

// NewFrameServer returns a Server that passes each connection to accept, and keeps the limit newest ones of a worker.
func NewFrameServer(identify link.Identify, accept link.AcceptFrames, limit int) *Server {
	return &Server{identify: identify, accept: accept, limit: limit, sessions: map[key]*serverConn{}}
}

// Run accepts sessions until ctx ends, then cancels them and waits for their end.
func (s *Server) Run(ctx context.Context) error { return s.group.Run(ctx) }

var sessionID = lazyregexp.New(`^[0-9a-zA-Z_-]{16,64}$`)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, err := s.identify(r)
	if err != nil {
		link.WriteError(w, err)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a poll must be a POST request", http.StatusMethodNotAllowed)
		return
	}
	k := key{peer.Worker, r.URL.Query().Get("session")}
	if !sessionID.Get().MatchString(k.id) {
		link.WriteError(w, muster.Errorf(muster.Invalid, "session: must be 16 to 64 letters, digits, - or _"))
		return
	}
	if err := s.serve(w, r, k, peer); errors.Is(err, errSessionEnded) {
		http.Error(w, err.Error(), http.StatusGone)
	} else if err != nil {
		link.WriteError(w, err)
	}
}

var errSessionEnded = errors.New("the session has ended: open a new one")

func (s *Server) serve(w http.ResponseWriter, r *http.Request, k key, peer link.Peer) error {
	op := r.URL.Query().Get("op")
	if op == "open" {
		return s.open(w, r, k, peer)
	}
	s.mu.Lock()
	c := s.sessions[k]
	s.mu.Unlock()
	if c == nil {
		return errSessionEnded
	}
	c.touch()
	defer c.touch()
	deadline := time.Now().Add(requestTimeout)
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(deadline)  // the server's own time limits may be
	_ = rc.SetWriteDeadline(deadline) // shorter than a poll
	switch op {
	case "send":
		return s.send(w, r, c)
	case "recv":
		return s.recv(w, r, c)
	case "close":
		s.remove(k, c)
		return nil
	}
	return muster.Errorf(muster.Invalid, "op: must be open, send, recv or close, not %q", op)
}

// open creates the session, unless an earlier request did.
func (s *Server) open(w http.ResponseWriter, r *http.Request, k key, peer link.Peer) error {
	s.mu.Lock()
	if c := s.sessions[k]; c != nil {
		s.mu.Unlock()
		c.seal.SetNonce(w.Header())
		return nil
	}
	c := &serverConn{changed: make(chan struct{}), seal: link.AcceptSeal(r, peer.Secret)}
	c.expire = time.AfterFunc(idleTimeout, func() { s.remove(k, c) })
	s.sessions[k] = c
	c.opened = time.Now()
	oldest := s.evictOldest(k.worker)
	s.mu.Unlock()
	if oldest != nil {
		oldest.clientClosed()
	}
	request := r.Clone(context.WithoutCancel(r.Context())) // it is used after the response
	err := s.group.Go(r.Context(), func(ctx context.Context) {
		s.accept(ctx, request, c.seal.Server(c), peer)
	})
	if err != nil {
		s.remove(k, c)
		return err
	}
	c.seal.SetNonce(w.Header())
	return nil
}

// evictOldest removes and returns the worker's oldest session if it has too many, or nil. The caller holds mu.
func (s *Server) evictOldest(worker muster.WorkerID) *serverConn {
	var first key
	n := 0
	for k, c := range s.sessions {
		if k.worker != worker {
			continue
		}
		if n++; n == 1 || c.opened.Before(s.sessions[first].opened) {
			first = k
		}
	}
	if n <= s.limit {
		return nil
	}
	c := s.sessions[first]
	delete(s.sessions, first)
	return c
}

func (s *Server) remove(k key, c *serverConn) {
	s.mu.Lock()
	if s.sessions[k] == c {
		delete(s.sessions, k)
	}
	s.mu.Unlock()
	c.clientClosed()
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, c *serverConn) error {
	seq, err := queryUint(r, "seq")
	if err != nil {
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, link.MaxSealed))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return muster.Errorf(muster.TooLarge, "a frame is longer than %d bytes", link.MaxFrame)
	}
	if err != nil {
		return muster.Errorf(muster.Unavailable, "the frame was cut off: %w", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), pollTimeout)
	defer cancel()
	return c.deliver(ctx, seq, body)
}

func (s *Server) recv(w http.ResponseWriter, r *http.Request, c *serverConn) error {
	after, err := queryUint(r, "after")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), pollTimeout)
	defer cancel()
	frames, err := c.collect(ctx, after)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for _, b := range frames {
		if _, err := w.Write(b); err != nil {
			return nil // the worker polls again
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return nil // the worker polls again
		}
	}
	return nil
}

func queryUint(r *http.Request, name string) (uint64, error) {
	n, err := strconv.ParseUint(r.URL.Query().Get(name), 10, 63)
	if err != nil {
		return 0, muster.Errorf(muster.Invalid, "%s: must be a whole number from 0", name)
	}
	return n, nil
}
