package keyring

import (
	"sync/atomic"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
)

// usualConnections is how many connections a server has whose Config does not say.
const usualConnections = 1_000

// Bounds are how many requests may be under way at a time, so that no key keeps others out: they are parts of the
// connections that the server has. A quarter of these is left to workers and administrators.
type Bounds struct {
	others  atomic.Int64 // requests of keys that are neither a worker's nor an administrator's
	links   atomic.Int64 // those of them that are of links to jobs, which anyone may have
	all     int64        // of such keys together
	key     int64        // of one such key
	admin   int64
	worker  int64
	streams int64 // of one key, streams of events, logs and usage
}

// NewBounds returns the bounds of a server with so many connections, 0 for the usual number.
func NewBounds(connections int) *Bounds {
	if connections == 0 {
		connections = usualConnections
	}
	n := int64(connections)
	return &Bounds{
		all: max(4, n/4*3), key: max(4, min(500, n/4)), admin: max(4, n/2), worker: max(4, min(64, n/8)), streams: max(2, min(100, n/8)),
	}
}

// Enter counts a request of a key while it is under way. Links to jobs have at most half of what is there for all keys that are neither
// a worker's nor an administrator's, and each of them a quarter of that.
func (b *Bounds) Enter(p auth.Principal, g *Grant) (leave func(), err error) {
	if p.Job != 0 {
		if !count(&b.links, max(2, b.all/2)) {
			return nil, muster.Errorf(muster.Unavailable, "too many requests of links to jobs are under way: try again later")
		}
		defer func() {
			if err != nil {
				b.links.Add(-1)
				return
			}
			left := leave
			leave = func() {
				left()
				b.links.Add(-1)
			}
		}()
	}
	most, other := b.key, false
	if p.Job != 0 {
		most = max(2, b.all/8)
	}
	switch p.Role {
	case auth.Admin:
		most = b.admin
	case auth.Worker:
		most = b.worker
	default:
		other = true
	}
	if !count(&g.requests, most) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d requests under way, which is the most: end some of them, or try again later", most)
	}
	if other && !count(&b.others, b.all) {
		g.requests.Add(-1)
		return nil, muster.Errorf(muster.Unavailable, "%d requests are under way, which is the most that the server takes: try again later", b.all)
	}
	return func() {
		g.requests.Add(-1)
		if other {
			b.others.Add(-1)
		}
	}, nil
}

// Stream counts a stream of a key while it is open.
func (b *Bounds) Stream(g *Grant) (leave func(), err error) {
	if !count(&g.streams, b.streams) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d streams of events, logs and usage open, which is the most: close some of them, or use another key", b.streams)
	}
	return func() { g.streams.Add(-1) }, nil
}

// What one key may have under way, running or waiting for its turn, of what reads much.
const (
	keySearches     = 4  // as many as run at a time, so that another key waits for one search
	keyCharts       = 32 // of pages that people share a key for
	keyExplanations = 32
)

// Search counts a search of a log until it ends.
func (b *Bounds) Search(g *Grant) (leave func(), err error) {
	if !count(&g.searches, keySearches) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d searches of logs under way, which is the most: try again later", keySearches)
	}
	return func() { g.searches.Add(-1) }, nil
}

// Chart counts a request that reads a whole log or all states of a large job, until it ends.
func (b *Bounds) Chart(g *Grant) (leave func(), err error) {
	if !count(&g.charts, keyCharts) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d requests for metrics, usage and events of tasks and states of jobs under way, which is the most: try again later", keyCharts)
	}
	return func() { g.charts.Add(-1) }, nil
}

// Explanation counts a request that asks all workers why a task waits, or where a job would run, until it ends.
func (b *Bounds) Explanation(g *Grant) (leave func(), err error) {
	if !count(&g.explanations, keyExplanations) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d explanations of tasks and plans of jobs under way, which is the most: try again later", keyExplanations)
	}
	return func() { g.explanations.Add(-1) }, nil
}

// count adds one, unless that is more than most.
func count(n *atomic.Int64, most int64) bool {
	if n.Add(1) > most {
		n.Add(-1)
		return false
	}
	return true
}
