package keyring

import (
	"sync/atomic"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
)

// defaultConnections is the number of connections of a server whose Config has none.
const defaultConnections = 1_000

// Limits bounds the number of running requests, so that no key blocks others. Limits are fractions of the server's
// connections. A quarter of these is reserved for workers, new ones too, and for operators and administrators of the server.
type Limits struct {
	userRequests atomic.Int64 // requests of other keys than those
	linkRequests atomic.Int64 // those of them with links to jobs, which are public
	maxUsers     int64        // of all such keys
	maxPerKey    int64        // of one such key
	maxAdmin     int64
	maxWorker    int64
	maxStreams   int64 // streams of events, logs and usage of one key
}

// NewLimits returns the limits of a server with so many connections; 0 means 1,000.
func NewLimits(connections int) *Limits {
	if connections == 0 {
		connections = defaultConnections
	}
	n := int64(connections)
	return &Limits{
		maxUsers: max(4, n/4*3), maxPerKey: max(4, min(500, n/4)), maxAdmin: max(4, n/2), maxWorker: max(4, min(64, n/8)), maxStreams: max(2, min(100, n/8)),
	}
}

// AcquireRequest counts a request of a key while it runs. Links to jobs together have at most half of what all keys have for which nothing is
// reserved, and each link a quarter of that.
func (l *Limits) AcquireRequest(p auth.Principal, k *ActiveKey) (release func(), err error) {
	if p.Job != 0 {
		if !tryAdd(&l.linkRequests, max(2, l.maxUsers/2)) {
			return nil, muster.Errorf(muster.Unavailable, "too many requests with links to jobs are running: try again later")
		}
		defer func() {
			if err != nil {
				l.linkRequests.Add(-1)
				return
			}
			releaseRequest := release
			release = func() {
				releaseRequest()
				l.linkRequests.Add(-1)
			}
		}()
	}
	limit, isUser := l.maxPerKey, false
	if p.Job != 0 {
		limit = max(2, l.maxUsers/8)
	}
	switch {
	case p.Role == auth.Admin && p.Project == "": // those of a project create keys, and let workers join, as they like
		limit = l.maxAdmin
	case p.Project == "" && (p.Role == auth.Worker || p.Role == auth.Join || p.Role == auth.Operator):
		limit = l.maxWorker
	case p.Role == auth.Worker:
		limit, isUser = l.maxWorker, true
	default:
		isUser = true
	}
	if !tryAdd(&k.requests, limit) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has the maximum of %d running requests: end some of them, or try again later", limit)
	}
	if isUser && !tryAdd(&l.userRequests, l.maxUsers) {
		k.requests.Add(-1)
		return nil, muster.Errorf(muster.Unavailable, "the server has the maximum of %d running requests: try again later", l.maxUsers)
	}
	return func() {
		k.requests.Add(-1)
		if isUser {
			l.userRequests.Add(-1)
		}
	}, nil
}

// AcquireStream counts a stream of a key while it is open.
func (l *Limits) AcquireStream(k *ActiveKey) (release func(), err error) {
	return acquire(&k.streams, l.maxStreams, "open streams of events, logs and usage: close some of them, or use another key")
}

// The maximum number of expensive requests of one key, running or waiting.
const (
	maxKeySearches     = 4  // as many as run at once, so that another key waits for one search only
	maxKeyCharts       = 32 // people may share a key for their pages
	maxKeyExplanations = 32
)

// AcquireSearch counts a search of a log until it ends.
func (l *Limits) AcquireSearch(k *ActiveKey) (release func(), err error) {
	return acquire(&k.searches, maxKeySearches, "running log searches: try again later")
}

// AcquireChart counts a request that reads a whole log or all states of a large job, until it ends.
func (l *Limits) AcquireChart(k *ActiveKey) (release func(), err error) {
	return acquire(&k.charts, maxKeyCharts, "running requests for task metrics, usage and events and job states: try again later")
}

// AcquireExplanation counts a request that asks the engine to explain a task or to plan a job, until it ends.
func (l *Limits) AcquireExplanation(k *ActiveKey) (release func(), err error) {
	return acquire(&k.explanations, maxKeyExplanations, "running task explanations and job plans: try again later")
}

// acquire adds one to n, or returns an error if n is at the limit. what says what is counted and what to do.
func acquire(n *atomic.Int64, limit int64, what string) (release func(), err error) {
	if !tryAdd(n, limit) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has the maximum of %d %s", limit, what)
	}
	return func() { n.Add(-1) }, nil
}

// tryAdd adds one, unless n is at the limit.
func tryAdd(n *atomic.Int64, limit int64) bool {
	if n.Add(1) > limit {
		n.Add(-1)
		return false
	}
	return true
}
