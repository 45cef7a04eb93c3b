package warm

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
	Data   string                     // the worker's data dir
	TTL    time.Duration              // how long a host stays that nobody uses
	Spare  muster.Size                // memory of the machine that is to be left free
	Free   func() (muster.Size, bool) // memory of the machine that is free; false if that is not known. nil: never known
	Limits run.Limiter                // nil: hosts are not held
	GPUs   run.Devices                // nil: nobody looks after them
	Log    *slog.Logger
}

// Keeper implements run.Warm.
type Keeper struct {
	cfg   Config
	waits waits

	mu     sync.Mutex
	hosts  map[string]*host // by key
	going  map[*host]bool   // those that are being ended, and still hold what they had
	last   int              // number of the host that was made last
	closed bool
	ends   sync.WaitGroup // of hosts that are being ended
}

var _ run.Warm = (*Keeper)(nil)

// waits are how long the keeper has patience.
type waits struct {
	answer time.Duration // for a new host to answer
	leave  time.Duration // for one to end by itself
	tick   time.Duration // between looks at what is there
	grace  time.Duration // that a host stays longer by itself than the keeper lets it
}

var patience = waits{answer: time.Minute, leave: 3 * time.Second, tick: 2 * time.Second, grace: time.Minute}

// New returns the keeper of a data dir, with the hosts of an earlier life that still answer. The others are ended.
func New(cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, waits: patience, hosts: map[string]*host{}, going: map[*host]bool{}}
	dir := folder(cfg.Data)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Internal, "the folder of warm hosts cannot be made: %w", err)
	}
	left := Left(cfg.Data)
	sweep(cfg, left)
	for _, l := range left {
		k.last = max(k.last, l.Attempt.Task.Num)
		h := l.host
		if k.hosts[l.Key] == nil && h.alive() {
			h.used = time.Now()
			h.ended = make(chan struct{})
			k.hosts[l.Key] = h
			cfg.Log.Info("a warm host of an earlier life is taken over", slog.String("host", h.id.String()), slog.Int("pid", h.Proc.PID))
			continue
		}
		h.kill(cfg.Log)
		h.clear(cfg)
	}
	return k, nil
}

// Socket implements run.Warm. The host may end while it is used, as when the kernel takes it.
func (k *Keeper) Socket(ctx context.Context, want *run.Host, watch run.Watch) (path string, release func(), err error) {
	for {
		k.mu.Lock()
		if k.closed {
			k.mu.Unlock()
			return "", nil, run.Failf(muster.WorkerShutdown, "the worker shuts down")
		}
		h := k.hosts[want.Key]
		if h != nil && h.users == 0 && !h.matches(want) {
			k.part(h, "it was started for other settings") //nolint:contextcheck // a host is ended whoever waits for it
			h = nil
		}
		if h == nil {
			k.last++
			h = newHost(k.cfg.Data, k.last, want)
			h.users = 1
			k.hosts[want.Key] = h
			k.mu.Unlock()
			if err := k.start(ctx, h, want, watch); err != nil {
				return "", nil, err
			}
			return h.socket(), k.releaser(h), nil
		}
		h.users++
		k.mu.Unlock()
		release := k.releaser(h)
		select {
		case <-h.ready:
		case <-ctx.Done():
			release()
			return "", nil, context.Cause(ctx)
		}
		if h.answers() {
			return h.socket(), release, nil
		}
		release()
		k.mu.Lock()
		k.part(h, "it does not answer") //nolint:contextcheck // a host is ended whoever waits for it
		k.mu.Unlock()
	}
}

// start starts a host that is in the map, and takes it out again if it does not come to answer.
func (k *Keeper) start(ctx context.Context, h *host, want *run.Host, watch run.Watch) error {
	watch.Step("starting a host for the model")
	k.Room(ctx, want.Memory)
	var err error
	if k.short(want.Memory) {
		err = run.Failf(muster.WorkerInternal, "there is too little memory free on this machine for a host that keeps the model loaded")
	} else {
		err = h.start(ctx, &k.cfg, want, k.waits)
	}
	k.mu.Lock()
	if err != nil {
		delete(k.hosts, h.Key)
	}
	close(h.ready)
	k.mu.Unlock()
	if err != nil {
		h.kill(k.cfg.Log)
		h.clear(k.cfg) //nolint:contextcheck // a host is ended whoever waits for it
		return err
	}
	k.cfg.Log.Info("a warm host is started", slog.String("host", h.id.String()), slog.Int("pid", h.Proc.PID), slog.String("for", want.Attempt.String()))
	return nil
}

