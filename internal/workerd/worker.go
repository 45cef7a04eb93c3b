// Package workerd builds a worker from its parts and runs it.
package workerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/devices"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/hostpolicy"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/modelpool"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/taskexec"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/obs"
	"github.com/muster-dev/muster/internal/origin"
	"github.com/muster-dev/muster/internal/sshsig"
	"github.com/muster-dev/muster/internal/wake"
)

// Config configures a Worker.
type Config struct {
	Server string // base URL, such as "http://10.0.0.5:8700"
	Token  string // a join token; needed once per data dir
	CA     string // fingerprint of the server's certificate authority (origin.Options); "" means that of the token, else that of the identity
	// TLSServerName is the name that the server's certificate must have; "" means the host of Server.
	TLSServerName string
	ClientCert    string // file with the certificate that the worker presents to the server; "" for none
	ClientKey     string // file with its key
	// NewToken makes a join token when one is needed and Token is ""; nil for none. The worker that joins again by it is "" for the first join.
	NewToken       func(ctx context.Context, worker muster.WorkerID) (string, error)
	Name           string // "" means that of the last start with a name, else the hostname
	Tags           []string
	Labels         map[string]string
	Price          float64            // per hour
	Heartbeat      muster.Duration    // interval of heartbeats, from link.MinHeartbeat to link.MaxHeartbeat; 0 means the server's
	Address        string             // where other workers reach this one; "" means the address that the server sees
	Slots          int                // 0 means probe.Slots
	MaxTasks       int                // maximum number of concurrent tasks, whatever they request; 0 means no limit
	CPUs           float64            // 0 means all of the machine
	Memory         muster.Size        // 0 means all of the machine
	Data           string             // the data directory; it is created if it does not exist
	Cache          muster.Size        // maximum size of the cache of blobs; 0 means transfer.DefaultBudget
	Bandwidth      muster.Size        // maximum rate of transfers in bytes per second; 0 means no limit
	LogCap         muster.Size        // maximum of the output of an attempt that is kept; 0 means what the job sets, or muster.DefaultLogCap
	ShutdownGrace  time.Duration      // how long tasks may run after a shutdown began
	AllowPrivate   bool               // scripts may be fetched from private addresses
	HostPolicy     hostpolicy.Options // how the machine is shared with its owner
	Isolation      isolation.Config   // of tasks; Data, Memory and Log are ignored
	Engine         string             // the container engine: a URL, EngineNone or EngineAuto; "" means EngineAuto
	ImageDisk      muster.Size        // maximum disk space of images; 0 means DefaultImageDisk
	RegistryConfig string             // a config.json of Docker with credentials for registries; "" means the user's own
	Python         string             // the interpreter of all runtimes; "" creates environments for them
	Wheels         string             // the directory of packages for runtimes; "" means the package index
	RuntimeDisk    muster.Size        // maximum disk space of runtimes; 0 means runtimes.DefaultBudget
	ModelDisk      muster.Size        // maximum disk space of models that tasks download; 0 means no limit
	AI             AI                 // settings of the AI kinds
	Kinds          []string           // allowed kinds; nil means all
	Allow          muster.Allow       // what tasks may use, whatever the server says; SignedBy follows from TrustKeys
	TrustKeys      string             // a file with public keys: run only jobs that one of them signed; "" for all jobs
	OnStarted      func()             // called when the data directory is in use, before the worker joins the server; may be nil
	Version        string
	Metrics        *obs.Registry      // of the worker's metrics; may be nil
	Tracer         *obs.Tracer        // of attempts; may be nil
	Attempts       *obs.AttemptTraces // records which attempts are executed, for the log; may be nil
	HTTP           *http.Client       // for the server; nil means a default client
	Shim           []string           // the command of the shim, which outlives this process; nil: tasks end with this process

	trusted []sshsig.TrustedKey // of TrustKeys; nil if it is ""
}

// slowProbe is after which time the log says that the machine is probed.
const slowProbe = 2 * time.Second

// quarantine is the source of devices that are withheld because they are broken.
const quarantine = "quarantine"

// Worker is a worker that does nothing until Run.
type Worker struct {
	cfg        Config
	server     *url.URL
	ca         string // fingerprint of the server's certificate authority, "" for those of the system
	log        *slog.Logger
	http       *http.Client
	force      chan struct{} // gets a token from ForceShutdown
	detach     chan struct{} // closed by Detach
	detachOnce sync.Once

	metrics *obs.Worker // may be nil
	gauges  gaugeSources

	storedName string // of the last start with a name

	rejoined time.Time // when Run last got a new identity
	newProbe func(probe.Config) prober
}

