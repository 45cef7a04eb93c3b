package api

import (
	"sync/atomic"

	"github.com/muster-dev/muster/internal/auth"
)

// usualConnections is how many connections a server has whose Config does not say.
const usualConnections = 1_000

// bounds are how many requests may be under way at a time, so that no key keeps others out: they are parts of the
// connections that the server has. A quarter of these is left to workers and administrators.
type bounds struct {
	others  atomic.Int64 // requests of keys that are neither a worker's nor an administrator's
	all     int64        // of such keys together
	key     int64        // of one such key
	admin   int64
	worker  int64
	streams int64 // of one key, streams of events, logs and usage
}

func newBounds(connections int) *bounds {
	if connections == 0 {
		connections = usualConnections
	}
	n := int64(connections)
	return &bounds{
		all: max(4, n/4*3), key: max(4, min(500, n/4)), admin: max(4, n/2), worker: max(4, min(64, n/8)), streams: max(2, min(100, n/8)),
	}
}

// enter counts a request of a key while it is under way.
func (b *bounds) enter(role auth.Role, g *grant) (leave func(), err error) {
	most, other := b.key, false
	switch role {
	case auth.Admin:
		most = b.admin
	case auth.Worker:
		most = b.worker
	default:
		other = true
	}
	if !count(&g.requests, most) {
		return nil, tooMany("this API key has %d requests under way, which is the most: end some of them, or try again later", most)
	}
	if other && !count(&b.others, b.all) {
		g.requests.Add(-1)
		return nil, tooMany("%d requests are under way, which is the most that the server takes: try again later", b.all)
	}
	return func() {
		g.requests.Add(-1)
		if other {
			b.others.Add(-1)
		}
	}, nil
}

// stream counts a stream of a key while it is open.
func (b *bounds) stream(g *grant) (leave func(), err error) {
	if !count(&g.streams, b.streams) {
		return nil, tooMany("this API key has %d streams of events, logs and usage open, which is the most: close some of them, or use another key", b.streams)
	}
	return func() { g.streams.Add(-1) }, nil
}

// count adds one, unless that is more than most.
func count(n *atomic.Int64, most int64) bool {
	if n.Add(1) > most {
		n.Add(-1)
		return false
	}
	return true
}
