package isolation

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
)

// The users of tasks of workers that run as root, unless the owner chooses one. No system assigns these numbers to people, services
// or containers: they are above those of shadow, systemd and directories, and below those of systemd's foreign images.
const (
	firstUID      = 0x78000000
	lastUID       = 0x7ffdffff
	uidsPerWorker = 1 << 16
)

// The range where only 16 bits are mapped, as in most user namespaces: systemd's for the same purpose.
const (
	firstNarrowUID = 61184
	lastNarrowUID  = 65519
)

// uidPool is the users of one worker's tasks. The first two are reserved: the first number is that of the group of folders that
// tasks share, the second is the user that builds packages for tasks.
type uidPool struct {
	first, count uint32

	mu   sync.Mutex
	next uint32
	used map[uint32]bool
}

const reservedUIDs = 2

// newUIDPool returns the pool of a worker with this data dir. mapped reports whether a range exists here. The pools of two
// workers of one machine are equal with a chance of one in two thousand; other means separate their tasks as well.
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
	a.next = rand.Uint32N(a.count - reservedUIDs) //nolint:gosec // no secret: files of earlier tasks rarely belong to the same user
	return a
}

// sharedGID returns the group of folders that all tasks may change.
func (a *uidPool) sharedGID() uint32 { return a.first }

// builderUID returns the user that builds packages for tasks.
func (a *uidPool) builderUID() uint32 { return a.first + 1 }

// acquire returns a free user: the one that has been free for the longest time.
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

// reserve marks a user as used.
func (a *uidPool) reserve(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[uid] = true
}

// release frees a user.
func (a *uidPool) release(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, uid)
}
