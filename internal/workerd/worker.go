// Package work builds a whole worker from its parts and runs it.
package workerd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/hostpolicy"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/modelpool"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/origin"
)

// Config says what worker to build.
type Config struct {
	Server         string // base URL, such as "http://10.0.0.5:8700"
	Token          string // a join token; needed once for each data dir
	Name           string // "" means the host's
	Tags           []string
	Labels         map[string]string
	Price          float64            // per hour
	Address        string             // at which other workers reach this one; "" means where the server sees it
	Slots          int                // 0 means probe.Slots
	MaxTasks       int                // that run at once, whatever they ask for; 0 means no limit
	CPUs           float64            // 0 means what the machine has
	Memory         muster.Size        // 0 means what the machine has
	Data           string             // folder of everything that the worker keeps; made if it is not there
	Cache          muster.Size        // of fetched blobs; 0 means transfer.DefaultBudget
	Bandwidth      muster.Size        // bytes a second that transfers keep to; 0 means no cap
	LogCap         muster.Size        // of one attempt; 0 means run.DefaultLogCap
	ShutdownGrace  time.Duration      // for running tasks when the worker is told to stop
	AllowPrivate   bool               // scripts may be fetched from private addresses
	HostPolicy     hostpolicy.Options // how the machine is shared with its owner
	Isolation      isolation.Config   // how tasks are held; Data, Memory and Log are not asked for
	Engine         string             // where the container engine is: a URL, EngineNone, or EngineAuto, which "" means, too
	ImageDisk      muster.Size        // for images that tasks bring; 0 means DefaultImageDisk
	RegistryConfig string             // a config.json of Docker with credentials for registries; "" means the user's own
	Python         string             // the interpreter of all runtimes; "" makes environments for them
	Wheels         string             // the folder of packages that runtimes are made of; "" asks the package index
	RuntimeDisk    muster.Size        // for runtimes; 0 means runtimes.DefaultBudget
	AI             AI                 // how defined kinds are run
	Kinds          []string           // that are taken; nil means all
	Allow          muster.Allow       // what tasks may have, whatever the server says
	Version        string
	Metrics        *obs.Registry      // where the worker's metrics are registered, once; nil measures nothing
	Tracer         *obs.Tracer        // makes spans of attempts; nil makes none
	Attempts       *obs.AttemptTraces // is told which attempts are executed, for the log; may be nil
	HTTP           *http.Client       // how the server is reached, in place of the network; nil for that
	Shim           []string           // the command that outlives this process to stand by tasks; nil: tasks end with this process
}

// Worker is a worker that does nothing until Run.
type Worker struct {
	cfg        Config
	server     *url.URL
	log        *slog.Logger
	http       *http.Client
	force      chan struct{}
	detach     chan struct{} // closed by Leave
	detachOnce sync.Once     // of leave

	metrics *obs.Worker // nil if nothing is measured
	gauges  gaugeSources

	rejoined time.Time // when Run last got a new identity
	newProbe func(probe.Config) prober
}

// prober finds out what the machine has; it is a *probe.Probe, whose methods say more.
type prober interface {
	Run(ctx context.Context) (probe.Facts, error)
	Refresh(ctx context.Context, f *probe.Facts)
	Watch(ctx context.Context, known probe.Facts, first, every time.Duration, onProbe func(), onChange func(probe.Facts)) error
}

