package modelpool

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Config configures a Pool.
type Config struct {
	Data     string                     // the worker's data dir
	TTL      time.Duration              // how long an unused model server stays
	MinFree  muster.Size                // memory of the machine to keep free
	Free     func() (muster.Size, bool) // free memory of the machine; false or a nil func: unknown
	Isolator run.Isolator               // nil: no isolation
	GPUs     run.DeviceAllocator        // nil: devices are not tracked
	Log      *slog.Logger
}

// Request describes the model server that a task asks for.
type Request struct {
	Key       string           `json:"key"`  // tasks with the same key use the same model server
	Argv      []string         `json:"argv"` // of the server; it listens on $MUSTER_WARM
	Env       []string         `json:"env"`
	ReadDirs  []string         `json:"read,omitempty"`  // folders that it may read
	WriteDirs []string         `json:"write,omitempty"` // folders that it may change
	Attempt   muster.AttemptID `json:"-"`
	GPUs      []string         `json:"gpus,omitempty"`   // UUIDs of the task's devices
	CPUs      float64          `json:"-"`                // cores of the task; 0 means no limit
	Memory    muster.Size      `json:"memory,omitempty"` // of the task; 0 means no limit
}

// Pool keeps model servers. Its methods may be called concurrently.
type Pool struct {
	cfg      Config
	timeouts timeouts

	mu       sync.Mutex
	servers  map[string]*server // by key
	stopping map[*server]bool   // being stopped; they still hold their resources
	last     int                // number of the newest server
	closed   bool
	stops    sync.WaitGroup // goroutines of stopping
}

// timeouts are variable for tests.
type timeouts struct {
	answer   time.Duration // for a new server to answer
	shutdown time.Duration // for a server to exit by itself
	poll     time.Duration // between two evictions
	grace    time.Duration // how much later than the TTL a server exits by itself
}

var defaultTimeouts = timeouts{answer: time.Minute, shutdown: 3 * time.Second, poll: 2 * time.Second, grace: time.Minute}

// New returns the pool of a data dir. It recovers the servers of earlier incarnations that still answer, and kills the others.
func New(cfg Config) (*Pool, error) {
	p := &Pool{cfg: cfg, timeouts: defaultTimeouts, servers: map[string]*server{}, stopping: map[*server]bool{}}
	dir := poolDir(cfg.Data)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Internal, "create the folder of model servers: %w", err)
	}
	orphans := Orphans(cfg.Data)
	sweep(cfg, orphans)
	for _, l := range orphans {
		p.last = max(p.last, l.Attempt.Task.Num)
		s := l.server
		if p.servers[s.Key] == nil && s.isAlive() {
			s.used = time.Now()
			p.servers[s.Key] = s
			cfg.Log.Info("model server recovered", slog.String("host", s.id.String()), slog.Int("pid", s.Proc.PID))
			continue
		}
		s.kill(cfg.Log)
		s.release(cfg)
	}
	return p, nil
}

// Acquire returns the socket path of a model server, which it starts if needed. The server is not evicted before release is called. No
// task depends on a server: after an error, such as not enough memory, the task loads the model itself. The server may exit while it is used, for example if the kernel kills it.
func (p *Pool) Acquire(ctx context.Context, want *Request, watch run.Observer) (path string, release func(), err error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return "", nil, run.Failf(muster.WorkerShutdown, "the worker is shutting down")
		}
		s := p.servers[want.Key]
		if s != nil && s.users == 0 && !s.matches(want) {
			p.evict(s, "its settings differ") //nolint:contextcheck // it is stopped even if ctx ends
			s = nil
		}
		if s == nil {
			p.last++
			s = newServer(p.cfg.Data, p.last, want)
			s.users = 1
			p.servers[want.Key] = s
			p.mu.Unlock()
			if err := p.start(ctx, s, watch); err != nil {
				return "", nil, err
			}
			return s.socket(), p.releaseFunc(s), nil
		}
		s.users++
		p.mu.Unlock()
		release := p.releaseFunc(s)
		select {
		case <-s.ready:
		case <-ctx.Done():
			release()
			return "", nil, context.Cause(ctx)
		}
		if s.healthy() {
			return s.socket(), release, nil
		}
		release()
		p.mu.Lock()
		p.evict(s, "it does not answer") //nolint:contextcheck // it is stopped even if ctx ends
		p.mu.Unlock()
	}
}

