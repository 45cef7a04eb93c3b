package dtf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/origin"
	"github.com/muster-dev/muster/internal/wake"
)

// The defaults of DTF's workers.
const (
	DefaultCoordinator       = "http://localhost:8080"
	DefaultHeartbeat         = 10 * time.Second
	DefaultReconnectInterval = 5 * time.Second
	DefaultReconnectAttempts = 10
	DefaultHealthCheck       = 30 * time.Second
)

const (
	minPause            = 10 * time.Millisecond // of heartbeats, health checks and tries
	maxReconnect        = time.Minute           // between two tries
	defaultFleetTimeout = 30 * time.Second      // for a worker of Muster before the bridge registers
	connTimeout         = 30 * time.Second      // for a connection to report a result
)

// BridgeConfig configures a Bridge.
type BridgeConfig struct {
	Coordinators []string // URLs, used one at a time; the first one names the cluster
	Registry     string   // a file with more URLs, created if it is missing; "" for none
	WorkerID     string   // "" means the last one, or a new UUID
	Name         string   // the hostname that the coordinator shows; "" means the host's
	APIKey       string
	Token        string // a JWT, preferred to the key
	Secret       string // secret_key of coordinators that verify signatures; "" disables signatures
	Tags         []string

	Heartbeat         time.Duration // 0 means DefaultHeartbeat
	HealthCheck       time.Duration // between two checks of the fleet; 0 means DefaultHealthCheck
	ReconnectInterval time.Duration // before the second try, doubling; 0 means DefaultReconnectInterval
	ReconnectAttempts int           // before a bridge that never connected returns an error; 0 means DefaultReconnectAttempts
	HighAvailability  bool          // start with the last coordinator, never give up, and halve Heartbeat and HealthCheck

	MaxTasks    int           // announced to coordinators; 0 means the slots of the fleet
	TaskTimeout time.Duration // maximum and default timeout of tasks; 0 means none
	TestsDir    string        // directory of test files; "" means that tests have no files
	ResultsFile string        // SQLite file for results; "" for none

	Stop <-chan struct{} // when closed, accept no new tasks, and return from Run when everything is reported; nil means never

	Dir     string // of this bridge alone
	Version string
	Core    bridge.Config // without Dir, System and Origin
}

// Bridge is a worker of DTF's coordinators that runs its tasks on Muster.
type Bridge struct {
	cfg             BridgeConfig
	signer          signer
	log             *slog.Logger
	http            *http.Client
	core            *bridge.Bridge
	results         *results // nil for none
	registerTimeout time.Duration
	fleetTimeout    time.Duration // see defaultFleetTimeout
	offersReady     chan struct{} // a token if there are new offers
	cancelsReady    chan struct{} // a token if cancelQueue is not empty

	mu            sync.Mutex
	state         bridgeState
	conn          *coordinatorConn // nil while there is none
	changed       chan struct{}    // closed and replaced when conn changes
	progress      map[string]float64
	heartbeatTask string            // the task in the last heartbeat
	cancelled     map[string]string // task → reason, until the cancellation is reported
	cancelQueue   []string          // of cancelled, not cancelled in Muster yet
	cancelNotices []taskNotice
	capacity      bridge.Capacity
	checkedAt     time.Time
	warned        bool
}

// bridgeState is the state of a bridge on disk, beside its outbox.
type bridgeState struct {
	WorkerID    string `json:"worker_id"`
	Origin      string `json:"origin"` // the first worker id, also after a coordinator changed it: a part of idempotency keys
	Token       string `json:"token,omitempty"`
	Coordinator string `json:"coordinator,omitempty"` // the last connected one
}

// taskMeta is the bridge.Job.Meta of a task.
type taskMeta struct {
	Type   string          `json:"type"`
	Config json.RawMessage `json:"config,omitempty"`
}

