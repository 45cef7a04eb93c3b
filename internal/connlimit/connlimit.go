// Package connlimit limits the connections of an HTTP server, so that a flood does not exclude other clients.
//
// The limits are on all connections and on those from one address. At a limit, a
// new connection replaces another one: first those without a complete request in their first second,
// then idle ones, then new ones, then those that serve a request without a key; within each rank those of the address with the
// most connections, and of these the longest unchanged. A connection with an authenticated request
// in progress, such as a worker's session, is never replaced; if all are such, the new one is closed.
package connlimit

import (
	"cmp"
	"context"
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

	total, perAddress int // limits

	mu        sync.Mutex
	conns     map[*conn]struct{}
	addresses map[netip.Addr]int
	refused   int
}

// New returns a Limiter of total connections; three quarters of them may be from one address.
func New(total int) *Limiter {
	return &Limiter{FirstRequestGrace: time.Second, total: total, perAddress: max(1, total/4*3), conns: map[*conn]struct{}{}, addresses: map[netip.Addr]int{}}
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
	closeOnce     sync.Once
	since         time.Time // of the last change of the following fields
	sawRequest    bool      // a complete request arrived
	serving       int       // requests in progress
	authenticated int       // of these, those with a valid key
}

// Close closes the connection.
func (c *conn) Close() error {
	c.closeOnce.Do(func() {
		l := c.limiter
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
		if l.addresses[c.address]--; l.addresses[c.address] == 0 {
			delete(l.addresses, c.address)
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
	c := &conn{Conn: inner, limiter: l, address: RemoteAddr(inner.RemoteAddr().String()), since: time.Now()}
	l.mu.Lock()
	var victims []*conn
	if l.addresses[c.address] >= l.perAddress {
		victims = l.evictable(&c.address)
	} else if len(l.conns) >= l.total {
		victims = l.evictable(nil)
	}
	full := l.addresses[c.address]-len(victims) >= l.perAddress || len(l.conns)-len(victims) >= l.total
	if !full {
		l.conns[c] = struct{}{}
		l.addresses[c.address]++
	} else {
		l.refused++
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
		return cmp.Or(cmp.Compare(a.rank(now), b.rank(now)), cmp.Compare(l.addresses[b.address], l.addresses[a.address]), a.since.Compare(b.since))
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
		c.update(func() { c.sawRequest, c.serving = true, c.serving+1 })
		defer c.update(func() { c.serving-- })
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
	c.update(func() { c.authenticated++ })
	return func() { c.update(func() { c.authenticated-- }) }
}

func (c *conn) update(f func()) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	f()
	c.since = time.Now()
}