// New checks the configuration.
func New(cfg Config, log *slog.Logger) (*Worker, error) {
	server, err := url.Parse(cfg.Server)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" {
		return nil, muster.Errorf(muster.Invalid, "%q is not a server's URL: write --server such as http://10.0.0.5:8700", cfg.Server)
	}
	switch {
	case cfg.Data == "":
		return nil, muster.Errorf(muster.Invalid, "a worker needs a data dir: give --data")
	case cfg.Bandwidth > 0 && cfg.Bandwidth < minBandwidth:
		return nil, muster.Errorf(muster.Invalid, "--bandwidth %s is too little to work with: write at least %s", cfg.Bandwidth, minBandwidth)
	case cfg.Slots < 0 || cfg.MaxTasks < 0 || cfg.CPUs < 0 || cfg.Memory < 0 || cfg.Price < 0 || cfg.Cache < 0 || cfg.LogCap < 0 || cfg.Bandwidth < 0 || cfg.ShutdownGrace < 0:
		return nil, muster.Errorf(muster.Invalid, "--slots, --cpus, --memory, --price, sizes and times must not be negative")
	}
	for _, tag := range cfg.Tags {
		if tag == "" || len(tag) > muster.MaxNameSize || strings.ContainsFunc(tag, unicode.IsSpace) {
			return nil, muster.Errorf(muster.Invalid, "--tags: %q is no tag: write 1 to %d bytes without spaces, and a comma between two", tag, muster.MaxNameSize)
		}
	}
	if err := link.CheckAddress(cfg.Address); err != nil {
		return nil, muster.Errorf(muster.Invalid, "--address %w", err)
	}
	if err := cfg.checkEngine(); err != nil {
		return nil, err
	}
	if err := cfg.AI.check(); err != nil {
		return nil, err
	}
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the data dir cannot be found: %w", err)
	}
	if !cfg.accepts(muster.KindContainer) {
		cfg.Allow.Images = []string{} // a task that may run as either gets none
	}
	if cfg.AI.Kinds == "" {
		cfg.AI.Kinds = filepath.Join(cfg.Data, "kinds")
	}
	if err := cfg.checkKinds(); err != nil {
		return nil, err
	}
	cfg.Isolation.Data, cfg.Isolation.Swap, cfg.Isolation.Expose = cfg.Data, cfg.AI.EnableSwap, cfg.exposedPaths()
	if err := cfg.Isolation.Check(); err != nil {
		return nil, err
	}
	if cfg.HTTP == nil {
		cfg.HTTP = httpClient()
	}
	w := &Worker{
		cfg: cfg, server: server, log: log, http: cfg.HTTP, force: make(chan struct{}, 1), detach: make(chan struct{}),
		newProbe: func(c probe.Config) prober { return probe.New(c) },
	}
	w.registerMetrics()
	return w, nil
}

// httpClient has no timeout for a whole request, since blobs may be big and polls
// wait; each use bounds its own.
func httpClient() *http.Client {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   4,
	}
	return origin.Client(&http.Client{Transport: transport})
}

// ForceShutdown ends the grace of a shutdown: what still runs is killed and handed back.
// It may be called at any time.
func (w *Worker) ForceShutdown() {
	select {
	case w.force <- struct{}{}:
	default:
	}
}

// Detach ends Run, which returns run.ErrDetach: running tasks go on without a worker,
// and the next one on this data dir takes them up. It may be called at any time.
func (w *Worker) Detach() { w.detachOnce.Do(func() { close(w.detach) }) }

// Run joins the server if need be and works until ctx ends; then running tasks
// have Config.ShutdownGrace to end. It returns nil after that or after a drain,
// and an error if the server refuses the worker or the machine does not let it
// work. What an earlier life of the worker left running goes on. A worker that has a
// join token, and that the server does not know, joins again as a new one.
func (w *Worker) Run(ctx context.Context) error {
	for {
		if err := w.runOnce(ctx); !errors.Is(err, errRejoined) {
			return err
		}
	}
}