// NewBridge opens the state of a bridge. It does not connect before Run.
func NewBridge(ctx context.Context, cfg BridgeConfig) (_ *Bridge, err error) {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, DefaultHeartbeat)
	cfg.HealthCheck = cmp.Or(cfg.HealthCheck, DefaultHealthCheck)
	cfg.ReconnectInterval = cmp.Or(cfg.ReconnectInterval, DefaultReconnectInterval)
	cfg.ReconnectAttempts = cmp.Or(cfg.ReconnectAttempts, DefaultReconnectAttempts)
	if cfg.HighAvailability {
		cfg.Heartbeat, cfg.HealthCheck = cfg.Heartbeat/2, cfg.HealthCheck/2
	}
	cfg.Heartbeat, cfg.HealthCheck, cfg.ReconnectInterval = max(cfg.Heartbeat, minPause), max(cfg.HealthCheck, minPause), max(cfg.ReconnectInterval, minPause)
	if cfg.Registry != "" {
		if cfg.Coordinators, err = loadRegistry(cfg.Registry, cfg.Coordinators); err != nil {
			return nil, err
		}
	}
	for i, c := range cfg.Coordinators {
		if _, err := socketURL(c); err != nil {
			return nil, err
		}
		cfg.Coordinators[i] = strings.TrimRight(c, "/")
	}
	if len(cfg.Coordinators) == 0 {
		return nil, muster.Errorf(muster.Invalid, "missing coordinator: use --coordinator")
	}
	host, _ := os.Hostname() // "" if it is not known
	cfg.Name = cmp.Or(cfg.Name, host, "muster")
	b := &Bridge{
		cfg: cfg, signer: signer{cfg.Secret}, log: cfg.Core.Log, http: origin.Client(&http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}),
		registerTimeout: defaultRegisterTimeout, fleetTimeout: defaultFleetTimeout, offersReady: wake.New(), cancelsReady: wake.New(), changed: make(chan struct{}), progress: map[string]float64{}, cancelled: map[string]string{},
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "offers"), 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot create the bridge's directory: %w", err)
	}
	if err := b.load(); err != nil {
		return nil, err
	}
	cfg.Core.Dir, cfg.Core.System = filepath.Join(cfg.Dir, "jobs"), "dtf"
	cfg.Core.Origin = cfg.Coordinators[0] + "\x00" + b.state.Origin // a task that moves to another worker is another job
	if b.core, err = bridge.New(cfg.Core, (*reporter)(b)); err != nil {
		return nil, err
	}
	if cfg.ResultsFile != "" {
		if b.results, err = openResults(ctx, cfg.ResultsFile); err != nil {
			return nil, errors.Join(err, b.core.Close())
		}
	}
	return b, nil
}

// loadRegistry adds the coordinators in a file, one per line or as a JSON list. It creates a missing file.
func loadRegistry(path string, explicit []string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		list, _ := json.MarshalIndent(map[string][]string{"coordinators": explicit}, "", "  ") // never fails
		return explicit, writeState(path, append(list, '\n'))
	}
	if err != nil || len(raw) > maxConfig {
		return nil, muster.Errorf(muster.Invalid, "--coordinator-registry: cannot read %s: %w", path, cmp.Or(err, errors.New("the file is too large")))
	}
	found, err := parseRegistry(raw)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "--coordinator-registry: %s: %w", path, err)
	}
	all := slices.Clone(explicit)
	for _, url := range found {
		if url = strings.TrimRight(url, "/"); !slices.ContainsFunc(all, func(c string) bool { return strings.TrimRight(c, "/") == url }) {
			all = append(all, url)
		}
	}
	return all, nil
}

func parseRegistry(raw []byte) ([]string, error) {
	var object struct {
		Coordinators []string `json:"coordinators"`
	}
	var list []string
	text := strings.TrimSpace(string(raw))
	switch {
	case strings.HasPrefix(text, "{"):
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			return nil, muster.Errorf(muster.Invalid, "not an object with a list coordinators: %w", err)
		}
		list = object.Coordinators
	case strings.HasPrefix(text, "["):
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, muster.Errorf(muster.Invalid, "not a list of URLs: %w", err)
		}
	default:
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				list = append(list, line)
			}
		}
	}
	if len(list) > 100 {
		return nil, muster.Errorf(muster.Invalid, "more than 100 coordinators")
	}
	for _, url := range list {
		if _, err := socketURL(url); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (b *Bridge) load() error {
	raw, err := os.ReadFile(b.statePath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return muster.Errorf(muster.Invalid, "cannot read the bridge's state: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(raw, &b.state); err != nil {
			return muster.Errorf(muster.Invalid, "%s is damaged: start once with --reset-state: %w", b.statePath(), err)
		}
	}
	if b.cfg.WorkerID != "" && b.cfg.WorkerID != b.state.WorkerID {
		b.state = bridgeState{WorkerID: b.cfg.WorkerID}
	}
	if b.state.WorkerID == "" {
		b.state.WorkerID = dialect.NewUUID()
	}
	b.state.Origin = cmp.Or(b.state.Origin, b.state.WorkerID)
	b.state.Token = cmp.Or(b.cfg.Token, b.state.Token)
	return b.save()
}

func (b *Bridge) statePath() string { return filepath.Join(b.cfg.Dir, "worker.json") }

// save writes the state. The caller holds mu, or is alone.
func (b *Bridge) save() error { return writeState(b.statePath(), lenient.MustMarshal(b.state)) }

// Close closes a Bridge without Run.
func (b *Bridge) Close() error { return errors.Join(b.core.Close(), b.results.close()) }

// Run serves coordinators until ctx ends. It returns an error if no coordinator accepts this worker.
func (b *Bridge) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{b.core.Run, b.prepareLoop, b.watchFleet, b.connectLoop, b.cancelLoop, b.drain} {
		group.Go(func() error { return run(ctx) })
	}
	err := errors.Join(group.Wait(), b.results.close())
	if errors.Is(err, context.Canceled) || errors.Is(err, errDrained) {
		return nil
	}
	return err
}