// prober is the part of *probe.Probe that a Worker needs.
type prober interface {
	probe.Prober
	Watch(ctx context.Context, known probe.Facts, first, every time.Duration, onProbe func(), onChange func(probe.Facts)) error
}

// New validates the configuration.
func New(cfg Config, log *slog.Logger) (*Worker, error) {
	server, err := url.Parse(cfg.Server)
	if err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https" {
		return nil, muster.Errorf(muster.Invalid, "%q is not a server's URL: use --server with one such as http://10.0.0.5:8700", muster.HideCredentials(cfg.Server))
	}
	switch {
	case cfg.Data == "":
		return nil, muster.Errorf(muster.Invalid, "the worker needs a data dir: set --data")
	case cfg.Bandwidth > 0 && cfg.Bandwidth < minBandwidth:
		return nil, muster.Errorf(muster.Invalid, "--bandwidth %s is too small: use at least %s", cfg.Bandwidth, minBandwidth)
	case cfg.Slots < 0 || cfg.MaxTasks < 0 || cfg.CPUs < 0 || cfg.Memory < 0 || cfg.Price < 0 || cfg.Cache < 0 || cfg.ModelDisk < 0 || cfg.LogCap < 0 || cfg.Bandwidth < 0 || cfg.ShutdownGrace < 0:
		return nil, muster.Errorf(muster.Invalid, "--slots, --cpus, --memory, --price, sizes and times must not be negative")
	}
	if a := &cfg.Allow; a.MaxTaskTimeout > 0 && a.TaskTimeout > a.MaxTaskTimeout {
		return nil, muster.Errorf(muster.Invalid, "--task-timeout %s is longer than --max-task-timeout %s: use at most that", a.TaskTimeout, a.MaxTaskTimeout)
	}
	for _, tag := range cfg.Tags {
		if tag == "" || len(tag) > muster.MaxNameSize || strings.ContainsFunc(tag, unicode.IsSpace) {
			return nil, muster.Errorf(muster.Invalid, "invalid tag %q in --tags: use 1 to %d bytes without spaces, separated by commas", tag, muster.MaxNameSize)
		}
	}
	if err := link.CheckAddress(cfg.Address); err != nil {
		return nil, muster.Errorf(muster.Invalid, "--address %w", err)
	}
	if err := link.CheckHeartbeat(cfg.Heartbeat); err != nil {
		return nil, muster.Errorf(muster.Invalid, "--heartbeat %w", err)
	}
	if err := cfg.checkEngine(); err != nil {
		return nil, err
	}
	if err := cfg.AI.check(); err != nil {
		return nil, err
	}
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot resolve the data dir: %w", err)
	}
	if !cfg.accepts(muster.KindContainer) {
		cfg.Allow.Images = []string{} // a task with isolation: auto gets no container either
	}
	if err := cfg.readTrustedKeys(); err != nil {
		return nil, err
	}
	cfg.AI.Kinds = cfg.kindsDir()
	if err := cfg.checkKinds(); err != nil {
		return nil, err
	}
	cfg.Isolation.Data, cfg.Isolation.Swap, cfg.Isolation.Expose = cfg.Data, cfg.AI.EnableSwap, cfg.exposedPaths()
	if err := cfg.Isolation.Check(); err != nil {
		return nil, err
	}
	ca, err := cfg.trust(server)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, server: server, ca: ca, log: log, http: cfg.HTTP, force: make(chan struct{}, 1), detach: make(chan struct{}),
		newProbe: func(c probe.Config) prober { return probe.New(c) },
	}
	if cfg.Metrics != nil {
		w.metrics = obs.NewWorker(cfg.Metrics, w.sample)
	}
	return w, nil
}

// trust removes the fingerprint from the token, returns the fingerprint of the authority that the worker trusts, and sets HTTP unless it
// is set. The fingerprint of the configuration replaces that of the identity: the server may have a new authority.
func (c *Config) trust(server *url.URL) (ca string, err error) {
	token, pin := auth.SplitToken(c.Token)
	c.Token = token
	if c.HTTP != nil {
		return "", nil // within this process
	}
	ca = cmp.Or(c.CA, pin)
	if ca == "" {
		id, _, err := agent.LoadIdentity(c.Data)
		if err != nil {
			return "", err
		}
		ca = id.CA
	}
	c.HTTP, err = origin.NewClientFor(server, origin.Options{CA: ca, ServerName: c.TLSServerName, ClientCert: c.ClientCert, ClientKey: c.ClientKey, MaxIdleConnsPerHost: 4}, pin)
	return ca, err
}

// ForceShutdown ends the grace of a shutdown: running tasks are killed and returned to the server. It is safe for concurrent use.
func (w *Worker) ForceShutdown() { wake.Set(w.force) }