// start starts a server that is in p.servers, and removes it from there after a failure.
func (p *Pool) start(ctx context.Context, s *server, watch run.Observer) error {
	watch.Step("starting a model server")
	p.FreeMemory(ctx, s.Memory)
	var err error
	if p.lowMemory(s.Memory) {
		err = run.Failf(muster.WorkerInternal, "this machine has too little free memory for a model server")
	} else {
		err = s.start(ctx, &p.cfg, p.timeouts)
	}
	p.mu.Lock()
	if err != nil {
		delete(p.servers, s.Key)
	}
	close(s.ready)
	p.mu.Unlock()
	if err != nil {
		s.kill(p.cfg.Log)
		s.release(p.cfg) //nolint:contextcheck // it is stopped even if ctx ends
		return err
	}
	p.cfg.Log.Info("model server started", slog.String("host", s.id.String()), slog.Int("pid", s.Proc.PID), slog.String("for", s.Attempt.String()))
	return nil
}

// releaseFunc returns a func that ends one use of a server. Further calls do nothing.
func (p *Pool) releaseFunc(s *server) func() {
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.users--
		s.used = time.Now()
		s.trimLog()
	})
}

// evict stops a server in the background. The caller holds p.mu.
func (p *Pool) evict(s *server, why string) {
	if p.servers[s.Key] != s {
		return // already evicted
	}
	delete(p.servers, s.Key)
	p.cfg.Log.Info("stopping model server", slog.String("host", s.id.String()), slog.String("why", why))
	p.stopping[s] = true
	p.stops.Go(func() {
		s.stop(p.cfg.Log, p.timeouts.shutdown)
		s.release(p.cfg)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.stopping, s)
	})
}

// Evict ends the model servers on any of these devices, except that of key, and returns when their memory is free. Servers in use stay: their tasks were granted the device too.
func (p *Pool) Evict(ctx context.Context, gpus []string, key string) error {
	return p.evictIdle(ctx, "a task needs its GPU", func(s *server) bool {
		return s.Key != key && slices.ContainsFunc(s.GPUs, func(uuid string) bool { return slices.Contains(gpus, uuid) })
	})
}

// evictIdle stops the matching unused servers, and returns when they and matching servers that were already being stopped have released
// their resources.
func (p *Pool) evictIdle(ctx context.Context, why string, match func(*server) bool) error {
	p.mu.Lock()
	var evicted []*server
	for _, s := range p.servers {
		if s.users == 0 && match(s) {
			evicted = append(evicted, s)
		}
	}
	for _, s := range evicted {
		p.evict(s, why) //nolint:contextcheck // it is stopped even if ctx ends
	}
	for s := range p.stopping {
		if match(s) && !slices.Contains(evicted, s) {
			evicted = append(evicted, s)
		}
	}
	p.mu.Unlock()
	for _, s := range evicted {
		select {
		case <-s.released:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// FreeMemory ends unused model servers, least recently used first, until this much memory is free in addition to MinFree, or none is left.
func (p *Pool) FreeMemory(ctx context.Context, memory muster.Size) {
	for p.lowMemory(memory) {
		s := p.nextToFree()
		if s == nil {
			return
		}
		if err := p.evictIdle(ctx, "its memory is needed", func(other *server) bool { return other == s }); err != nil {
			return
		}
	}
}

// lowMemory reports whether the machine has less free memory than this plus MinFree.
func (p *Pool) lowMemory(memory muster.Size) bool {
	if p.cfg.Free == nil {
		return false
	}
	free, ok := p.cfg.Free()
	return ok && free < p.cfg.MinFree+memory
}

// nextToFree returns the server whose memory becomes free next: one that is being stopped, or the least recently used one. It is nil if
// all are in use.
func (p *Pool) nextToFree() *server {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.stopping {
		if !isClosed(s.released) {
			return s
		}
	}
	var oldest *server
	for _, s := range p.servers {
		if s.users == 0 && (oldest == nil || s.used.Before(oldest.used)) {
			oldest = s
		}
	}
	return oldest
}

// Run stops expired servers until ctx ends. The others keep running.
func (p *Pool) Run(ctx context.Context) error {
	tick := time.NewTicker(p.timeouts.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		p.evictExpired() //nolint:contextcheck // they are stopped even if ctx ends
		p.FreeMemory(ctx, 0)
	}
}

// evictExpired stops servers that are unused for the TTL, and cleans up after those that exited.
func (p *Pool) evictExpired() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		switch {
		case s.users > 0:
		case s.hasExited():
			p.evict(s, "it exited")
		case p.cfg.TTL > 0 && time.Since(s.used) > p.cfg.TTL:
			p.evict(s, "unused for "+p.cfg.TTL.String())
		}
	}
}

// Close stops all servers, including those in use: it is for a worker whose tasks have ended. Without it they stay for the next
// incarnation.
func (p *Pool) Close() {
	for {
		p.mu.Lock()
		p.closed = true
		var starting *server
		for _, s := range p.servers {
			if isClosed(s.ready) {
				p.evict(s, "the worker shuts down")
			} else {
				starting = s
			}
		}
		p.mu.Unlock()
		if starting == nil {
			break
		}
		<-starting.ready
	}
	p.stops.Wait()
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func poolDir(data string) string { return filepath.Join(data, "warm") }
