package keyring

import (
	"sync/atomic"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
)

// defaultConnections is how many connections a server has whose Config does not say.
const defaultConnections = 1_000

// Limits are how many requests may be under way at a time, so that no key keeps others out: they are parts of the
// connections that the server has. A quarter of these is left to workers and administrators.
type Limits struct {
	userRequests atomic.Int64 // requests of keys that are neither a worker's nor an administrator's
	linkRequests atomic.Int64 // those of them that are of links to jobs, which anyone may have
	maxUsers     int64        // of such keys together
	maxPerKey    int64        // of one such key
	maxAdmin     int64
	maxWorker    int64
	maxStreams   int64 // of one key, streams of events, logs and usage
}

// NewLimits returns the bounds of a server with so many connections, 0 for the usual number.
func NewLimits(connections int) *Limits {
	if connections == 0 {
		connections = defaultConnections
	}
	n := int64(connections)
	return &Limits{
		maxUsers: max(4, n/4*3), maxPerKey: max(4, min(500, n/4)), maxAdmin: max(4, n/2), maxWorker: max(4, min(64, n/8)), maxStreams: max(2, min(100, n/8)),
	}
}

// AcquireRequest counts a request of a key while it is under way. Links to jobs have at most half of what is there for all keys that are neither
// a worker's nor an administrator's, and each of them a quarter of that.
func (l *Limits) AcquireRequest(p auth.Principal, k *ActiveKey) (release func(), err error) {
	if p.Job != 0 {
		if !tryAdd(&l.linkRequests, max(2, l.maxUsers/2)) {
			return nil, muster.Errorf(muster.Unavailable, "too many requests of links to jobs are under way: try again later")
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
	switch p.Role {
	case auth.Admin:
		limit = l.maxAdmin
	case auth.Worker:
		limit = l.maxWorker
	default:
		isUser = true
	}
	if !tryAdd(&k.requests, limit) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d requests under way, which is the most: end some of them, or try again later", limit)
	}
	if isUser && !tryAdd(&l.userRequests, l.maxUsers) {
		k.requests.Add(-1)
		return nil, muster.Errorf(muster.Unavailable, "%d requests are under way, which is the most that the server takes: try again later", l.maxUsers)
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
	if !tryAdd(&k.streams, l.maxStreams) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d streams of events, logs and usage open, which is the most: close some of them, or use another key", l.maxStreams)
	}
	return func() { k.streams.Add(-1) }, nil
}

// What one key may have under way, running or waiting for its turn, of what reads much.
const (
	maxKeySearches     = 4  // as many as run at a time, so that another key waits for one search
	maxKeyCharts       = 32 // of pages that people share a key for
	maxKeyExplanations = 32
)

// AcquireSearch counts a search of a log until it ends.
func (l *Limits) AcquireSearch(k *ActiveKey) (release func(), err error) {
	if !tryAdd(&k.searches, maxKeySearches) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d searches of logs under way, which is the most: try again later", maxKeySearches)
	}
	return func() { k.searches.Add(-1) }, nil
}

// AcquireChart counts a request that reads a whole log or all states of a large job, until it ends.
func (l *Limits) AcquireChart(k *ActiveKey) (release func(), err error) {
	if !tryAdd(&k.charts, maxKeyCharts) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d requests for metrics, usage and events of tasks and states of jobs under way, which is the most: try again later", maxKeyCharts)
	}
	return func() { k.charts.Add(-1) }, nil
}

// AcquireExplanation counts a request that asks all workers why a task waits, or where a job would run, until it ends.
func (l *Limits) AcquireExplanation(k *ActiveKey) (release func(), err error) {
	if !tryAdd(&k.explanations, maxKeyExplanations) {
		return nil, muster.Errorf(muster.Unavailable, "this API key has %d explanations of tasks and plans of jobs under way, which is the most: try again later", maxKeyExplanations)
	}
	return func() { k.explanations.Add(-1) }, nil
}

// tryAdd adds one, unless that is more than most.
func tryAdd(n *atomic.Int64, limit int64) bool {
	if n.Add(1) > limit {
		n.Add(-1)
		return false
	}
	return true
}
