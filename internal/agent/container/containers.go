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
	cfg      Config
	timeouts timeouts
	auth     *registryAuth
	puller   *puller
	usage    *imageUsage
	program  ProgramCopy
	checkNow chan struct{} // holds one token if the engine is to be asked at once
	cgroups  string        // where the kernel's are

	mu           sync.Mutex
	about        *docker.Info      // nil until the engine was ready once
	notReady     error             // why no container can be run
	created      map[string]string // IDs of containers of this life that are not removed yet, by name; "" while one is made
	recovered    map[string]bool   // IDs of those of earlier lives that are held; nil while that is not known
	sweepPending bool              // something may have been left
	lateUntil    time.Time         // until then the engine may make what was asked of it earlier, and nobody waits for
}

var _ run.Containers = (*Containers)(nil)

// timeouts are how long is waited for what.
type timeouts struct {
	poll        time.Duration // between questions to the engine
	request     time.Duration // for what it answers at once where it is well
	operation   time.Duration // for a container to be made or removed
	stall       time.Duration // for a sign of life of a pull
	unpack      time.Duration // the same, while bytes are checked and unpacked
	slowWindow  time.Duration // in which a pull brings at least rate bytes a second
	minRate     int64
	retryDelays []time.Duration
	absentTTL   time.Duration // for which an image that is nowhere is not asked for again
	minUnused   time.Duration // in which an image that was used is not removed
	lateCreate  time.Duration // for an engine to make what it was asked for when it hung, or its worker was killed
}

var defaultTimeouts = timeouts{
	poll: 5 * time.Second, request: 5 * time.Second, operation: 2 * time.Minute,
	stall: time.Minute, unpack: 15 * time.Minute, slowWindow: 5 * time.Minute, minRate: 10 << 10, retryDelays: []time.Duration{2 * time.Second, 8 * time.Second},
	absentTTL: 5 * time.Second, minUnused: time.Minute, lateCreate: time.Minute,
}

// errNotChecked is what is known before Run has asked.
var errNotChecked = errors.New("the container engine was not asked yet")

// New returns the containers of a worker, with what an earlier life of it noted of its images. Until Run has
// asked the engine none can be made.
func New(cfg Config) (*Containers, error) {
	auth, err := newRegistryAuth(cfg.Credentials)
	if err != nil {
		return nil, err
	}
	if cfg.Devices == nil {
		cfg.Devices = func() []gpu.Device { return nil }
	}
	cfg.PIDs = cmp.Or(cfg.PIDs, 4096)
	c := &Containers{
		cfg: cfg, timeouts: defaultTimeouts, auth: auth, checkNow: make(chan struct{}, 1), cgroups: "/sys/fs/cgroup",
		usage: openImageUsage(cfg.Dir, cfg.Log), notReady: errNotChecked, created: map[string]string{},
	}
	c.puller = newPuller(&c.timeouts, c.pull)
	return c, nil
}

// Ready implements run.Containers.
func (c *Containers) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notReady
}

// About tells what the engine was when it was ready last, nil if it never was.
func (c *Containers) About() *docker.Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.about
}

// Run asks the engine again and again whether it is ready, and calls changed when that changes, with why
// it is not, and once at the start. It keeps images within their budget. It ends with ctx.
func (c *Containers) Run(ctx context.Context, changed func(error)) error {
	tick := time.NewTicker(c.timeouts.poll)
	defer tick.Stop()
	for first := true; ; first = false {
		was, now := c.Ready(), c.Check(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if first || (was == nil) != (now == nil) {
			changed(now)
		}
		if now == nil {
			c.sweepIfPending(ctx)
			c.evictImages(ctx)
		}
		select {
		case <-tick.C:
		case <-c.checkNow:
		case <-ctx.Done():
			return nil
		}
	}
}

// Check asks the engine whether it is ready, and notes the answer for Ready. Run does so again and again.
func (c *Containers) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.request, fmt.Errorf("it did not answer within %s", c.timeouts.request))
	defer cancel()
	var about *docker.Info
	var err error
	if c.Ready() == nil {
		err = c.cfg.Engine.Ping(ctx)
	} else if about, err = c.cfg.Engine.Info(ctx); err == nil && about.OS != "linux" {
		err = fmt.Errorf("the container engine at %s runs containers of %s: let it run those of Linux", c.cfg.Engine.Host(), about.OS)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if about != nil && err == nil {
		c.about, c.sweepPending, c.lateUntil = about, true, time.Now().Add(c.timeouts.lateCreate) // it was not there for a while
	}
	c.notReady = err
	return err
}

// checkSoon has Run ask the engine at once, for it failed.
func (c *Containers) checkSoon() {
	select {
	case c.checkNow <- struct{}{}:
	default:
	}
}

