package qubix

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/lru"
)

// The defaults and intervals of QUBIX's worker.
const (
	DefaultBackend  = "http://127.0.0.1:3001"
	DefaultPrice    = 5.0
	DefaultLocation = "Local Network"

	pollInterval         = 5 * time.Second
	heartbeatInterval    = 30 * time.Second
	progressInterval     = 10 * time.Second
	registerInterval     = 10 * time.Second
	maxHeartbeatFailures = 5 // in a row, before it registers again
)

// Timeouts of requests.
const (
	callTimeout   = 10 * time.Second
	reportTimeout = 2 * time.Minute // of a final report, which may have images
)

// BridgeConfig configures a Bridge, by which Muster's workers serve a QUBIX backend as one of its providers.
type BridgeConfig struct {
	Backend      string  // "" means DefaultBackend
	Price        float64 // per hour, in QUBIC
	Name         string  // "" means Provider- and the beginning of the provider's id
	Location     string  // "" means DefaultLocation
	Address      string  // of a user of the backend, 60 letters; the TS backend requires one
	ID           string  // of the provider; "" means the one stored in Core.Dir, created at the first start
	UseMachineID bool    // create the id that QUBIX's worker has on this machine
	Version      string
	PollInterval time.Duration // between two requests for jobs; 0 means 5 s. Other intervals are scaled with it
	Claims       *Claims       // of the bridges of one process at one backend; nil for a single bridge
	Core         bridge.Config // without System, Origin and ProgressInterval
}

// Bridge is a worker of a QUBIX backend.
type Bridge struct {
	cfg     BridgeConfig
	backend *bridge.Remote
	core    *bridge.Bridge
	log     *slog.Logger
	id      string

	declined        *lru.Cache[string, bool] // jobs that Muster cannot run and that are reported
	lastReports     *lru.Cache[string, *lastReport]
	registeredFacts json.RawMessage // of the last registration; used by serve only
}

// lastReport is used by the methods of bridge.Reporter, which do not overlap for one job.
type lastReport struct {
	percent   int
	metrics   json.RawMessage
	loggedAt  time.Time
	checkedAt time.Time
}

// NewBridge opens the outbox. It does not contact the backend before Run. A caller that does not call Run closes the Bridge.
func NewBridge(cfg BridgeConfig) (*Bridge, error) {
	cfg.Backend, cfg.Location = orDefault(cfg.Backend, DefaultBackend), orDefault(cfg.Location, DefaultLocation)
	cfg.PollInterval = cmp.Or(cfg.PollInterval, pollInterval)
	switch {
	case math.IsNaN(cfg.Price) || cfg.Price < 0 || cfg.Price > maxPrice:
		return nil, muster.Errorf(muster.Invalid, "invalid --price %v: use an amount per hour from 0 to %v", cfg.Price, maxPrice)
	case cfg.Address != "" && !isAddress(cfg.Address):
		return nil, muster.Errorf(muster.Invalid, "invalid --address: use the address of a user of the backend, 60 letters A to Z")
	case len(cfg.Name) > maxText || len(cfg.Location) > maxText:
		return nil, muster.Errorf(muster.Invalid, "--name and --location have at most %d bytes", maxText)
	}
	r, err := newBackend(&cfg)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Core.Dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot create the bridge's directory: %w", err)
	}
	b := &Bridge{cfg: cfg, backend: r, declined: lru.NewCounted[string, bool](maxEnded), lastReports: lru.NewCounted[string, *lastReport](maxClaims)}
	if b.id, err = cfg.providerID(); err != nil {
		return nil, err
	}
	b.cfg.Name = cmp.Or(b.cfg.Name, "Provider-"+lenient.Text(b.id, 8))
	b.log = cfg.Core.Log.With(slog.String("backend", r.Origin()), slog.String("provider", b.id))
	core := cfg.Core
	core.System, core.Origin, core.Log = Name, r.Origin()+"\x00"+b.id, b.log
	core.ProgressInterval = b.scaled(progressInterval)
	if b.core, err = bridge.New(core, b); err != nil {
		return nil, err
	}
	for _, j := range b.core.Jobs() {
		cfg.Claims.claim(j.ID, b.id)
	}
	return b, nil
}

