package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/userns"
	"github.com/muster-dev/muster/internal/wake"
)

// Config configures Containers.
type Config struct {
	Engine      *docker.Engine
	Worker      string              // identifies the worker, also after a restart
	Dir         string              // the worker's data dir
	Budget      muster.Size         // disk space for images that tasks pulled; 0 means unlimited
	Credentials string              // a config.json of Docker; "" means that of the user
	Allow       *muster.Allow       // what the worker's owner allows containers
	PIDs        int                 // default limit of processes and threads of a task; 0 means 4096
	Swap        bool                // tasks may use the machine's swap beyond their memory
	Devices     func() []gpu.Device // of the machine; nil means none
	Log         *slog.Logger
}

// Containers creates the containers of one worker. It implements process.Containers. Run must run while it is used. Its methods may be
// called concurrently.
type Containers struct {
	cfg      Config
	timeouts timeouts
	auth     *registryAuth
	puller   *puller
	usage    *imageUsage
	private  *privateImages
	staging  *staging
	program  ProgramCopy
	checkNow chan struct{} // has one token if the engine must be checked at once
	cgroups  string        // path of the kernel's control groups

	mu           sync.Mutex
	about        *docker.Info // nil until the engine was ready once
	users        userns.Description
	notReady     error             // why no container can be created
	created      map[string]string // IDs of containers that this incarnation has created and not removed, by name; "" during creation
	recovered    map[string]bool   // IDs of recovered containers of earlier incarnations; nil until Sweep
	sweepPending bool              // containers may have been left
	lateUntil    time.Time         // until then the engine may still create a container of an abandoned request
}

// timeouts are variable for tests.
type timeouts struct {
	poll        time.Duration // between checks of the engine
	request     time.Duration // for requests that a healthy engine answers at once
	operation   time.Duration // to create or remove a container
	stall       time.Duration // of a pull without progress
	unpack      time.Duration // the same, while bytes are verified and unpacked
	slowWindow  time.Duration // in which the average rate of a pull must reach minRate
	minRate     int64         // bytes per second
	retryDelays []time.Duration
	absentTTL   time.Duration // how long a missing image is remembered
	minUnused   time.Duration // after a use, the image is not removed
	lateCreate  time.Duration // for an engine to finish a request after it hung, or after its worker was killed
}

var defaultTimeouts = timeouts{
	poll: 5 * time.Second, request: 5 * time.Second, operation: 2 * time.Minute,
	stall: time.Minute, unpack: 15 * time.Minute, slowWindow: 5 * time.Minute, minRate: 10 << 10, retryDelays: []time.Duration{2 * time.Second, 8 * time.Second},
	absentTTL: 5 * time.Second, minUnused: time.Minute, lateCreate: time.Minute,
}

// errNotChecked is the state before the first Check.
var errNotChecked = errors.New("the container engine is not checked yet")

// New returns the containers of a worker and reads its image usage. Create fails until Check or Run has checked the engine.
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
		usage: openImageUsage(cfg.Dir, cfg.Log), private: openPrivateImages(cfg.Dir, cfg.Log), staging: newStaging(cfg.Dir), notReady: errNotChecked, created: map[string]string{},
	}
	c.puller = newPuller(&c.timeouts, c.pull)
	return c, nil
}

// Ready implements process.Containers.
func (c *Containers) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notReady
}

// About returns the properties of the engine when it was ready last, nil if it never was.
func (c *Containers) About() *docker.Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.about
}

// Run checks the engine periodically until ctx ends. It calls changed at the start and whenever readiness changes, with the reason, nil
// for ready. It sweeps containers and keeps images within their budget.
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

// Check checks whether the engine is ready and stores the result for Ready. Run calls it periodically.
func (c *Containers) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.request, fmt.Errorf("it did not answer within %s", c.timeouts.request))
	defer cancel()
	var about *docker.Info
	var err error
	if c.Ready() == nil {
		err = c.cfg.Engine.Ping(ctx)
	} else if about, err = c.cfg.Engine.Info(ctx); err == nil && about.OS != "linux" {
		err = fmt.Errorf("the container engine at %s runs %s containers: switch it to Linux containers", c.cfg.Engine.Host(), about.OS)
	}
	var users userns.Description
	if about != nil && err == nil {
		users = userns.Describe(c.cfg.Engine.Host(), about, c.cfg.Dir)
		c.findEngine(about)
		c.cfg.Log.Info("user namespaces of containers", slog.String("of", string(users.Mode)), slog.String("why", users.Why))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if about != nil && err == nil {
		c.about, c.users = about, users
		c.sweepPending, c.lateUntil = true, time.Now().Add(c.timeouts.lateCreate) // containers may have been left while it was unreachable
	}
	c.notReady = err
	return err
}

