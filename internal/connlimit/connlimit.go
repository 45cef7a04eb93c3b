// Package connlimit limits the connections of an HTTP server, so that a flood does not exclude other clients.
//
// The limits are on all connections and on those from one address. At a limit, a
// new connection replaces another one: first those without a complete request in their first second,
// then idle ones, then new ones, then those that serve a request without a key; within each rank those of the address with the
// most connections, and of these the longest unchanged. A connection with an authenticated request
// in progress, such as a worker's session, is never replaced; if all are such, the new one is closed.
//
// An address that opens connections for nothing but requests without a valid key is refused new ones when there were many of these in a
// second, before anything is read from them.
package connlimit

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxConns is the most connections of a server, for its memory.
	maxConns = 32_768
	// minConns is the least number of connections that a server needs.
	minConns = 32
	// unreadTimeout is the time in which the part of a body that its handler left must arrive.
	unreadTimeout = 10 * time.Second
	// trustedFor is how long an address that sent a valid key may open any number of connections.
	trustedFor = time.Minute
)

// ConnsFor returns how many connections a process with a limit of descriptors may have. The other descriptors are for
// files: a request may need one.
func ConnsFor(descriptors uint64) int {
	return int(min(maxConns, max(minConns, descriptors/3*2)))
}

// Limiter limits the connections of one server.
type Limiter struct {
	// FirstRequestGrace is how long a new connection may take to send a request before it counts as silent: 1s by default. It
	// must not change while the limiter is in use.
	FirstRequestGrace time.Duration
	// MaxKeyless is how many requests without a valid key, and connections without a request, an address may send in a second before its
	// new connections are refused for the rest of that second; 0 for any number. An address that sent a valid key in the last minute is not refused. It
	// must not change while the limiter is in use.
	MaxKeyless int

	total, perAddress int // limits

	mu        sync.Mutex
	conns     map[*conn]struct{}
	addresses map[netip.Addr]*peer
	removedAt int64 // the second in which unused peers were removed
}

// peer is an address. The limiter's lock guards it.
type peer struct {
	conns         int
	second        int64     // in which keyless were counted
	keyless       int       // requests without a valid key, and connections without a request
	authenticated int       // requests with a valid key in progress
	keyUsed       time.Time // the end of the last one
}

// addKeyless counts a request without a valid key, or a connection without a request.
func (p *peer) addKeyless(now time.Time) {
	if s := now.Unix(); s != p.second {
		p.second, p.keyless = s, 0
	}
	p.keyless++
}

// floods reports whether new connections of p are refused.
func (p *peer) floods(limit int, now time.Time) bool {
	return limit > 0 && p.keyless >= limit && p.second == now.Unix() && !p.trusted(now)
}

func (p *peer) trusted(now time.Time) bool {
	return p.authenticated > 0 || now.Sub(p.keyUsed) < trustedFor
}

// New returns a Limiter of total connections; three quarters of them may be from one address.
func New(total int) *Limiter {
	return &Limiter{FirstRequestGrace: time.Second, total: total, perAddress: max(1, total/4*3), conns: map[*conn]struct{}{}, addresses: map[netip.Addr]*peer{}}
}

// MaxConns returns the most connections at a time.
func (l *Limiter) MaxConns() int { return l.total }

// Listen returns a listener whose connections are limited.
func (l *Limiter) Listen(inner net.Listener) net.Listener {
	return &listener{Listener: inner, limiter: l}
}

type listener struct {
	net.Listener

	limiter *Limiter
}

// Accept returns the next admitted connection.
func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.limiter.admit(inner); c != nil {
			return c, nil
		}
		_ = inner.Close() // it was not used
	}
}

// conn is one connection. The limiter's lock guards its state.
type conn struct {
	net.Conn

	limiter       *Limiter
	address       netip.Addr
	peer          *peer
	closeOnce     sync.Once
	since         time.Time // of the last change of the following fields
	sawRequest    bool      // a complete request arrived
	serving       int       // requests in progress
	authenticated int       // of these, those with a valid key
	keys          int       // requests with a valid key, ever
}

// Close closes the connection.
func (c *conn) Close() error {
	c.closeOnce.Do(func() {
		l := c.limiter
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
		c.peer.conns--
		if !c.sawRequest {
			c.peer.addKeyless(time.Now())
		}
	})
	return c.Conn.Close()
}

