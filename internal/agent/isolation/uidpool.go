package isolation

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
)

// The users that tasks of root's workers run as, unless their owner names one. No system gives these numbers to people, services or
// containers: they lie above those of shadow, systemd and directories, and below those of systemd's foreign images.
const (
	firstUID      = 0x78000000
	lastUID       = 0x7ffdffff
	uidsPerWorker = 1 << 16
)

// Where only 16 bits are mapped, as in most user namespaces: the numbers that systemd has for the same purpose.
const (
	firstNarrowUID = 61184
	lastNarrowUID  = 65519
)

// uidPool are the users of one worker's tasks. The first two are no attempt's: the group of folders that tasks share has
// the number of the first, and what builds packages for tasks runs as the second.
type uidPool struct {
	first, count uint32

	mu   sync.Mutex
	next uint32
	used map[uint32]bool
}

const reservedUIDs = 2

// newUIDPool returns those of a worker with its data at a path, of which mapped says whether a range exists here. Two
// workers of one machine have different ones, but for a chance of one in two thousand: their tasks are kept apart by other means then, too.
func newUIDPool(data string, mapped func(first, count uint32) bool) *uidPool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(data))
	const workers = (lastUID - firstUID + 1) / uidsPerWorker
	a := &uidPool{first: firstUID + h.Sum32()%workers*uidsPerWorker, count: uidsPerWorker, used: map[uint32]bool{}}
	if !mapped(a.first, a.count) {
		a.first, a.count = firstNarrowUID, lastNarrowUID-firstNarrowUID+1
		if !mapped(a.first, a.count) {
			return nil
		}
	}
	a.next = rand.Uint32N(a.count - reservedUIDs) //nolint:gosec // no secret: what earlier tasks left anywhere is rarely of the same user
	return a
}

// sharedGID is the group of folders that all tasks may change.
func (a *uidPool) sharedGID() uint32 { return a.first }

// builderUID is the user that builds packages for tasks.
func (a *uidPool) builderUID() uint32 { return a.first + 1 }

// contains reports whether a user is one of attempts.
func (a *uidPool) contains(uid uint32) bool {
	return uid >= a.first+reservedUIDs && uid < a.first+a.count
}

// acquire returns a user that is nobody's, the one that was given back for the longest time.
func (a *uidPool) acquire() (uint32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size := a.count - reservedUIDs
	for range size {
		uid := a.first + reservedUIDs + a.next%size
		a.next = (a.next + 1) % size
		if !a.used[uid] {
			a.used[uid] = true
			return uid, nil
		}
	}
	return 0, errors.New("all users for tasks are in use")
}

// reserve notes that a user is in use.
func (a *uidPool) reserve(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[uid] = true
}

// release gives a user back.
func (a *uidPool) release(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, uid)
}