func (b *Bridge) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * float64(b.cfg.PollInterval) / float64(pollInterval))
}

// Close closes the outbox of a Bridge without Run.
func (b *Bridge) Close() error { return b.core.Close() }

// providerID returns the provider's id, which is kept in the directory.
func (cfg *BridgeConfig) providerID() (string, error) {
	if cfg.ID != "" {
		return cfg.ID, checkID(cfg.ID)
	}
	return bridge.Identity(filepath.Join(cfg.Core.Dir, "provider-id"), func(id string) bool { return checkID(id) == nil }, func() string {
		if id := machineID(); cfg.UseMachineID && id != "" {
			return id
		}
		b := make([]byte, 8)
		_, _ = rand.Read(b) // never fails
		return hex.EncodeToString(b)
	})
}

// machineID returns the id of QUBIX's worker on this machine: the first 16 hex digits of the SHA-256 of its hardware address, "" for none.
func machineID() string {
	all, _ := net.Interfaces() // none if they cannot be read
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && len(i.HardwareAddr) == 6 {
			sum := sha256.Sum256([]byte(strings.ToLower(i.HardwareAddr.String())))
			return hex.EncodeToString(sum[:8])
		}
	}
	return ""
}

// Run serves the backend until ctx ends; the next Bridge in the directory reports the rest. Once acceptCtx ends it accepts no new jobs,
// and returns when everything is reported. It returns an error if the backend permanently refuses this provider.
func (b *Bridge) Run(ctx, acceptCtx context.Context) error {
	return b.core.RunWith(ctx, func(ctx context.Context) error { return b.serve(ctx, acceptCtx) })
}

func (b *Bridge) serve(ctx, acceptCtx context.Context) error {
	joinCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(acceptCtx, cancel)()
	if err := b.registerLoop(joinCtx); err != nil || ctx.Err() != nil {
		return err
	}
	var last time.Time
	failures := 0
	for ctx.Err() == nil && (acceptCtx.Err() == nil || b.core.Pending() > 0) {
		waitCtx, wait := joinCtx, b.cfg.PollInterval
		if acceptCtx.Err() != nil {
			waitCtx, wait = ctx, min(wait, time.Second)
		}
		if time.Since(last) >= b.scaled(heartbeatInterval) {
			last = time.Now()
			a, err := b.sendHeartbeat(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil && a.Status == http.StatusOK:
				failures = 0
				b.acceptOffered(ctx, acceptCtx, parseJobs(lenient.Object(a.Body)["pendingJobs"]))
			case err == nil && a.Status == http.StatusNotFound:
				b.log.Info("provider unknown to the backend, registering again")
				failures = maxHeartbeatFailures
			default:
				failures++
				if err == nil {
					err = a.Err("the heartbeat")
				}
				b.log.Warn("heartbeat failed", slog.Any("why", err))
				wait = max(wait, a.RetryAfter)
			}
			if failures >= maxHeartbeatFailures {
				failures = 0
				if err := b.registerLoop(joinCtx); err != nil {
					return err
				}
				last = time.Time{}
			}
		}
		if acceptCtx.Err() == nil {
			a, err := b.call(ctx, http.MethodGet, "/api/jobs/pending/"+url.PathEscape(b.id), nil, callTimeout)
			if err == nil && a.Status == http.StatusOK {
				b.acceptOffered(ctx, acceptCtx, parseJobs(a.Body))
			}
			wait = max(wait, a.RetryAfter)
		}
		_ = backoff.Sleep(waitCtx, wait)
	}
	return nil
}

