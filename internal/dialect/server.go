package dialect

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
)

// Server is the way to the Muster server of this process.
type Server struct {
	URL  string       // http://muster.local
	HTTP *http.Client // reaches only this server
	Join string       // a join token
	Key  string       // a submitter key for the gateway's project

	pipe *Pipe
	seen *seenKeys
}

// localURL is the server's address inside the process. HTTP needs one; nobody resolves it.
const localURL = "http://muster.local"

// Connect returns the way to the server that accepts the connections of pipe.
func Connect(pipe *Pipe, join, key string) Server {
	s := Server{URL: localURL, Join: join, Key: key, pipe: pipe, seen: &seenKeys{found: map[string]seenKey{}}}
	s.HTTP = s.From(netip.Addr{})
	return s
}

// From returns a client whose connections come from addr for the server, and from loopback if that is not valid. It has no
// timeout for a whole request.
func (s Server) From(addr netip.Addr) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return s.pipe.Dial(ctx, addr) },
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   4,
	}}
}

// Client returns a client of the public API with this token; "" means Key.
func (s Server) Client(token string) (*client.Client, error) {
	if token == "" {
		token = s.Key
	}
	return client.New(s.URL, token, client.Options{HTTP: s.HTTP, UserAgent: "muster-gateway"})
}

const (
	authorizedFor = 5 * time.Second // how long an answer counts
	seenMost      = 1000            // answers that are remembered
)

// Authorize says whose a Muster key is. Its errors are Unauthenticated for a key that is not valid, and Unavailable. An answer
// counts for a few seconds.
func (s Server) Authorize(ctx context.Context, token string) (client.Whoami, error) {
	if token == "" {
		return client.Whoami{}, muster.Errorf(muster.Unauthenticated, "a Muster key is required here")
	}
	if len(token) > auth.MaxToken { // it is not remembered either
		return client.Whoami{}, muster.Errorf(muster.Unauthenticated, "the API key is not known here")
	}
	if who, err, ok := s.seen.get(token); ok {
		return who, err
	}
	c, err := s.Client(token)
	if err != nil {
		return client.Whoami{}, err
	}
	who, err := c.Whoami(ctx)
	if err == nil || muster.CodeOf(err) == muster.Unauthenticated {
		s.seen.put(token, who, err)
	}
	return who, err
}

// seenKeys are answers to Authorize.
type seenKeys struct {
	mu    sync.Mutex
	found map[string]seenKey
}

type seenKey struct {
	who   client.Whoami
	err   error
	until time.Time
}

func (k *seenKeys) get(token string) (client.Whoami, error, bool) { //nolint:revive // the error is a part of the answer
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.found[token]
	if !ok || time.Now().After(v.until) {
		return client.Whoami{}, nil, false
	}
	return v.who, v.err, true
}

func (k *seenKeys) put(token string, who client.Whoami, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.found) >= seenMost {
		clear(k.found)
	}
	k.found[token] = seenKey{who: who, err: err, until: time.Now().Add(authorizedFor)}
}

// Pipe is a listener whose connections are dialed inside the process. They use no descriptors. Its methods may be called at the same time.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipe returns an open Pipe.
func NewPipe() *Pipe { return &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Dial connects; the server sees the connection as from that address, or from loopback if it is not valid.
func (p *Pipe) Dial(ctx context.Context, from netip.Addr) (net.Conn, error) {
	if !from.IsValid() {
		from = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	ours, theirs := net.Pipe()
	select {
	case p.conns <- pipeConn{Conn: theirs, from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 1))}:
		return ours, nil
	case <-p.closed:
		return nil, errors.Join(net.ErrClosed, ours.Close(), theirs.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), ours.Close(), theirs.Close())
	}
}

// Accept implements net.Listener.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections stay open.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *Pipe) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "muster.local" }

// pipeConn is the server's end of a connection.
type pipeConn struct {
	net.Conn

	from net.Addr
}

// RemoteAddr returns the address that the connection was dialed for.
func (c pipeConn) RemoteAddr() net.Addr { return c.from }
