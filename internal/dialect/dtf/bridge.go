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
	minPause            = 10 * time.Millisecond // between heartbeats, looks at the fleet and tries
	maxReconnect        = time.Minute           // between two tries, however many failed
	defaultFleetTimeout = 30 * time.Second      // until a worker of Muster is there, whose capacity is then registered
	connTimeout         = 30 * time.Second      // of a result, for a connection
)

// BridgeConfig is what a bridge to DTF's coordinators is made of.
type BridgeConfig struct {
	Coordinators []string // URLs, of which one is used at a time; the first one names the cluster
	Registry     string   // a file with more of them, which is made if it is not there; "" for none
	WorkerID     string   // "" means the one of the last time, or a new UUID
	Name         string   // the hostname that the coordinator shows; "" means the host's
	APIKey       string
	Token        string // a JWT, which comes before the key
	Secret       string // secret_key of coordinators that verify signatures; "" signs nothing
	Tags         []string

	Heartbeat         time.Duration // 0 means DefaultHeartbeat
	HealthCheck       time.Duration // between two looks at the fleet; 0 means DefaultHealthCheck
	ReconnectInterval time.Duration // before the second try, doubling; 0 means DefaultReconnectInterval
	ReconnectAttempts int           // in a row for each coordinator, until the bridge gives up that never connected; 0 means DefaultReconnectAttempts
	HighAvailability  bool          // coordinators are switched after a failure, nothing is given up, and health is reported twice as often

	MaxTasks    int           // that are said to be possible at once; 0 means the slots of the fleet
	TaskTimeout time.Duration // the longest of a task, and that of those that name none; 0 means none
	TestsDir    string        // folder with the test files that tasks name; "" means that tests bring nothing
	ResultsFile string        // SQLite file that keeps results; "" for none

	Stop <-chan struct{} // once it is closed nothing new is taken, and Run returns when everything is reported; nil: never

	Dir     string // of this bridge alone
	Version string
	Core    bridge.Config // Dir, System, Origin are set here
}

// Bridge is a worker of DTF's coordinators that has Muster do the work.
type Bridge struct {
	cfg             BridgeConfig
	signer          signer
	log             *slog.Logger
	http            *http.Client
	core            *bridge.Bridge
	results         *results // nil for none
	registerTimeout time.Duration
	fleetTimeout    time.Duration // for a worker of Muster to be there
	offersReady     chan struct{} // an offer waits to be prepared
	cancelsReady    chan struct{} // a cancellation waits

	mu            sync.Mutex
	state         bridgeState
	conn          *coordinatorConn // nil while there is none
	changed       chan struct{}    // closed and replaced when line changes
	progress      map[string]float64
	heartbeatTask string            // the task of which the last heartbeat spoke
	cancelled     map[string]string // why, by task, until that is reported
	cancelQueue   []string          // of cancelled, of which Muster does not know yet
	cancelNotices []taskNotice
	capacity      bridge.Capacity
	checkedAt     time.Time
	warned        bool
}

// bridgeState is what a bridge keeps over restarts beside its outbox.
type bridgeState struct {
	WorkerID    string `json:"worker_id"`
	Origin      string `json:"origin"` // its first id, also after a coordinator gave it another one: a part of idempotency keys
	Token       string `json:"token,omitempty"`
	Coordinator string `json:"coordinator,omitempty"` // that was connected last
}

// taskMeta is what is kept of a task besides its job.
type taskMeta struct {
	Type   string          `json:"type"`
	Config json.RawMessage `json:"config,omitempty"`
}

// NewBridge opens the state of a bridge. Nothing is connected before Run.
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
		return nil, muster.Errorf(muster.Invalid, "a bridge needs a coordinator: give --coordinator")
	}
	if cfg.Name == "" {
		if cfg.Name, err = os.Hostname(); err != nil {
			cfg.Name = "muster"
		}
	}
	b := &Bridge{
		cfg: cfg, signer: signer{cfg.Secret}, log: cfg.Core.Log, http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}},
		registerTimeout: defaultRegisterTimeout, fleetTimeout: defaultFleetTimeout, offersReady: wake.New(), cancelsReady: wake.New(), changed: make(chan struct{}), progress: map[string]float64{}, cancelled: map[string]string{},
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "offers"), 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the bridge's folder cannot be made: %w", err)
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