// The ranks of connections, in the order in which they are replaced.
const (
	rankSilent        = iota // no complete request within FirstRequestGrace
	rankIdle                 // between requests
	rankNew                  // may send a request within FirstRequestGrace
	rankServing              // has a request without a key in progress
	rankAuthenticated        // has a request with a valid key in progress
)

func (c *conn) rank(now time.Time) int {
	switch {
	case c.authenticated > 0:
		return rankAuthenticated
	case c.serving > 0:
		return rankServing
	case c.sawRequest:
		return rankIdle
	case now.Sub(c.since) < c.limiter.FirstRequestGrace:
		return rankNew
	default:
		return rankSilent
	}
}

// admit registers a connection, or returns nil if it must be closed.
func (l *Limiter) admit(inner net.Conn) *conn {
	now := time.Now()
	c := &conn{Conn: inner, limiter: l, address: RemoteAddr(inner.RemoteAddr().String()), since: now}
	l.mu.Lock()
	c.peer = l.peerOf(c.address, now)
	if c.peer.floods(l.MaxKeyless, now) {
		l.mu.Unlock()
		return nil
	}
	var victims []*conn
	if c.peer.conns >= l.perAddress {
		victims = l.evictable(&c.address)
	} else if len(l.conns) >= l.total {
		victims = l.evictable(nil)
	}
	full := c.peer.conns-len(victims) >= l.perAddress || len(l.conns)-len(victims) >= l.total
	if !full {
		l.conns[c] = struct{}{}
		c.peer.conns++
	}
	l.mu.Unlock()
	for _, v := range victims {
		_ = v.Close() // it may be closed already
	}
	if full {
		return nil
	}
	return c
}

// peerOf returns the peer of an address. Once a second it removes those that are like new ones. The caller holds mu.
func (l *Limiter) peerOf(addr netip.Addr, now time.Time) *peer {
	if second := now.Unix(); second != l.removedAt {
		l.removedAt = second
		maps.DeleteFunc(l.addresses, func(_ netip.Addr, p *peer) bool { return p.conns == 0 && p.second != second && !p.trusted(now) })
	}
	p := l.addresses[addr]
	if p == nil {
		p = &peer{}
		l.addresses[addr] = p
	}
	return p
}

// evictable returns the connections to close for new ones, of an address or of all: one percent at a time, because
// it has to scan all of them. The caller holds mu.
func (l *Limiter) evictable(addr *netip.Addr) []*conn {
	now := time.Now()
	var found []*conn
	for c := range l.conns {
		if c.rank(now) < rankAuthenticated && (addr == nil || c.address == *addr) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *conn) int {
		return cmp.Or(cmp.Compare(a.rank(now), b.rank(now)), cmp.Compare(b.peer.conns, a.peer.conns), a.since.Compare(b.since))
	})
	return found[:min(len(found), 1+l.total/100)]
}

// RemoteAddr returns the IP address in the remote address of a connection or a request, invalid if there is none.
func RemoteAddr(remote string) netip.Addr {
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr().Unmap().WithZone("")
}

type contextKey struct{}

// ConnContext is the ConnContext of http.Server: Handler and MarkAuthenticated need it.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if outer, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = outer.NetConn()
	}
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, contextKey{}, c)
	}
	return ctx
}

// Handler tracks which connections have requests in progress, and bounds the time for a body that its handler did not read: net/http
// reads that before it sends the answer. It must be the outermost handler.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(contextKey{}).(*conn)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		keys := 0
		c.update(func() { c.sawRequest, c.serving, keys = true, c.serving+1, c.keys })
		defer c.update(func() {
			c.serving--
			if c.keys == keys {
				c.peer.addKeyless(time.Now())
			}
		})
		next.ServeHTTP(w, r)
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTimeout)) // without it, until the client closes
		}
	})
}

// MarkAuthenticated records that the request of ctx has a valid key: its connection is not replaced until done is called.
func MarkAuthenticated(ctx context.Context) (done func()) {
	c, ok := ctx.Value(contextKey{}).(*conn)
	if !ok {
		return func() {}
	}
	c.update(func() {
		c.authenticated++
		c.keys++
		c.peer.authenticated++
	})
	return func() {
		c.update(func() {
			c.authenticated--
			c.peer.authenticated--
			c.peer.keyUsed = time.Now()
		})
	}
}

func (c *conn) update(f func()) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	f()
	c.since = time.Now()
}
