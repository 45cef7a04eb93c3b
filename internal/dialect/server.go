package dialect

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/lru"
	"github.com/muster-dev/muster/internal/ratelimit"
)

// Server connects to the Muster server of this process.
type Server struct {
	URL          string       // http://muster.local
	HTTP         *http.Client // reaches only this server
	JoinToken    string       // a join token
	SubmitterKey string       // a submitter key for the gateway's project

	pipe      *Pipe
	limits    *ratelimit.Limiter
	authCache *lru.Cache[string, authResult] // of Authorize, by token
}

// LocalURL is the server's address inside the process. It is never resolved.
// LocalURL is the server for what runs in its process. No other process can use it.
const LocalURL = "http://muster.local"

// Connect returns a Server for the one that accepts the connections of pipe. Limits apply to keys that are not valid; they may be nil.
func Connect(pipe *Pipe, joinToken, submitterKey string, limits *ratelimit.Limiter) Server {
	s := Server{URL: LocalURL, JoinToken: joinToken, SubmitterKey: submitterKey, pipe: pipe, limits: limits, authCache: lru.NewCounted[string, authResult](maxAuthCache)}
	s.HTTP = s.HTTPFrom(netip.Addr{})
	return s
}

// HTTPFrom returns a client whose connections have addr as their remote address at the server, or loopback if addr is not valid. It
// has no timeout for a whole request.
func (s Server) HTTPFrom(addr netip.Addr) *http.Client {
	return &http.Client{Transport: originTransport{&http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return s.pipe.Dial(ctx, addr) },
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   4,
	}}}
}

// Client returns a client of the public API with this token; "" means SubmitterKey.
func (s Server) Client(token string) (*client.Client, error) {
	return client.New(s.URL, cmp.Or(token, s.SubmitterKey), client.Options{HTTP: s.HTTP, UserAgent: "muster-gateway"})
}

const (
	authCacheTTL = 5 * time.Second
	maxAuthCache = 1000 // entries
)

// Authorize returns the owner of a Muster key. Its errors are Unauthenticated for a key that is not valid, Forbidden for a link to a job,
// since gateways do not limit requests to one job, and Unavailable. It caches answers for 5 s. Like the server's own port, it delays the
// answer to a key that is not valid, and refuses too many from the address of the context (withSource) with a backoff.DelayError.
func (s Server) Authorize(ctx context.Context, token string) (client.Whoami, error) {
	from := sourceOf(ctx)
	if token == "" {
		if err := s.limits.AllowAddress(ctx, from); err != nil {
			return client.Whoami{}, err
		}
		return client.Whoami{}, muster.Errorf(muster.Unauthenticated, "a Muster API key is required")
	}
	if len(token) > auth.MaxToken { // not cached either
		return client.Whoami{}, muster.Errorf(muster.Unauthenticated, "unknown API key")
	}
	known, cached := s.authCache.Get(token)
	if cached && time.Now().Before(known.expires) {
		if known.err != nil {
			return known.whoami, cmp.Or(s.limits.Failed(ctx, from), known.err)
		}
		return known.whoami, nil
	}
	if valid := cached && known.err == nil; !valid && auth.Prefix(token) == "" {
		if err := s.limits.Limited(ctx, from); err != nil {
			return client.Whoami{}, err
		}
	}
	c, err := s.Client(token)
	if err != nil {
		return client.Whoami{}, err
	}
	whoami, err := c.Whoami(ctx)
	if err == nil && whoami.Job != 0 {
		err = muster.Errorf(muster.Forbidden, "the key %q only reads job %d: use another key", whoami.Name, whoami.Job)
	}
	if code := muster.CodeOf(err); err == nil || code == muster.Unauthenticated || code == muster.Forbidden {
		s.authCache.Put(token, authResult{whoami: whoami, err: err, expires: time.Now().Add(authCacheTTL)})
	}
	if code := muster.CodeOf(err); err != nil && (code == muster.Unauthenticated || code == muster.Forbidden) {
		err = cmp.Or(s.limits.Failed(ctx, from), err)
	}
	return whoami, err
}

// Recheck returns a context for Authorize of a key that was valid before: if it no longer is, that is not a guess, which would be delayed and limited.
func Recheck(ctx context.Context) context.Context { return ratelimit.Exempt(ctx) }

type sourceKey struct{}

// withSource returns a context for requests from an address.
func withSource(ctx context.Context, from netip.Addr) context.Context {
	return context.WithValue(ctx, sourceKey{}, from)
}

func sourceOf(ctx context.Context) netip.Addr {
	from, _ := ctx.Value(sourceKey{}).(netip.Addr)
	return from
}

// authResult is a result of Authorize.
type authResult struct {
	whoami  client.Whoami
	err     error
	expires time.Time
}

// Pipe is a listener whose connections are dialed inside the process. They use no descriptors. Its methods may be called concurrently.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewPipe returns an open Pipe.
func NewPipe() *Pipe { return &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Dial connects. The remote address of the server's connection is from, or loopback if from is not valid.
func (p *Pipe) Dial(ctx context.Context, from netip.Addr) (net.Conn, error) {
	if !from.IsValid() {
		from = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	local, remote := net.Pipe()
	select {
	case p.conns <- pipeConn{Conn: remote, remote: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 1))}:
		return local, nil
	case <-p.closed:
		return nil, errors.Join(net.ErrClosed, local.Close(), remote.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), local.Close(), remote.Close())
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

	remote net.Addr
}

// RemoteAddr returns the address that the connection was dialed for.
func (c pipeConn) RemoteAddr() net.Addr { return c.remote }

// NewUUID returns a random UUID of version 4.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// RemoteAddr returns the address from which a request comes, invalid if it is not known.
func RemoteAddr(r *http.Request) netip.Addr { return connlimit.RemoteAddr(r.RemoteAddr) }

const (
	secretSize    = 32
	minSecretSize = 16
)

// Secret returns the secret bytes in the file at path. It creates the file if it is missing or shorter than 16 bytes.
func Secret(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) >= minSecretSize {
		return b, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Internal, "cannot read the gateway's secret: %w", err)
	}
	b = make([]byte, secretSize)
	_, _ = rand.Read(b) // never fails
	if err := atomicfile.Write(path, b, 0o600); err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot write the gateway's secret: %w", err)
	}
	return b, nil
}
