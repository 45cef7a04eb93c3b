package landlock

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// placesFor is how long a path stays open after a task was started: long enough for
// the next ones, and too short to be in the way of who replaces or unmounts it.
const placesFor = time.Second

// places are paths that many tasks may see, kept open for those that start within a
// moment: to open them anew was a third of what the start of a task costs. All
// methods may be called at the same time.
type places struct {
	mu    sync.RWMutex // held for reading while open ones are in use
	open  map[string]spot
	timer *time.Timer
}

// spot is an open path, or -1 for one that is not there, or that this user cannot
// reach.
type spot struct {
	fd  int
	dir bool
}

// shared are the places of this process, by the mount namespace in which they were opened.
var shared struct {
	sync.Mutex
	of map[string]*places
}

func placesOf(view string) *places {
	shared.Lock()
	defer shared.Unlock()
	p := shared.of[view]
	if p == nil {
		p = &places{}
		if shared.of == nil {
			shared.of = map[string]*places{}
		}
		shared.of[view] = p
	}
	return p
}

// each calls do for every path that is there.
func (p *places) each(paths []string, do func(path string, at spot) error) error {
	if err := p.take(paths); err != nil {
		return err
	}
	defer p.mu.RUnlock()
	for _, path := range paths {
		if at := p.open[path]; at.fd >= 0 {
			if err := do(path, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// take opens what is not open yet, and returns with the lock held for reading
// unless it fails.
func (p *places) take(paths []string) error {
	for {
		p.mu.RLock()
		if p.has(paths) {
			return nil
		}
		p.mu.RUnlock()
		if err := p.add(paths); err != nil {
			return err
		}
	}
}

func (p *places) has(paths []string) bool {
	for _, path := range paths {
		if _, there := p.open[path]; !there {
			return false
		}
	}
	return true
}

func (p *places) add(paths []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		p.open, p.timer = map[string]spot{}, time.AfterFunc(placesFor, p.close)
	}
	for _, path := range paths {
		if _, there := p.open[path]; there {
			continue
		}
		at, err := openSpot(path)
		if err != nil {
			return err
		}
		p.open[path] = at
	}
	return nil
}

// close closes all.
func (p *places) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.open {
		if at.fd >= 0 {
			_ = unix.Close(at.fd)
		}
	}
	p.open, p.timer = nil, nil
}

func openSpot(path string) (spot, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return spot{fd: -1}, nil //nolint:nilerr // what is not there, or not for this user, needs no rule
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return spot{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return spot{fd, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}