var errDrained = errors.New("everything is reported")

// drain returns errDrained once cfg.Stop is closed and everything is reported.
func (b *Bridge) drain(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-b.cfg.Stop:
	}
	for b.core.Pending() > 0 {
		if backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			return nil //nolint:nilerr // ctx ended
		}
	}
	return errDrained
}

func (b *Bridge) stopping() bool {
	select {
	case <-b.cfg.Stop:
		return true
	default:
		return false
	}
}

// connectLoop maintains a connection to one of the coordinators.
func (b *Bridge) connectLoop(ctx context.Context) error {
	if err := b.awaitFleet(ctx); err != nil {
		return err
	}
	i := max(0, slices.Index(b.cfg.Coordinators, b.currentState().Coordinator))
	if !b.cfg.HighAvailability {
		i = 0
	}
	wait, tries, connectedOnce := b.cfg.ReconnectInterval, 0, false
	for {
		if !b.shouldServe() {
			if err := b.awaitFleet(ctx); err != nil {
				return err
			}
		}
		url := b.cfg.Coordinators[i]
		l, err := b.dial(ctx, url)
		if err == nil {
			var registered bool
			if registered, err = l.serve(ctx); registered {
				tries, wait, connectedOnce = 0, b.cfg.ReconnectInterval, true
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		tries++
		switch {
		case !connectedOnce && len(b.cfg.Coordinators) == 1 && slices.Contains([]muster.Code{muster.Unauthenticated, muster.Forbidden, muster.Invalid}, muster.CodeOf(err)):
			return err
		case !connectedOnce && !b.cfg.HighAvailability && tries >= b.cfg.ReconnectAttempts:
			return muster.Errorf(muster.CodeOf(err), "no connection after %d tries: %w", tries, err)
		case tries >= b.cfg.ReconnectAttempts: // start over, as DTF's workers do
			tries, wait = 0, b.cfg.ReconnectInterval
		}
		if len(b.cfg.Coordinators) > 1 {
			i = (i + 1) % len(b.cfg.Coordinators)
		}
		b.log.Warn("not connected to the coordinator, retrying", slog.String("coordinator", url), slog.Any("why", err), slog.String("next", b.cfg.Coordinators[i]), slog.Duration("in", wait))
		if backoff.Sleep(ctx, wait) != nil {
			return ctx.Err()
		}
		wait = min(2*wait, max(maxReconnect, b.cfg.ReconnectInterval))
	}
}

// awaitFleet waits for capacity to register: for fleetTimeout, or for cfg.Core.Worker without limit.
func (b *Bridge) awaitFleet(ctx context.Context) error {
	end, pause := time.Now().Add(b.fleetTimeout), 100*time.Millisecond
	for b.refreshCapacity(ctx); !b.hasCapacity(); b.refreshCapacity(ctx) {
		if time.Now().After(end) {
			if b.shouldServe() {
				b.log.Warn("no active worker, registering without capacity")
				return nil
			}
			pause = b.cfg.HealthCheck
		}
		if backoff.Sleep(ctx, pause) != nil {
			return ctx.Err()
		}
	}
	return nil
}

// hasCapacity reports whether the last check found an active worker. A single worker must also run a kind of DTF.
func (b *Bridge) hasCapacity() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cfg.Core.Worker == "" {
		return len(b.capacity.Workers) > 0
	}
	return slices.ContainsFunc(b.capacity.Kinds, isMapped)
}

// shouldServe reports whether the bridge should be connected. A bridge for a single worker is not while the worker is missing and
// nothing is to be reported.
func (b *Bridge) shouldServe() bool {
	return b.cfg.Core.Worker == "" || b.hasCapacity() || b.core.Pending() > 0
}

func (b *Bridge) watchFleet(ctx context.Context) error {
	for backoff.Sleep(ctx, b.cfg.HealthCheck) == nil {
		b.refreshCapacity(ctx)
	}
	return nil
}

func (b *Bridge) refreshCapacity(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := b.core.Capacity(ctx)
	if b.cfg.Core.Worker != "" && muster.CodeOf(err) == muster.NotFound {
		c, err = bridge.Capacity{}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if !b.warned && ctx.Err() == nil {
			b.log.Warn("cannot read the workers", slog.Any("why", err))
		}
		b.warned = true
		return
	}
	b.capacity, b.checkedAt, b.warned = c, time.Now(), false
}

func (b *Bridge) currentState() bridgeState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// setIdentity stores the id and the token that a coordinator assigns; "" keeps the current value, and the token "-" removes it.
func (b *Bridge) setIdentity(id, token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	previous := b.state
	b.state.WorkerID = cmp.Or(id, b.state.WorkerID)
	b.state.Token = cmp.Or(token, b.state.Token)
	if token == "-" {
		b.state.Token = ""
	}
	if b.state != previous {
		if err := b.save(); err != nil {
			b.log.Warn("the worker's id and token are not kept", slog.Any("why", err))
		}
	}
}

// setConn makes l the connection on which results go.
func (b *Bridge) setConn(l *coordinatorConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = l
	close(b.changed)
	b.changed = make(chan struct{})
	if b.state.Coordinator != l.url {
		b.state.Coordinator = l.url
		if err := b.save(); err != nil {
			b.log.Warn("cannot write the bridge's state", slog.Any("why", err))
		}
	}
	b.log.Info("registered with the coordinator", slog.String("coordinator", l.url), slog.String("id", b.state.WorkerID))
}

func (b *Bridge) clearConn(l *coordinatorConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == l {
		b.conn = nil
	}
}

// awaitConn waits up to connTimeout for a connection.
func (b *Bridge) awaitConn(ctx context.Context) (*coordinatorConn, error) {
	ctx, cancel := context.WithTimeout(ctx, connTimeout)
	defer cancel()
	for {
		b.mu.Lock()
		l, changed := b.conn, b.changed
		b.mu.Unlock()
		if l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, muster.Errorf(muster.Unavailable, "not connected to a coordinator")
		}
	}
}

