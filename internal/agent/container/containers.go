package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Config is what Containers are made of.
type Config struct {
	Engine      *docker.Engine
	Worker      string              // names the worker in all of its lives
	Dir         string              // its data dir
	Budget      muster.Size         // of the disk, for images that tasks brought here; 0 means no bound
	Credentials string              // a config.json of Docker; "" means the user's own
	Allow       *muster.Allow       // what the worker's owner lets containers have
	PIDs        int                 // processes and threads of a task that names no number; 0 means 4096
	Swap        bool                // tasks may use the machine's swap beyond their memory
	Devices     func() []gpu.Device // those of the machine; nil means that there are none
	Log         *slog.Logger
}

// Containers makes the containers of one worker. It implements run.Containers. Run
// keeps it going.
type Containers struct {
	cfg     Config
	waits   waits
	keys    *keys
	pulls   *pulls
	ledger  *ledger
	gate    Program
	asked   chan struct{} // holds one token if the engine is to be asked at once
	cgroups string        // where the kernel's are

	mu    sync.Mutex
	about *docker.About     // nil until the engine was ready once
	down  error             // why no container can be run
	made  map[string]string // IDs of containers of this life that are not removed yet, by name; "" while one is made
	kept  map[string]bool   // IDs of those of earlier lives that are held; nil while that is not known
	sweep bool              // something may have been left
	doubt time.Time         // until then the engine may make what was asked of it earlier, and nobody waits for
}

var _ run.Containers = (*Containers)(nil)

// waits are how long is waited for what.
type waits struct {
	ask    time.Duration // between questions to the engine
	answer time.Duration // for what it answers at once where it is well
	work   time.Duration // for a container to be made or removed
	stall  time.Duration // for a sign of life of a pull
	unpack time.Duration // the same, while bytes are checked and unpacked
	slow   time.Duration // in which a pull brings at least rate bytes a second
	rate   int64
	pauses []time.Duration
	absent time.Duration // for which an image that is nowhere is not asked for again
	fresh  time.Duration // in which an image that was used is not removed
	late   time.Duration // for an engine to make what it was asked for when it hung, or its worker was killed
}

var patience = waits{
	ask: 5 * time.Second, answer: 5 * time.Second, work: 2 * time.Minute,
	stall: time.Minute, unpack: 15 * time.Minute, slow: 5 * time.Minute, rate: 10 << 10, pauses: []time.Duration{2 * time.Second, 8 * time.Second},
	absent: 5 * time.Second, fresh: time.Minute, late: time.Minute,
}

// errUnasked is what is known before Run has asked.
var errUnasked = errors.New("the container engine was not asked yet")

// New returns the containers of a worker, with what an earlier life of it noted of its images. Until Run has
// asked the engine none can be made.
func New(cfg Config) (*Containers, error) {
	keys, err := newKeys(cfg.Credentials)
	if err != nil {
		return nil, err
	}
	if cfg.Devices == nil {
		cfg.Devices = func() []gpu.Device { return nil }
	}
	cfg.PIDs = cmp.Or(cfg.PIDs, 4096)
	c := &Containers{
		cfg: cfg, waits: patience, keys: keys, asked: make(chan struct{}, 1), cgroups: "/sys/fs/cgroup",
		ledger: openLedger(cfg.Dir, cfg.Log), down: errUnasked, made: map[string]string{},
	}
	c.pulls = newPulls(&c.waits, c.pull)
	return c, nil
}

// Ready implements run.Containers.
func (c *Containers) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down
}

// About tells what the engine was when it was ready last, nil if it never was.
func (c *Containers) About() *docker.About {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.about
}

// Run asks the engine again and again whether it is ready, and calls changed when that changes, with why
// it is not, and once at the start. It keeps images within their budget. It ends with ctx.
func (c *Containers) Run(ctx context.Context, changed func(error)) error {
	tick := time.NewTicker(c.waits.ask)
	defer tick.Stop()
	for first := true; ; first = false {
		was, now := c.Ready(), c.Ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if first || (was == nil) != (now == nil) {
			changed(now)
		}
		if now == nil {
			c.tidy(ctx)
			c.trim(ctx)
		}
		select {
		case <-tick.C:
		case <-c.asked:
		case <-ctx.Done():
			return nil
		}
	}
}

// Ask asks the engine whether it is ready, and notes the answer for Ready. Run does so again and again.
func (c *Containers) Ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.answer, fmt.Errorf("it did not answer within %s", c.waits.answer))
	defer cancel()
	var about *docker.About
	var err error
	if c.Ready() == nil {
		err = c.cfg.Engine.Ping(ctx)
	} else if about, err = c.cfg.Engine.About(ctx); err == nil && about.OS != "linux" {
		err = fmt.Errorf("the container engine at %s runs containers of %s: let it run those of Linux", c.cfg.Engine.Host(), about.OS)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if about != nil && err == nil {
		c.about, c.sweep, c.doubt = about, true, time.Now().Add(c.waits.late) // it was not there for a while
	}
	c.down = err
	return err
}