// findEngine finds out where the engine looks for mounts.
func (c *Containers) findEngine(about *docker.Info) {
	if os.Geteuid() != 0 || !c.isLocal(about) || about.Rootless {
		return
	}
	e, err := userns.FindEngine(c.cfg.Engine.Host())
	if err != nil { // it may be a proxy
		c.cfg.Log.Debug("the engine's process is unknown", slog.Any("error", err))
	}
	c.staging.setEngine(e)
}

func (c *Containers) checkSoon() { wake.Set(c.checkNow) }

// Started implements process.Containers.
func (c *Containers) Started(ctr *run.Container) {
	c.mu.Lock()
	name := ""
	for n, id := range c.created {
		if id == ctr.ID {
			name = n
		}
	}
	c.mu.Unlock()
	c.staging.release(name)
}

// Remove implements process.Containers. After an error the container is swept later.
func (c *Containers) Remove(ctx context.Context, ctr *run.Container) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, fmt.Errorf("it took longer than %s", c.timeouts.operation))
	defer cancel()
	c.Started(ctr) // if it was not
	c.untrack(ctr.ID)
	engine := c.cfg.Engine
	if ctr.Engine != engine.Host() { // of an earlier incarnation
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

// Sweep removes the containers of this worker except recovered ones and those that this incarnation has created. From then on Run does
// the same whenever the engine becomes ready.
func (c *Containers) Sweep(ctx context.Context, recovered []*run.Container) error {
	c.mu.Lock()
	c.recovered, c.sweepPending = map[string]bool{}, false
	for _, k := range recovered {
		c.recovered[k.ID] = true
	}
	c.mu.Unlock()
	return c.removeOrphans(ctx)
}

func (c *Containers) sweepIfPending(ctx context.Context) {
	c.mu.Lock()
	due := (c.sweepPending || time.Now().Before(c.lateUntil)) && c.recovered != nil
	c.sweepPending = c.sweepPending && !due
	c.mu.Unlock()
	if !due {
		return
	}
	if err := c.removeOrphans(ctx); err != nil {
		c.cfg.Log.Warn("removing containers of ended tasks failed, retrying", slog.Any("error", err))
	}
}

func (c *Containers) markSweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepPending = true
}

// removeOrphans removes the containers of this worker that are not in use. After an error it is repeated later.
func (c *Containers) removeOrphans(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			c.markSweep()
		}
	}()
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
		c.cfg.Log.Info("orphaned container removed", slog.String("container", l.Name), slog.String("task", l.Labels[LabelAttempt]))
	}
	return errors.Join(failed...)
}

// list lists containers, with a short timeout, because Run cannot report a hanging engine meanwhile.
func (c *Containers) list(ctx context.Context, label, value string) ([]docker.ContainerSummary, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.request, errTimeout)
	defer cancel()
	return c.cfg.Engine.Containers(ctx, label, value)
}

// removeOne removes a container, with a short timeout, so that a hanging one does not block the others.
func (c *Containers) removeOne(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.request, errTimeout)
	defer cancel()
	return c.cfg.Engine.Remove(ctx, id)
}

// inUse reports whether a container must not be removed: it is in use, or is not the worker's.
func (c *Containers) inUse(l *docker.ContainerSummary) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, created := c.created[l.Name]
	return created || c.recovered[l.ID] || !BelongsTo(c.cfg.Worker, l)
}

// BelongsTo reports whether a container was created for a task of a worker. Labels alone do not prove that: an image committed from
// such a container has them too.
func BelongsTo(worker string, l *docker.ContainerSummary) bool {
	return l.Labels[LabelWorker] == worker && strings.HasPrefix(l.Name, NamePrefix(worker))
}

// track records a container of this incarnation; id is "" during its creation.
func (c *Containers) track(name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created[name] = id
}

func (c *Containers) untrack(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.recovered, id)
	maps.DeleteFunc(c.created, func(_, ctrID string) bool { return ctrID == id })
}

// The labels of every container. The next incarnation of the worker finds containers by them.
const (
	LabelWorker  = "dev.muster.worker"
	LabelAttempt = "dev.muster.attempt"
	LabelData    = "dev.muster.data"
)

// maxWorkerInName is how many bytes of the worker's ID the names of its containers have.
const maxWorkerInName = 40

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