// loadRegistry adds the coordinators that a file names, one a line or as a JSON list, and makes the file if it is not there.
func loadRegistry(path string, explicit []string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		list, err := json.MarshalIndent(map[string]any{"coordinators": explicit}, "", "  ")
		if err != nil {
			return nil, muster.Errorf(muster.Internal, "--coordinator-registry: %w", err)
		}
		return explicit, writeState(path, append(list, '\n'))
	}
	if err != nil || len(raw) > maxConfig {
		return nil, muster.Errorf(muster.Invalid, "--coordinator-registry: %s cannot be read: %w", path, errors.Join(err))
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
			return nil, muster.Errorf(muster.Invalid, "it is no object with a list coordinators: %w", err)
		}
		list = object.Coordinators
	case strings.HasPrefix(text, "["):
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, muster.Errorf(muster.Invalid, "it is no list of URLs: %w", err)
		}
	default:
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				list = append(list, line)
			}
		}
	}
	if len(list) > 100 {
		return nil, muster.Errorf(muster.Invalid, "it names more than 100 coordinators")
	}
	for _, url := range list {
		if _, err := socketURL(url); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// load reads who this worker was.
func (b *Bridge) load() error {
	raw, err := os.ReadFile(b.statePath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return muster.Errorf(muster.Invalid, "the bridge's state cannot be read: %w", err)
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
	if b.cfg.Token != "" {
		b.state.Token = b.cfg.Token
	}
	return b.save()
}

func (b *Bridge) statePath() string { return filepath.Join(b.cfg.Dir, "worker.json") }

// save writes the state. mu is held, or nobody else knows b.
func (b *Bridge) save() error { return writeState(b.statePath(), marshalOrNull(b.state)) }

// Close closes a Bridge that was not run.
func (b *Bridge) Close() error {
	err := b.core.Close()
	if b.results != nil {
		err = errors.Join(err, b.results.close())
	}
	return err
}

// Run works until ctx ends. It returns an error if no coordinator ever lets this worker in.
func (b *Bridge) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.core.Run(ctx) })
	group.Go(func() error { return b.prepareLoop(ctx) })
	group.Go(func() error { return b.watchFleet(ctx) })
	group.Go(func() error { return b.connectLoop(ctx) })
	group.Go(func() error { return b.cancelLoop(ctx) })
	group.Go(func() error { return b.drain(ctx) })
	err := group.Wait()
	if b.results != nil {
		err = errors.Join(err, b.results.close())
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errDrained) {
		return nil
	}
	return err
}

var errDrained = errors.New("everything is reported")