// Detach ends Run, which returns run.ErrDetach: running tasks continue without a worker, and the next process on this data dir recovers
// them. It is safe for concurrent use.
func (w *Worker) Detach() { w.detachOnce.Do(func() { close(w.detach) }) }

// Alive returns an error if the worker does not respond before ctx ends, for a watchdog. An unreachable server is not an error. It is
// safe for concurrent use.
func (w *Worker) Alive(ctx context.Context) error {
	responded := make(chan struct{})
	go func() {
		w.status()
		close(responded)
	}()
	select {
	case <-responded:
		return nil
	case <-ctx.Done():
		return errors.New("the worker does not respond")
	}
}

// Summary returns the state of the worker as one line. It is safe for concurrent use.
func (w *Worker) Summary() string {
	st := w.status()
	if !st.Connected {
		return "connecting to " + w.cfg.Server
	}
	tasks := "1 task"
	if st.Executing != 1 {
		tasks = strconv.Itoa(st.Executing) + " tasks"
	}
	return fmt.Sprintf("connected to %s, %s running", w.cfg.Server, tasks)
}

// Run joins the server if necessary and works until ctx ends; then running tasks have Config.ShutdownGrace to end. It returns nil after
// that or after a drain, and an error if the server refuses the worker or the machine does not let it work. Tasks from before a restart
// continue. A worker with a join token that the server does not know joins again with a new identity.
func (w *Worker) Run(ctx context.Context) error {
	for {
		if err := w.runOnce(ctx); !errors.Is(err, errRejoined) {
			return err
		}
	}
}