// registerLoop registers until the backend accepts this provider or ctx ends.
func (b *Bridge) registerLoop(ctx context.Context) error {
	lastErr := ""
	for ctx.Err() == nil {
		capacity, err := b.core.Capacity(ctx)
		if err == nil && len(capacity.Workers) == 0 {
			err = muster.Errorf(muster.Unavailable, "no active worker: start one with muster worker --server URL")
		}
		wait := b.scaled(registerInterval)
		if err == nil {
			var a *bridge.Response
			a, err = b.register(ctx, &capacity)
			if err == nil {
				b.log.Info("registered with the QUBIX backend")
				return nil
			}
			wait = max(wait, a.RetryAfter)
			switch muster.CodeOf(err) {
			case muster.Unavailable, muster.Internal:
			case muster.NotFound:
				return muster.Errorf(muster.NotFound, "%w: check that --backend is the address of a QUBIX backend", err)
			default:
				return err
			}
		} else {
			wait = min(wait, time.Second)
		}
		if ctx.Err() == nil && err.Error() != lastErr {
			lastErr = err.Error()
			b.log.Warn("registration failed, retrying", slog.Any("why", err))
		}
		_ = backoff.Sleep(ctx, wait)
	}
	return nil
}

// register registers once. If the backend answers 301, as the TS backend does to its own worker, it uses quick-register.
func (b *Bridge) register(ctx context.Context, c *bridge.Capacity) (*bridge.Response, error) {
	r := b.description(c)
	b.registeredFacts = b.stableDescription(c)
	a, err := b.call(ctx, http.MethodPost, "/api/providers/register", r, callTimeout)
	switch {
	case err != nil || a.Status == http.StatusOK:
		return a, err
	case a.Status != http.StatusMovedPermanently:
		return a, a.Err("the registration")
	case b.cfg.Address == "":
		return a, muster.Errorf(muster.Invalid, "the QUBIX backend at %s redirects registrations (HTTP 301): it requires a user's address. "+
			`Create a user with curl -X POST %s/api/auth/register -H 'Content-Type: application/json' -d '{"email":"…","password":"…"}' and start again with --address and its qubicAddress`, b.backend.Origin(), b.backend.Origin())
	}
	q := quickRegistration{
		Type: "native", WorkerID: b.id, QubicAddress: b.cfg.Address, GPU: quickGPU{Type: "native", Model: r.Specs.GPUModel, VRAM: r.Specs.GPUVRAM},
		CPU: quickCPU{Model: r.Specs.CPUModel, Cores: r.Specs.CPUCores}, RAM: quickRAM{Total: r.Specs.RAMTotal},
		Location: r.Location, PricePerHour: lenient.NonZero(b.cfg.Price),
	}
	a, err = b.call(ctx, http.MethodPost, "/api/providers/quick-register", q, callTimeout)
	switch {
	case err != nil || a.Status == http.StatusOK:
		return a, err
	case a.Status == http.StatusInternalServerError || a.Status == http.StatusNotFound:
		return a, muster.Errorf(muster.NotFound, "the QUBIX backend at %s refused quick-register (HTTP %d): it has no user with the address %s. Create one (POST /api/auth/register) and start again with its qubicAddress as --address",
			b.backend.Origin(), a.Status, b.cfg.Address)
	}
	return a, a.Err("the quick registration")
}

// updateRegistration registers again if the workers have changed.
func (b *Bridge) updateRegistration(ctx context.Context, c *bridge.Capacity) {
	if len(c.Workers) == 0 || bytes.Equal(b.registeredFacts, b.stableDescription(c)) {
		return
	}
	if _, err := b.register(ctx, c); err != nil {
		b.registeredFacts = nil
		b.log.Warn("cannot update the registration", slog.Any("why", err))
		return
	}
	b.log.Info("workers changed, registered again", slog.Int("workers", len(c.Workers)))
}