// drain ends the bridge once it was told to stop and everything is reported.
func (b *Bridge) drain(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-b.cfg.Stop:
	}
	for b.core.Pending() > 0 {
		if backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			return nil
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

// connectLoop keeps a connection to one of the coordinators.
func (b *Bridge) connectLoop(ctx context.Context) error {
	if err := b.awaitFleet(ctx); err != nil {
		return err
	}
	i := max(0, slices.Index(b.cfg.Coordinators, b.lastCoordinator()))
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
			err = l.serve(ctx)
			if b.wasRegistered(l) {
				tries, wait, connectedOnce = 0, b.cfg.ReconnectInterval, true
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		tries++
		switch {
		case !connectedOnce && isFatal(err) && len(b.cfg.Coordinators) == 1:
			return err
		case !connectedOnce && !b.cfg.HighAvailability && tries >= b.cfg.ReconnectAttempts:
			return muster.Errorf(muster.CodeOf(err), "given up after %d tries: %w", tries, err)
		case tries >= b.cfg.ReconnectAttempts: // begin again, as DTF's workers do
			tries, wait = 0, b.cfg.ReconnectInterval
		}
		if len(b.cfg.Coordinators) > 1 {
			i = (i + 1) % len(b.cfg.Coordinators)
		}
		b.log.Warn("no connection to the coordinator", slog.String("coordinator", url), slog.Any("why", err), slog.String("next", b.cfg.Coordinators[i]), slog.Duration("in", wait))
		if backoff.Sleep(ctx, wait) != nil {
			return ctx.Err()
		}
		wait = min(2*wait, max(maxReconnect, b.cfg.ReconnectInterval))
	}
}

// awaitFleet waits until there is something to register: for a fleet not for ever, for one worker of it until it is there.
func (b *Bridge) awaitFleet(ctx context.Context) error {
	end, pause := time.Now().Add(b.fleetTimeout), 100*time.Millisecond
	for b.refreshCapacity(ctx); !b.hasCapacity(); b.refreshCapacity(ctx) {
		if time.Now().After(end) {
			if b.shouldServe() {
				b.log.Warn("no worker of Muster is there yet: the coordinator is told of none")
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

// hasCapacity reports whether a worker was there at the last look, which runs something that coordinators ask for if it is to serve alone.
func (b *Bridge) hasCapacity() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cfg.Core.Worker == "" {
		return len(b.capacity.Workers) > 0
	}
	return slices.ContainsFunc(b.capacity.Kinds, isMapped)
}

// shouldServe reports whether the bridge has a place at the coordinator: one for a worker that is not there has none, unless it has something to report.
func (b *Bridge) shouldServe() bool {
	return b.cfg.Core.Worker == "" || b.hasCapacity() || b.core.Pending() > 0
}

// watchFleet looks at the fleet again and again.
func (b *Bridge) watchFleet(ctx context.Context) error {
	tick := time.NewTicker(b.cfg.HealthCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			b.refreshCapacity(ctx)
		}
	}
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
			b.log.Warn("the fleet cannot be looked at", slog.Any("why", err))
		}
		b.warned = true
		return
	}
	b.capacity, b.checkedAt, b.warned = c, time.Now(), false
}

func (b *Bridge) credentials() (key, token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cfg.APIKey, b.state.Token
}

func (b *Bridge) clearToken() { b.setIdentity("", "-") }

// setIdentity takes the id and the token that a coordinator gives; "" leaves what there is, "-" is none.
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

func (b *Bridge) workerID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.WorkerID
}

func (b *Bridge) lastCoordinator() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.Coordinator
}

// setConn makes l the connection on which results go.
func (b *Bridge) setConn(l *coordinatorConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = l
	l.wasRegistered = true
	close(b.changed)
	b.changed = make(chan struct{})
	if b.state.Coordinator != l.url {
		b.state.Coordinator = l.url
		if err := b.save(); err != nil {
			b.log.Warn("the coordinator is not kept", slog.Any("why", err))
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

func (b *Bridge) wasRegistered(l *coordinatorConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.wasRegistered
}

// awaitConn waits for a connection, but not for long.
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
			return nil, muster.Errorf(muster.Unavailable, "there is no connection to a coordinator")
		}
	}
}

// capabilities are what the fleet has, as DTF's workers say it.
func (b *Bridge) capabilities(ctx context.Context) (*capabilities, string) {
	b.refreshCapacity(ctx)
	b.mu.Lock()
	h := b.capacity
	b.mu.Unlock()
	c := &capabilities{
		Hostname: b.cfg.Name, Platform: runtime.GOOS + "-" + runtime.GOARCH, Hardware: []string{"cpu"},
		CPU:    &cpu{Model: "Unknown", Cores: h.Resources.CPUs, Threads: h.Resources.CPUs},
		Memory: &memory{TotalGB: round(float64(h.Resources.Memory) / gigabytes), AvailableGB: round(float64(h.Free.Memory) / gigabytes)},
		WebNN:  &feature{}, WebGPU: &feature{}, Tags: b.cfg.Tags,
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
		if c.GPU == nil {
			c.GPU = &gpus{Name: g.Name, MemoryGB: round(float64(g.Memory) / gigabytes)}
		}
		c.GPU.Count++
		c.GPU.Devices = append(c.GPU.Devices, gpu{Index: i, Name: g.Name, MemoryGB: round(float64(g.Memory) / gigabytes)})
	}
	for _, t := range b.cfg.Tags { // coordinators ask for nothing but hardware
		c.addHardware(t)
	}
	return c, b.cfg.Name
}

func (c *capabilities) addHardware(hardware string) {
	if hardware != "" && !slices.Contains(c.Hardware, hardware) {
		c.Hardware = append(c.Hardware, hardware)
	}
}

func round(f float64) float64 { return float64(int64(f*100+0.5)) / 100 }