// runOnce runs the worker with one identity. It returns errRejoined when the worker has a new one.
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
	if w.cfg.OnStarted != nil {
		w.cfg.OnStarted()
	}
	canReach := w.cfg.Isolation.CanReach()
	detector := w.newProbe(probe.Config{Data: w.cfg.Data, Bandwidth: w.cfg.Bandwidth, CanReach: canReach, Engine: w.cfg.Engine})
	cache := probe.NewCache(w.cfg.Data, w.factsBasis(), w.log)
	slow := time.AfterFunc(slowProbe, func() { w.log.Info("probing the machine") })
	found, age, err := cache.Load(ctx, detector, len(tasks.Recovered()) > 0)
	slow.Stop()
	if ctx.Err() != nil {
		return nil // ctx ended
	}
	if err != nil {
		return err
	}
	for _, note := range found.Notes {
		w.log.Info(note)
	}
	if err := w.recallName(); err != nil {
		return err
	}
	facts := w.applyConfig(found)
	id, err := w.identity(ctx, facts.Hostname)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	if id, err = w.remember(id); err != nil {
		return err
	}
	isolationConfig := w.cfg.Isolation
	isolationConfig.Memory, isolationConfig.Log = facts.Resources.Memory, w.log
	limits, err := isolation.New(isolationConfig) // before processes are started, which would be in the way of control groups
	if err != nil {
		return err
	}
	defer limits.Close()
	orphans := modelpool.Orphans(w.cfg.Data)
	if err := sweep(limits, unreported(tasks.Recovered()), orphans); err != nil {
		w.log.Warn(err.Error())
	}
	devices := gpu.NewStream(facts.GPUs, gpuInterval, w.log)
	containers, err := w.openEngine(ctx, id, found.Engines, devices.Devices, tasks.Recovered())
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
		a        *agent.Agent         // set before any checkpoint is saved; nil until something is offered
		enforcer *hostpolicy.Enforcer // set before the load is measured
	)
	onSaved := func(id muster.AttemptID, tree string) { a.CheckpointSaved(id, tree) }
	var load probe.Load
	allocator := w.newAllocator(facts.GPUs, age == probe.Stale, devices, tasks.Recovered(), orphans, func(why map[string]string) {
		if a != nil {
			a.Withhold(quarantine, why)
		}
	})
	usageMeter := meter.New(meter.Config{
		Isolator: limits, GPUs: devices.Latest, Price: w.cfg.Price, Log: w.log,
		History: func(id muster.AttemptID) ([]muster.Sample, error) { return readSamples(ctx, logs, id) },
	})
	credentials := agent.NewCredentials(id, w.server, w.http, w.cfg.Data, w.log)
	dialer := &link.Fallback{
		First:  &wslink.Dialer{Server: w.cfg.Server, Credentials: credentials, HTTP: w.http},
		Second: &polllink.Dialer{Server: w.cfg.Server, Credentials: credentials, HTTP: w.http},
	}
	commands := taskexec.New(taskexec.Config{Dial: dialer.DialExec, Log: w.log})
	env := &process.Deps{Deps: run.Deps{Worker: facts.Hostname, Isolator: limits, Path: taskPath(canReach)}, Supervisor: tasks, Logs: logs, Meter: usageMeter, GPUs: allocator, Access: commands, Execer: tasks}
	if containers != nil {
		env.Containers = containers
	}
	models, err := w.newModelPool(env, found.Resources.Memory) //nolint:contextcheck // model servers from before a restart are stopped in any case
	if err != nil {
		return err
	}
	if models != nil {
		env.ModelPool = models
		defer func() { //nolint:contextcheck // model servers are stopped for any reason
			if !errors.Is(err, run.ErrDetach) { // else the next process recovers them
				models.Close()
			}
		}()
	}
	executors, customKinds, checks, err := w.newExecutors(credentials, env, models, onSaved)
	if err != nil {
		return err
	}
	onExec := commands.Open
	if w.cfg.trusted != nil {
		onExec = nil // no key signs a command
	}
	a = agent.New(agent.Config{
		Identity: id, Name: facts.Hostname, Build: w.cfg.Version, Tags: facts.Tags, Labels: w.cfg.Labels, Price: w.cfg.Price,
		Address: w.cfg.Address, Heartbeat: w.cfg.Heartbeat, Resources: facts.Resources, Dir: w.cfg.Data, Allow: &w.cfg.Allow, Kinds: w.cfg.Kinds, OwnKinds: customKinds, Executors: w.instrument(executors, id.Worker), Reports: reports, Logs: logs, Supervisor: tasks,
		Dialer: dialer, Lacks: w.lacks(), OnExec: onExec, Signed: w.signatures(reports, facts.Hostname),
		Load: func(ctx context.Context) *muster.Load {
			return w.recordLoad(load.Sample(ctx), devices, enforcer.Disk())
		},
		OnReportAcked: w.onSettled, OnRefused: w.onRefused, Grace: w.cfg.ShutdownGrace, Log: w.log.With(slog.String("worker", string(id.Worker))),
		OnHeal: func(uuids []string) {
			if slices.Contains(uuids, link.HealAll) {
				uuids = nil
			}
			allocator.Heal(uuids...)
		},
	})
	w.gauges.agent.Store(a)
	w.gauges.devices.Store(devices)
	a.EnableKind(muster.KindContainer, containers != nil && containers.Ready() == nil)
	checks.start(a.EnableKind)
	a.Withhold(quarantine, allocator.Quarantined())
	if age == probe.Stale {
		a.Constrain("machine", reprobing)
	}
	reprobe := func(ctx context.Context) error {
		return w.reprobe(ctx, detector, cache, found, age, a, devices, allocator)
	}
	enforcer = w.newEnforcer(a, devices)
	enforcer.CheckThresholds(ctx)
	background := []func(context.Context) error{commands.Run, devices.Run, allocator.Run, usageMeter.Run, limits.Run, enforcer.Run, w.watchKinds, checks.run, reprobe}
	if containers != nil {
		background = append(background, containers.run(a))
	}
	if models != nil {
		background = append(background, models.Run)
	}
	err = w.run(ctx, a, background...)
	if errors.Is(err, agent.ErrUnknownWorker) || w.hasOtherToken(id, err) {
		return w.rejoin(ctx, err, id, facts.Hostname, func() error { return forget(reports, tasks) })
	}
	return err
}

// run runs the agent and passes ForceShutdown and Detach to it. It stops background after the agent has ended.
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

// lacks lists the features that the worker does not have: on this system, or because it runs nothing that is not signed.
func (w *Worker) lacks() []string {
	if runtime.GOOS == "linux" && w.cfg.trusted == nil {
		return nil
	}
	return []string{muster.FeatureExec}
}

// gpuInterval is the time between two readings of a device.
const gpuInterval = 2 * time.Second

// newAllocator returns the allocator of the worker's GPUs. If the facts are stale, their readings do not count. Model servers may have
// devices, like recovered attempts.
func (w *Worker) newAllocator(found []gpu.Device, stale bool, readings *gpu.Stream, recovered []run.Recovered, orphans []modelpool.Orphan, withhold func(map[string]string)) *devices.Allocator {
	cfg := devices.Config{Data: w.cfg.Data, BootID: proctree.BootID(), Readings: readings, Withhold: withhold, Log: w.log}
	for i := range recovered {
		cfg.Recovered = append(cfg.Recovered, recovered[i].Start.Attempt)
	}
	for i := range orphans {
		cfg.Recovered = append(cfg.Recovered, orphans[i].Attempt)
	}
	if stale {
		found = slices.Clone(found)
		for i := range found {
			found[i].Reading = gpu.Reading{}
		}
	}
	return devices.New(cfg, found)
}
