package api

import (
	"container/list"
	"sync"

	"github.com/muster-dev/muster"
)

// maxCurves is how many bytes of curves are remembered.
const maxCurves = 64 << 20

// curveKey says of what a curve was made, and how small it had to be.
type curveKey struct {
	attempt muster.AttemptID
	size    int64 // of the log
	limits  curveLimits
}

// curveLimits bounds the curve of an attempt.
type curveLimits struct{ points, bytes int }

// curves remembers what attempts that have ended reported, as JSON, so that their logs are not read each time that somebody looks. It keeps what was
// used last.
type curves struct {
	most int // bytes

	mu     sync.Mutex
	byKey  map[curveKey]*list.Element // of *curve
	recent *list.List                 // the most recently used first
	bytes  int
}

type curve struct {
	key  curveKey
	text []byte
}

func newCurves(most int) *curves {
	return &curves{most: most, byKey: map[curveKey]*list.Element{}, recent: list.New()}
}

// get returns a curve, which must not be changed.
func (c *curves) get(key curveKey) (text []byte, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[key]
	if e == nil {
		return nil, false
	}
	c.recent.MoveToFront(e)
	known, _ := e.Value.(*curve) // nothing else is ever put in
	return known.text, true
}

// put remembers a curve, which must not be changed any more.
func (c *curves) put(key curveKey, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != nil {
		return
	}
	c.byKey[key] = c.recent.PushFront(&curve{key, text})
	c.bytes += len(text)
	for c.bytes > c.most {
		last, _ := c.recent.Remove(c.recent.Back()).(*curve)
		delete(c.byKey, last.key)
		c.bytes -= len(last.text)
	}
}