// stableDescription returns the description without values that change all the time.
func (b *Bridge) stableDescription(c *bridge.Capacity) json.RawMessage {
	r := b.description(c)
	r.Specs.RAMAvailable, r.Specs.StorageTotal, r.Specs.StorageFree = 0, 0, 0
	return lenient.MustMarshal(r)
}

// description describes all workers as one machine.
func (b *Bridge) description(c *bridge.Capacity) registration {
	host, _ := os.Hostname() // for people
	s := specs{
		WorkerID: b.id, Hostname: host, OS: runtime.GOOS, CPUModel: runtime.GOARCH, CPUCores: c.Resources.CPUs, RAMTotal: lenient.InGiB(c.Resources.Memory), RAMAvailable: lenient.InGiB(c.Free.Memory),
		StorageTotal: lenient.InGiB(c.Resources.Disk), StorageFree: lenient.InGiB(c.Free.Disk), Software: "muster/" + orDefault(b.cfg.Version, "dev"), Kinds: c.Kinds,
		Slots: c.Resources.Slots,
	}
	if len(c.Resources.GPUs) > 0 {
		s.GPUAvailable, s.GPUModel = true, c.Resources.GPUs[0].Name
		for _, g := range c.Resources.GPUs {
			s.GPUVRAM = max(s.GPUVRAM, lenient.InGiB(g.Memory))
		}
	}
	address := orDefault(b.cfg.Address, "QUBIC_"+strings.ToUpper(b.id))
	return registration{
		WorkerID: b.id, WorkerIDs: b.id, Name: b.cfg.Name, Address: address, Specs: s, Location: b.cfg.Location,
		ComputePower: s.CPUCores*10 + s.GPUVRAM*50, PricePerHour: &b.cfg.Price, IsActive: new(true),
	}
}

func (b *Bridge) sendHeartbeat(ctx context.Context) (*bridge.Response, error) {
	h := heartbeat{WorkerID: b.id, Status: "online", Usage: usage{Timestamp: lenient.NaiveUTC(time.Now())}}
	if jobs := b.core.Jobs(); len(jobs) > 0 {
		h.CurrentJob = &jobs[0].ID
	}
	c, err := b.core.Capacity(ctx)
	if err != nil {
		return &bridge.Response{}, err
	}
	if b.freeSlots(&c) <= 0 {
		h.Status = "busy"
	} else if h.CurrentJob != nil && c.Resources.Slots > 1 {
		h.CurrentJob = nil // it accepts more
	}
	if c.Load != nil {
		percent := func(v float64) *float64 { return new(math.Round(v*1000) / 10) }
		h.Usage.CPU = percent(c.Load.CPU)
		if c.Resources.Memory > 0 {
			h.Usage.RAM = percent(float64(c.Load.Memory) / float64(c.Resources.Memory))
		}
		if len(c.Load.GPUs) > 0 {
			m := toGPUMetrics(&c.Load.GPUs[0], gpuMemory(c.Resources.GPUs, c.Load.GPUs[0].UUID))
			h.Usage.GPU, h.Usage.GPUTemp, h.Usage.GPUMemUsed, h.Usage.GPUMemTotal, h.Usage.GPUPower = m.Utilization, m.Temperature, m.MemoryUsed, m.MemoryTotal, m.Power
			if m.MemoryUsed != nil && m.MemoryTotal != nil && *m.MemoryTotal > 0 {
				h.Usage.GPUMemory = percent(*m.MemoryUsed / *m.MemoryTotal)
			}
		}
	}
	a, err := b.call(ctx, http.MethodPost, "/api/providers/"+url.PathEscape(b.id)+"/heartbeat", h, callTimeout)
	if err == nil && a.Status == http.StatusOK {
		b.updateRegistration(ctx, &c)
	}
	return a, err
}

func gpuMemory(list []muster.GPU, uuid string) muster.Size {
	if i := slices.IndexFunc(list, func(g muster.GPU) bool { return g.UUID == uuid }); i >= 0 {
		return list[i].Memory
	}
	return 0
}

