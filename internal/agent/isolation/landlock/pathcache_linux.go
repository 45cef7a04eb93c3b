package landlock

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cacheTTL is how long a path stays open after the start of a task: long enough for the next tasks, and short enough not to
// prevent an unmount.
const cacheTTL = time.Second

// pathCache keeps paths open that many tasks may access, for tasks that start within a moment: opening them again took a third of
// the time of a start. It is safe for concurrent use.
type pathCache struct {
	mu    sync.RWMutex // read-locked while open paths are in use
	open  map[string]openPath
	timer *time.Timer
}

// openPath is an open path. fd is -1 if the path does not exist or this user cannot reach it.
type openPath struct {
	fd  int
	dir bool
}

// caches are those of this process, by the mount namespace in which they opened paths.
var caches struct {
	sync.Mutex
	of map[string]*pathCache
}

func cacheOf(view string) *pathCache {
	caches.Lock()
	defer caches.Unlock()
	p := caches.of[view]
	if p == nil {
		p = &pathCache{}
		if caches.of == nil {
			caches.of = map[string]*pathCache{}
		}
		caches.of[view] = p
	}
	return p
}

// forEach calls fn for every path that exists.
func (p *pathCache) forEach(paths []string, fn func(path string, handle openPath) error) error {
	if err := p.rlockOpen(paths); err != nil {
		return err
	}
	defer p.mu.RUnlock()
	for _, path := range paths {
		if handle := p.open[path]; handle.fd >= 0 {
			if err := fn(path, handle); err != nil {
				return err
			}
		}
	}
	return nil
}

// rlockOpen opens the paths that are not open, and returns with the read lock held unless it fails.
func (p *pathCache) rlockOpen(paths []string) error {
	for {
		p.mu.RLock()
		if p.has(paths) {
			return nil
		}
		p.mu.RUnlock()
		if err := p.openMissing(paths); err != nil {
			return err
		}
	}
}

func (p *pathCache) has(paths []string) bool {
	for _, path := range paths {
		if _, ok := p.open[path]; !ok {
			return false
		}
	}
	return true
}

func (p *pathCache) openMissing(paths []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		p.open, p.timer = map[string]openPath{}, time.AfterFunc(cacheTTL, p.close)
	}
	for _, path := range paths {
		if _, ok := p.open[path]; ok {
			continue
		}
		handle, err := openPathFD(path)
		if err != nil {
			return err
		}
		p.open[path] = handle
	}
	return nil
}

// close closes all.
func (p *pathCache) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, handle := range p.open {
		if handle.fd >= 0 {
			_ = unix.Close(handle.fd)
		}
	}
	p.open, p.timer = nil, nil
}

func openPathFD(path string) (openPath, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return openPath{fd: -1}, nil //nolint:nilerr // a path that does not exist or cannot be reached needs no rule
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return openPath{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return openPath{fd, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}