// suspect has Run ask the engine at once, for it failed.
func (c *Containers) suspect() {
	select {
	case c.asked <- struct{}{}:
	default:
	}
}

// Remove implements run.Containers. What cannot be removed is swept later.
func (c *Containers) Remove(ctx context.Context, of *run.Container) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.work, fmt.Errorf("it took longer than %s", c.waits.work))
	defer cancel()
	c.disown(of.ID)
	engine := c.cfg.Engine
	if of.Engine != engine.Host() { // of an earlier life
		var err error
		if engine, err = docker.Open(of.Engine); err != nil {
			return err
		}
		defer func() { _ = engine.Close() }()
	}
	if err := engine.Remove(ctx, of.ID); err != nil {
		c.left()
		if errors.Is(err, docker.ErrDown) {
			c.suspect()
		}
		return err
	}
	return nil
}

// Sweep removes the containers of this worker that nobody holds: keep are those of earlier lives that are held. What was
// made in this life is kept, too. From now on Run does the same whenever the engine is back.
func (c *Containers) Sweep(ctx context.Context, keep []*run.Container) error {
	c.mu.Lock()
	c.kept, c.sweep = map[string]bool{}, false
	for _, k := range keep {
		c.kept[k.ID] = true
	}
	c.mu.Unlock()
	if err := c.clear(ctx); err != nil {
		c.left()
		return err
	}
	return nil
}

// tidy sweeps if something may have been left.
func (c *Containers) tidy(ctx context.Context) {
	c.mu.Lock()
	due := (c.sweep || time.Now().Before(c.doubt)) && c.kept != nil
	c.sweep = c.sweep && !due
	c.mu.Unlock()
	if !due {
		return
	}
	if err := c.clear(ctx); err != nil {
		c.left()
		c.cfg.Log.Warn("containers of ended tasks cannot be removed, trying again", slog.Any("error", err))
	}
}

// left notes that something may have been left.
func (c *Containers) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep = true
}

// clear removes the containers of this worker that nobody holds.
func (c *Containers) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.work, errSlow)
	defer cancel()
	list, err := c.list(ctx, LabelWorker, c.cfg.Worker)
	if err != nil {
		return err
	}
	var failed []error
	for i := range list {
		l := &list[i]
		if c.holds(l) {
			continue
		}
		if err := c.clearOne(ctx, l.ID); err != nil {
			failed = append(failed, err)
			continue
		}
		c.cfg.Log.Info("removed a container that an earlier task left", slog.String("container", l.Name), slog.String("task", l.Labels[LabelAttempt]))
	}
	return errors.Join(failed...)
}

// list lists containers. An engine that stands still is not waited for: nobody else would hear of that meanwhile.
func (c *Containers) list(ctx context.Context, label, value string) ([]docker.Listed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.answer, errSlow)
	defer cancel()
	return c.cfg.Engine.Containers(ctx, label, value)
}

// clearOne removes a container, or has it removed later: one that hangs must not keep others from going.
func (c *Containers) clearOne(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.answer, errSlow)
	defer cancel()
	return c.cfg.Engine.Remove(ctx, id)
}

// holds says whether a container is of use, or somebody else's.
func (c *Containers) holds(l *docker.Listed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, made := c.made[l.Name]
	return made || c.kept[l.ID] || !Made(c.cfg.Worker, l)
}

// Made reports whether a container was made for a task of a worker. Its labels alone do not say so: what
// somebody runs of an image that he made of such a container has them as well.
func Made(worker string, l *docker.Listed) bool {
	return l.Labels[LabelWorker] == worker && strings.HasPrefix(l.Name, Prefix(worker))
}

// claim notes that a container of this name is being made, or was, with its EventID.
func (c *Containers) claim(name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[name] = id
}

// disown notes that a container is of no use any more.
func (c *Containers) disown(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, id)
	maps.DeleteFunc(c.made, func(_, of string) bool { return of == id })
}

// The labels of every container, by which a later life of the worker knows it.
const (
	LabelWorker  = "dev.muster.worker"
	LabelAttempt = "dev.muster.attempt"
	LabelData    = "dev.muster.data"
)

// mostWorker is how much of what names the worker is in the names of its containers.
const mostWorker = 40

// name is that of an attempt's container.
func (c *Containers) name(a muster.AttemptID) string {
	return fmt.Sprintf("%s%s-%d", Prefix(c.cfg.Worker), a.Task, a.N)
}

// Prefix begins the names of a worker's containers.
func Prefix(worker string) string {
	worker = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, worker)
	return "muster-" + worker[:min(mostWorker, len(worker))] + "-"
}