// Remove implements run.Containers. What cannot be removed is swept later.
func (c *Containers) Remove(ctx context.Context, ctr *run.Container) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, fmt.Errorf("it took longer than %s", c.timeouts.operation))
	defer cancel()
	c.untrack(ctr.ID)
	engine := c.cfg.Engine
	if ctr.Engine != engine.Host() { // of an earlier life
		var err error
		if engine, err = docker.Open(ctr.Engine); err != nil {
			return err
		}
		defer func() { _ = engine.Close() }()
	}
	if err := engine.Remove(ctx, ctr.ID); err != nil {
		c.markSweep()
		if errors.Is(err, docker.ErrUnreachable) {
			c.checkSoon()
		}
		return err
	}
	return nil
}

// Sweep removes the containers of this worker that nobody holds: keep are those of earlier lives that are held. What was
// made in this life is kept, too. From now on Run does the same whenever the engine is back.
func (c *Containers) Sweep(ctx context.Context, recovered []*run.Container) error {
	c.mu.Lock()
	c.recovered, c.sweepPending = map[string]bool{}, false
	for _, k := range recovered {
		c.recovered[k.ID] = true
	}
	c.mu.Unlock()
	if err := c.removeOrphans(ctx); err != nil {
		c.markSweep()
		return err
	}
	return nil
}

// sweepIfPending sweeps if something may have been left.
func (c *Containers) sweepIfPending(ctx context.Context) {
	c.mu.Lock()
	due := (c.sweepPending || time.Now().Before(c.lateUntil)) && c.recovered != nil
	c.sweepPending = c.sweepPending && !due
	c.mu.Unlock()
	if !due {
		return
	}
	if err := c.removeOrphans(ctx); err != nil {
		c.markSweep()
		c.cfg.Log.Warn("containers of ended tasks cannot be removed, trying again", slog.Any("error", err))
	}
}

// markSweep notes that something may have been left.
func (c *Containers) markSweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepPending = true
}

// removeOrphans removes the containers of this worker that nobody holds.
func (c *Containers) removeOrphans(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, errTimeout)
	defer cancel()
	list, err := c.list(ctx, LabelWorker, c.cfg.Worker)
	if err != nil {
		return err
	}
	var failed []error
	for i := range list {
		l := &list[i]
		if c.inUse(l) {
			continue
		}
		if err := c.removeOne(ctx, l.ID); err != nil {
			failed = append(failed, err)
			continue
		}
		c.cfg.Log.Info("removed a container that an earlier task left", slog.String("container", l.Name), slog.String("task", l.Labels[LabelAttempt]))
	}
	return errors.Join(failed...)
}

// list lists containers. An engine that stands still is not waited for: nobody else would hear of that meanwhile.
func (c *Containers) list(ctx context.Context, label, value string) ([]docker.ContainerSummary, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.request, errTimeout)
	defer cancel()
	return c.cfg.Engine.Containers(ctx, label, value)
}

// removeOne removes a container, or has it removed later: one that hangs must not keep others from going.
func (c *Containers) removeOne(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.request, errTimeout)
	defer cancel()
	return c.cfg.Engine.Remove(ctx, id)
}

// inUse says whether a container is of use, or somebody else's.
func (c *Containers) inUse(l *docker.ContainerSummary) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, created := c.created[l.Name]
	return created || c.recovered[l.ID] || !BelongsTo(c.cfg.Worker, l)
}

// BelongsTo reports whether a container was made for a task of a worker. Its labels alone do not say so: what
// somebody runs of an image that he made of such a container has them as well.
func BelongsTo(worker string, l *docker.ContainerSummary) bool {
	return l.Labels[LabelWorker] == worker && strings.HasPrefix(l.Name, NamePrefix(worker))
}

// track notes that a container of this name is being made, or was, with its EventID.
func (c *Containers) track(name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created[name] = id
}

// untrack notes that a container is of no use any more.
func (c *Containers) untrack(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.recovered, id)
	maps.DeleteFunc(c.created, func(_, ctrID string) bool { return ctrID == id })
}

// The labels of every container, by which a later life of the worker knows it.
const (
	LabelWorker  = "dev.muster.worker"
	LabelAttempt = "dev.muster.attempt"
	LabelData    = "dev.muster.data"
)

// maxWorkerInName is how much of what names the worker is in the names of its containers.
const maxWorkerInName = 40

// containerName is that of an attempt's container.
func (c *Containers) containerName(a muster.AttemptID) string {
	return fmt.Sprintf("%s%s-%d", NamePrefix(c.cfg.Worker), a.Task, a.N)
}

// NamePrefix begins the names of a worker's containers.
func NamePrefix(worker string) string {
	worker = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, worker)
	return "muster-" + worker[:min(maxWorkerInName, len(worker))] + "-"
}