// runOnce is Run as one identity. It returns errRejoined when the worker has another one.
func (w *Worker) runOnce(ctx context.Context) (err error) {
	reports, err := agent.OpenReportStore(w.cfg.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reports.Close()) }()
	tasks, err := w.openSupervisor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tasks.Close()) }()
	canReach := w.cfg.Isolation.CanReach()
	machine := w.newProbe(probe.Config{Data: w.cfg.Data, Bandwidth: w.cfg.Bandwidth, CanReach: canReach, Engine: w.cfg.Engine})
	found, age, err := w.loadFacts(ctx, machine, len(tasks.Recovered()) > 0)
	if ctx.Err() != nil {
		return nil // told to stop before it began
	}
	if err != nil {
		return err
	}
	for _, note := range found.Notes {
		w.log.Info(note)
	}
	facts := w.applyConfig(found)
	id, err := w.identity(ctx, facts.Hostname)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	limits, err := w.newIsolator(facts.Resources.Memory) // before anything is started, which would be in the groups of tasks' way
	if err != nil {
		return err
	}
	defer limits.Close()
	orphans := modelpool.Orphans(w.cfg.Data)
	if err := sweep(limits, unreported(tasks.Recovered()), orphans); err != nil {
		w.log.Warn(err.Error())
	}
	devices := newGPUs(facts.GPUs, w.log)
	containers, err := w.openEngine(ctx, id, found.Engines, devices.known, tasks.Recovered())
	if err != nil {
		return err
	}
	facts.Resources.Disk += w.writtenDisk(ctx, recoveredGrants(tasks.Recovered()))
	logs, err := w.cleanUp(ctx, reports, tasks.Recovered())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	var (
		a        *agent.Agent         // nothing is saved before it runs
		enforcer *hostpolicy.Enforcer // nor is anything measured
	)
	onSaved := func(id muster.AttemptID, tree string) { a.CheckpointSaved(id, tree) }
	var load probe.Load
	var offered *offers // nothing is withheld before it is there
	allocator := w.newAllocator(facts.GPUs, age == stale, devices, tasks.Recovered(), orphans, func(why map[string]string) {
		if offered != nil {
			offered.withhold("board", why)
		}
	})
	measures := meter.New(meter.Config{
		Isolator: limits, GPUs: devices.Latest, Price: w.cfg.Price, Log: w.log,
		History: func(id muster.AttemptID) ([]muster.Sample, error) { return readSamples(ctx, logs, id) },
	})
	env := &run.Deps{Supervisor: tasks, Isolator: limits, Logs: logs, Meter: measures, GPUs: allocator, Path: taskPath(canReach)}
	if containers != nil {
		env.Containers = containers
	}
	models, err := w.newModelPool(env, found.Resources.Memory) //nolint:contextcheck // hosts of an earlier life are ended in any case
	if err != nil {
		return err
	}
	if models != nil {
		env.ModelPool = models
		defer func() { //nolint:contextcheck // hosts are ended whatever ended the worker
			if !errors.Is(err, run.ErrDetach) { // else they are the next life's
				models.Close()
			}
		}()
	}
	executors, ownKinds, err := w.newExecutors(id, env, onSaved)
	if err != nil {
		return err
	}
	a = agent.New(agent.Config{
		Identity: id, Name: facts.Hostname, Build: w.cfg.Version, Tags: facts.Tags, Labels: w.cfg.Labels, Price: w.cfg.Price,
		Address: w.cfg.Address, Resources: facts.Resources, Dir: w.cfg.Data, Allow: &w.cfg.Allow, Kinds: w.cfg.Kinds, OwnKinds: ownKinds, Executors: w.instrument(executors, id.Worker), Reports: reports, Logs: logs, Supervisor: tasks,
		Dialer: &link.Fallback{
			First:  &wslink.Dialer{Server: w.cfg.Server, Key: id.Key, HTTP: w.http},
			Second: &polllink.Dialer{Server: w.cfg.Server, Key: id.Key, HTTP: w.http},
		},
		Load: w.recordLoad(devices.load(load.Sample), func() *muster.DiskLoad { return enforcer.Disk() }), OnReportAcked: w.onSettled, Grace: w.cfg.ShutdownGrace, Log: w.log.With(slog.String("worker", string(id.Worker))), OnHeal: healer(allocator),
	})
	w.gauges.agent.Store(a)
	w.gauges.devices.Store(devices)
	offered = newOffers(facts.Tags, kindsOf(executors), facts.Resources, a.Offer)
	offered.setEnabled(muster.KindContainer, containers != nil && containers.Ready() == nil)
	offered.withhold("board", allocator.Quarantined())
	if age == stale {
		a.Constrain("machine", reprobing)
	}
	reprobe := func(ctx context.Context) error {
		return w.reprobe(ctx, machine, found, age, a, offered, devices, allocator)
	}
	enforcer = w.newEnforcer(a, offered, devices)
	enforcer.CheckThresholds(ctx)
	err = w.run(ctx, a, containers.run(offered), devices.Run, allocator.Run, measures.Run, limits.Run, runPool(models), enforcer.Run, w.watchKinds, reprobe)
	if errors.Is(err, agent.ErrUnknownWorker) {
		return w.rejoin(ctx, err, id, facts.Hostname, func() error { return forget(reports, tasks) })
	}
	return err
}

// run runs the agent and passes Hurry and Leave on. The rooms beside it are
// stopped when it has ended.
func (w *Worker) run(ctx context.Context, a *agent.Agent, background ...func(context.Context) error) (err error) {
	bgCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	for _, fn := range background {
		group.Go(func() error { return fn(bgCtx) })
	}
	defer func() {
		cancel()
		err = errors.Join(err, group.Wait())
	}()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	detach := w.detach
	for {
		select {
		case err := <-done:
			return err
		case <-w.force:
			a.ForceShutdown()
		case <-detach:
			a.Detach()
			detach = nil
		}
	}
}
