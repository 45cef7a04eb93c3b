package modelpool

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Config is what a Keeper is made of.
type Config struct {
	Data     string                     // the worker's data dir
	TTL      time.Duration              // how long a host stays that nobody uses
	MinFree  muster.Size                // memory of the machine that is to be left free
	Free     func() (muster.Size, bool) // memory of the machine that is free; false if that is not known. nil: never known
	Isolator run.Isolator               // nil: hosts are not held
	GPUs     run.DeviceAllocator        // nil: nobody looks after them
	Log      *slog.Logger
}

// Pool implements run.Warm.
type Pool struct {
	cfg      Config
	timeouts timeouts

	mu       sync.Mutex
	servers  map[string]*server // by key
	stopping map[*server]bool   // those that are being ended, and still hold what they had
	last     int                // number of the host that was made last
	closed   bool
	stops    sync.WaitGroup // of hosts that are being ended
}

var _ run.ModelPool = (*Pool)(nil)

// timeouts are how long the keeper has patience.
type timeouts struct {
	answer   time.Duration // for a new host to answer
	shutdown time.Duration // for one to end by itself
	poll     time.Duration // between looks at what is there
	grace    time.Duration // that a host stays longer by itself than the keeper lets it
}

var defaultTimeouts = timeouts{answer: time.Minute, shutdown: 3 * time.Second, poll: 2 * time.Second, grace: time.Minute}

// New returns the keeper of a data dir, with the hosts of an earlier life that still answer. The others are ended.
func New(cfg Config) (*Pool, error) {
	p := &Pool{cfg: cfg, timeouts: defaultTimeouts, servers: map[string]*server{}, stopping: map[*server]bool{}}
	dir := poolDir(cfg.Data)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Internal, "the folder of warm hosts cannot be made: %w", err)
	}
	orphans := Orphans(cfg.Data)
	sweep(cfg, orphans)
	for _, l := range orphans {
		p.last = max(p.last, l.Attempt.Task.Num)
		s := l.server
		if p.servers[l.Key] == nil && s.isAlive() {
			s.used = time.Now()
			s.exited = make(chan struct{})
			p.servers[l.Key] = s
			cfg.Log.Info("a warm host of an earlier life is taken over", slog.String("host", s.id.String()), slog.Int("pid", s.Proc.PID))
			continue
		}
		s.kill(cfg.Log)
		s.release(cfg)
	}
	return p, nil
}

// Acquire implements run.Warm. The host may end while it is used, as when the kernel takes it.
func (p *Pool) Acquire(ctx context.Context, want *run.ModelServer, watch run.Observer) (path string, release func(), err error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return "", nil, run.Failf(muster.WorkerShutdown, "the worker shuts down")
		}
		s := p.servers[want.Key]
		if s != nil && s.users == 0 && !s.matches(want) {
			p.evict(s, "it was started for other settings") //nolint:contextcheck // a host is ended whoever waits for it
			s = nil
		}
		if s == nil {
			p.last++
			s = newServer(p.cfg.Data, p.last, want)
			s.users = 1
			p.servers[want.Key] = s
			p.mu.Unlock()
			if err := p.start(ctx, s, want, watch); err != nil {
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
		p.evict(s, "it does not answer") //nolint:contextcheck // a host is ended whoever waits for it
		p.mu.Unlock()
	}
}

// start starts a host that is in the map, and takes it out again if it does not come to answer.
func (p *Pool) start(ctx context.Context, s *server, want *run.ModelServer, watch run.Observer) error {
	watch.Step("starting a host for the model")
	p.FreeMemory(ctx, want.Memory)
	var err error
	if p.lowMemory(want.Memory) {
		err = run.Failf(muster.WorkerInternal, "there is too little memory free on this machine for a host that keeps the model loaded")
	} else {
		err = s.start(ctx, &p.cfg, want, p.timeouts)
	}
	p.mu.Lock()
	if err != nil {
		delete(p.servers, s.Key)
	}
	close(s.ready)
	p.mu.Unlock()
	if err != nil {
		s.kill(p.cfg.Log)
		s.release(p.cfg) //nolint:contextcheck // a host is ended whoever waits for it
		return err
	}
	p.cfg.Log.Info("a warm host is started", slog.String("host", s.id.String()), slog.Int("pid", s.Proc.PID), slog.String("for", want.Attempt.String()))
	return nil
}