// freeSlots returns how many more jobs the workers can run.
func (b *Bridge) freeSlots(c *bridge.Capacity) int {
	return min(c.Free.Slots, max(c.Resources.Slots, 1)-b.core.Pending())
}

// acceptOffered accepts unknown jobs that the backend offers, as many as there are free slots.
func (b *Bridge) acceptOffered(ctx, acceptCtx context.Context, offered []job) {
	offered = slices.DeleteFunc(offered, func(j job) bool {
		return b.core.Known(j.ID) || slices.Contains([]string{statusCompleted, statusFailed, statusCancelled}, strings.ToUpper(j.Status))
	})
	if len(offered) == 0 || acceptCtx.Err() != nil {
		return
	}
	c, err := b.core.Capacity(ctx)
	if err != nil {
		b.log.Warn("cannot accept jobs: the Muster server does not answer", slog.Any("why", err))
		return
	}
	free := b.freeSlots(&c)
	for i := range offered {
		if free <= 0 {
			return
		}
		j := &offered[i]
		unassigned := j.ProviderID == nil || *j.ProviderID == "" // the mock server offers it to all providers
		spec, err := b.jobSpec(j)
		if err == nil && !slices.Contains(c.Kinds, spec.Tasks[0].Kind) {
			if unassigned && b.cfg.Claims != nil {
				continue // another bridge may run it
			}
			err = muster.Errorf(muster.Unavailable, "no worker here runs jobs of kind %s", spec.Tasks[0].Kind)
		}
		if unassigned && !b.cfg.Claims.claim(j.ID, b.id) {
			continue
		}
		if err != nil {
			b.decline(ctx, j, err)
			continue
		}
		accepted, err := b.core.Accept(ctx, bridge.Job{ID: j.ID, Spec: spec})
		switch {
		case err != nil:
			b.log.Warn("cannot accept a job", slog.String("job", lenient.Text(j.ID, maxText)), slog.Any("why", err))
		case accepted:
			free--
			b.log.Info("job accepted", slog.String("job", lenient.Text(j.ID, maxText)), slog.String("type", j.kind()))
		}
	}
}

func (b *Bridge) jobSpec(j *job) (muster.Spec, error) {
	if len(j.ID) > 200 {
		return muster.Spec{}, muster.Errorf(muster.Invalid, "the job's id has %d bytes", len(j.ID))
	}
	var t muster.TaskSpec
	if lenient.HasValue(j.Muster) { // from Muster's gateway
		if err := json.Unmarshal(j.Muster, &t); err != nil {
			return muster.Spec{}, muster.Errorf(muster.Invalid, "cannot decode the job's stage: %w", err)
		}
		t = *portableStage(&t)
	} else {
		var err error
		if t, err = toStage(j, false); err != nil {
			return muster.Spec{}, err
		}
	}
	return muster.Spec{Name: orDefault(lenient.Text("qubix "+j.kind(), maxText), "qubix"), Labels: map[string]string{"qubix.job": lenient.Text(j.ID, maxText)}, Tasks: []muster.TaskSpec{t}}, nil
}

// decline reports a job that Muster cannot run as failed, once.
func (b *Bridge) decline(ctx context.Context, j *job, reason error) {
	if _, reported := b.declined.Get(j.ID); reported {
		return
	}
	c := b.newCompletion()
	c.fail(reason.Error(), "")
	a, err := b.call(ctx, http.MethodPost, jobPath(j.ID, "/complete"), c, callTimeout)
	if a.IsTemporary() {
		err = a.Err("the report")
	}
	log := b.log.With(slog.String("job", lenient.Text(j.ID, maxText)))
	log.Warn("job declined", slog.Any("why", reason))
	if err != nil {
		log.Warn("cannot report a declined job, retrying when it is offered again", slog.Any("error", err))
		return
	}
	b.declined.Put(j.ID, true)
}