// capabilities returns the capacity of the fleet as DTF's workers report it.
func (b *Bridge) capabilities(ctx context.Context) *capabilities {
	b.refreshCapacity(ctx)
	b.mu.Lock()
	h := b.capacity
	b.mu.Unlock()
	c := &capabilities{
		Hostname: b.cfg.Name, Platform: runtime.GOOS + "-" + runtime.GOARCH, Hardware: []string{"cpu"},
		CPU:    cpu{Model: "Unknown", Cores: h.Resources.CPUs, Threads: h.Resources.CPUs},
		Memory: memory{TotalGB: lenient.InGiB(h.Resources.Memory), AvailableGB: lenient.InGiB(h.Free.Memory)},
		Tags:   b.cfg.Tags,
		Muster: &musterCapabilities{Version: b.cfg.Version, Cancel: true, Tasks: cmp.Or(b.cfg.MaxTasks, h.Resources.Slots, 1)},
	}
	for _, t := range mappedTypes {
		if slices.Contains(h.Kinds, t) {
			c.Muster.Types = append(c.Muster.Types, t)
		}
	}
	for i := range h.Resources.GPUs {
		g := &h.Resources.GPUs[i]
		c.addHardware(map[string]string{"nvidia": "cuda", "amd": "rocm", "apple": "mps"}[g.Vendor])
		if i == 0 {
			c.GPU = gpus{Name: g.Name, MemoryGB: lenient.InGiB(g.Memory)}
		}
		c.GPU.Count++
		c.GPU.Devices = append(c.GPU.Devices, gpu{Index: i, Name: g.Name, MemoryGB: lenient.InGiB(g.Memory)})
	}
	for _, t := range b.cfg.Tags { // coordinators select by hardware only
		c.addHardware(t)
	}
	return c
}

func (c *capabilities) addHardware(hardware string) {
	if hardware != "" && !slices.Contains(c.Hardware, hardware) {
		c.Hardware = append(c.Hardware, hardware)
	}
}

func round(f float64) float64 { return float64(int64(f*100+0.5)) / 100 }