// releaseFunc returns what ends the use of a host, once.
func (p *Pool) releaseFunc(s *server) func() {
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.users--
		s.used = time.Now()
		s.trimLog()
	})
}

// evict ends a host in the background. The lock is held.
func (p *Pool) evict(s *server, why string) {
	if p.servers[s.Key] != s {
		return // somebody was faster
	}
	delete(p.servers, s.Key)
	p.cfg.Log.Info("a warm host is ended", slog.String("host", s.id.String()), slog.String("why", why))
	p.stopping[s] = true
	p.stops.Go(func() {
		s.stop(p.cfg.Log, p.timeouts.shutdown)
		s.release(p.cfg)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.stopping, s)
	})
}

// Evict implements run.Warm. Hosts in use stay: who uses one has the device, too.
func (p *Pool) Evict(ctx context.Context, gpus []string, key string) error {
	return p.evictIdle(ctx, "its GPU is wanted", func(s *server) bool {
		return s.Key != key && slices.ContainsFunc(s.GPUs, func(uuid string) bool { return slices.Contains(gpus, uuid) })
	})
}

// evictIdle ends those that nobody uses, and returns when they are gone with what they had, and so are those that were on their way before.
func (p *Pool) evictIdle(ctx context.Context, why string, match func(*server) bool) error {
	p.mu.Lock()
	var evicted []*server
	for _, s := range p.servers {
		if s.users == 0 && match(s) {
			evicted = append(evicted, s)
		}
	}
	for _, s := range evicted {
		p.evict(s, why) //nolint:contextcheck // a host is ended whoever waits for it
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

// FreeMemory implements run.Warm.
func (p *Pool) FreeMemory(ctx context.Context, memory muster.Size) {
	for p.lowMemory(memory) {
		s := p.nextToFree()
		if s == nil {
			return
		}
		if err := p.evictIdle(ctx, "its memory is wanted", func(other *server) bool { return other == s }); err != nil {
			return
		}
	}
}

// lowMemory reports whether the machine has less memory free than this, besides what is to be left.
func (p *Pool) lowMemory(memory muster.Size) bool {
	if p.cfg.Free == nil {
		return false
	}
	free, ok := p.cfg.Free()
	return ok && free < p.cfg.MinFree+memory
}

// nextToFree returns the host whose memory is free next: one that is being ended, or else the one that was unused for longest; nil if all are in use.
func (p *Pool) nextToFree() *server {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.stopping {
		select {
		case <-s.released:
		default:
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

// Run ends hosts in time, until ctx ends. Those that are left go on.
func (p *Pool) Run(ctx context.Context) error {
	tick := time.NewTicker(p.timeouts.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		p.evictExpired() //nolint:contextcheck // a host is ended whoever waits for it
		p.FreeMemory(ctx, 0)
	}
}

// evictExpired ends hosts whose time has come, and forgets those that ended by themselves.
func (p *Pool) evictExpired() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		switch {
		case s.users > 0:
		case s.hasExited():
			p.evict(s, "it ended by itself")
		case p.cfg.TTL > 0 && time.Since(s.used) > p.cfg.TTL:
			p.evict(s, "nobody used it for "+p.cfg.TTL.String())
		}
	}
}

// Close ends all hosts, those in use as well: it is for a worker whose tasks have ended. Without it they stay for the next life.
func (p *Pool) Close() {
	for {
		p.mu.Lock()
		p.closed = true
		var starting *server
		for _, s := range p.servers {
			select {
			case <-s.ready:
				p.evict(s, "the worker ends")
			default:
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

func poolDir(data string) string { return filepath.Join(data, "warm") }

// errExited is that of a host which ended before it could be used.
var errExited = errors.New("it ended at once")