// releaser returns what ends the use of a host, once.
func (k *Keeper) releaser(h *host) func() {
	return sync.OnceFunc(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		h.users--
		h.used = time.Now()
		h.trimLog()
	})
}

// part ends a host in the background. The lock is held.
func (k *Keeper) part(h *host, why string) {
	if k.hosts[h.Key] != h {
		return // somebody was faster
	}
	delete(k.hosts, h.Key)
	k.cfg.Log.Info("a warm host is ended", slog.String("host", h.id.String()), slog.String("why", why))
	k.going[h] = true
	k.ends.Go(func() {
		h.end(k.cfg.Log, k.waits.leave)
		h.clear(k.cfg)
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.going, h)
	})
}

// Evict implements run.Warm. Hosts in use stay: who uses one has the device, too.
func (k *Keeper) Evict(ctx context.Context, gpus []string, key string) error {
	return k.endAll(ctx, "its GPU is wanted", func(h *host) bool {
		return h.Key != key && slices.ContainsFunc(h.GPUs, func(uuid string) bool { return slices.Contains(gpus, uuid) })
	})
}

// endAll ends those that nobody uses, and returns when they are gone with what they had, and so are those that were on their way before.
func (k *Keeper) endAll(ctx context.Context, why string, which func(*host) bool) error {
	k.mu.Lock()
	var gone []*host
	for _, h := range k.hosts {
		if h.users == 0 && which(h) {
			gone = append(gone, h)
		}
	}
	for _, h := range gone {
		k.part(h, why) //nolint:contextcheck // a host is ended whoever waits for it
	}
	for h := range k.going {
		if which(h) && !slices.Contains(gone, h) {
			gone = append(gone, h)
		}
	}
	k.mu.Unlock()
	for _, h := range gone {
		select {
		case <-h.cleared:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Room implements run.Warm.
func (k *Keeper) Room(ctx context.Context, memory muster.Size) {
	for k.short(memory) {
		h := k.next()
		if h == nil {
			return
		}
		if err := k.endAll(ctx, "its memory is wanted", func(other *host) bool { return other == h }); err != nil {
			return
		}
	}
}

// short reports whether the machine has less memory free than this, besides what is to be left.
func (k *Keeper) short(memory muster.Size) bool {
	if k.cfg.Free == nil {
		return false
	}
	free, ok := k.cfg.Free()
	return ok && free < k.cfg.Spare+memory
}

// next returns the host whose memory is free next: one that is being ended, or else the one that was unused for longest; nil if all are in use.
func (k *Keeper) next() *host {
	k.mu.Lock()
	defer k.mu.Unlock()
	for h := range k.going {
		select {
		case <-h.cleared:
		default:
			return h
		}
	}
	var oldest *host
	for _, h := range k.hosts {
		if h.users == 0 && (oldest == nil || h.used.Before(oldest.used)) {
			oldest = h
		}
	}
	return oldest
}

// Run ends hosts in time, until ctx ends. Those that are left go on.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(k.waits.tick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		k.look() //nolint:contextcheck // a host is ended whoever waits for it
		k.Room(ctx, 0)
	}
}

// look ends hosts whose time has come, and forgets those that ended by themselves.
func (k *Keeper) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.hosts {
		switch {
		case h.users > 0:
		case h.isOver():
			k.part(h, "it ended by itself")
		case k.cfg.TTL > 0 && time.Since(h.used) > k.cfg.TTL:
			k.part(h, "nobody used it for "+k.cfg.TTL.String())
		}
	}
}

// Close ends all hosts, those in use as well: it is for a worker whose tasks have ended. Without it they stay for the next life.
func (k *Keeper) Close() {
	for {
		k.mu.Lock()
		k.closed = true
		var starting *host
		for _, h := range k.hosts {
			select {
			case <-h.ready:
				k.part(h, "the worker ends")
			default:
				starting = h
			}
		}
		k.mu.Unlock()
		if starting == nil {
			break
		}
		<-starting.ready
	}
	k.ends.Wait()
}

func folder(data string) string { return filepath.Join(data, "warm") }

// errOver is that of a host which ended before it could be used.
var errOver = errors.New("it ended at once")
