package trainforge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/lru"
)

// What TrainForge's workers do, and when.
const (
	DefaultScheduler = "http://localhost:3000"
	DefaultMaxJobs   = 4
	// DefaultProjects is where worker B looks for projects, relative to where it is started.
	DefaultProjects = "../api/storage/projects/projects"

	pollInterval        = 5 * time.Second
	heartbeatInterval   = 25 * time.Second
	cancelCheckInterval = 30 * time.Second // whether a job was cancelled
	maxBackoff          = 2 * time.Minute
	unregisterTimeout   = 3 * time.Second // for which the bridge waits when it unregisters
)

// bridgeType is the worker_type of bridges.
const bridgeType = "external_muster"

// BridgeConfig configures a Bridge, by which Muster's workers serve a TrainForge server as one of its workers.
type BridgeConfig struct {
	Scheduler string // URL; "" means DefaultScheduler
	WorkerID  string // "" means worker_HOST_PID as TrainForge's does, or muster_ and the name of Core.Worker
	MaxJobs   int    // at the same time; 0 means as many as the workers have slots
	Token     string // a bearer token, for what only it shows: cancellations, and who else claimed a job
	Projects  string // where projects are that the server does not send; "" means DefaultProjects
	// CancelJobs has jobs that run reported as cancelled when nothing new is taken any more, as worker A does when it is
	// stopped. Otherwise they are left to the next bridge on the folder.
	CancelJobs   bool
	Version      string
	PollInterval time.Duration // between two looks for jobs; 0 means 5 s. Other waits keep their ratio to it
	Core         bridge.Config // System, Origin and Interval are set here
}

// Bridge is a worker of a TrainForge server.
type Bridge struct {
	cfg        BridgeConfig
	server     *serverClient
	core       *bridge.Bridge
	log        *slog.Logger
	id         string
	cancelling atomic.Bool // jobs that run are cancelled

	skippedJobs *lru.Cache[string, bool] // jobs that others have, or that no worker can run: logged once
	uploadTries *lru.Cache[string, int]  // of results by job id, to which the server answered and did not accept them

	current      atomic.Bool // the server has the interface with register, pending and claim
	legacy       atomic.Bool // it has GET /api/jobs without a key only. Neither is set until the server was asked
	registerSent atomic.Bool // a registration was sent
	jobsHidden   atomic.Bool // the server does not show jobs without a token

	mu     sync.Mutex
	claims map[string]*jobClaim // by job id
}

// NewBridge opens the outbox, which Run closes. It does not contact the server before Run.
func NewBridge(cfg BridgeConfig) (*Bridge, error) {
	cfg.Projects, cfg.PollInterval = cmp.Or(cfg.Projects, DefaultProjects), cmp.Or(cfg.PollInterval, pollInterval)
	if cfg.MaxJobs < 0 || cfg.MaxJobs > 10_000 {
		return nil, muster.Errorf(muster.Invalid, "--max-jobs is %d: write a number from 1 to 10000", cfg.MaxJobs)
	}
	if cfg.WorkerID != "" {
		if err := checkID("--worker-id", cfg.WorkerID); err != nil {
			return nil, err
		}
	}
	r, err := newServerClient(&cfg)
	if err != nil {
		return nil, err
	}
	b := &Bridge{
		cfg: cfg, server: r, claims: map[string]*jobClaim{},
		skippedJobs: lru.NewCounted[string, bool](maxTickets), uploadTries: lru.NewCounted[string, int](maxTickets),
	}
	if err := os.MkdirAll(b.claimsDir(), 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot create the bridge's directory: %w", err)
	}
	if b.id, err = b.identity(); err != nil {
		return nil, err
	}
	b.log = cfg.Core.Log.With(slog.String("scheduler", r.Host), slog.String("worker_id", b.id))
	core := cfg.Core
	core.System, core.Origin, core.Log = Name, r.Host+"\x00"+b.id, b.log
	core.ProgressInterval = b.scaled(2 * pollInterval)
	if b.core, err = bridge.New(core, b); err != nil {
		return nil, err
	}
	if err := b.loadClaims(); err != nil {
		return nil, cmp.Or(b.core.Close(), err)
	}
	return b, nil
}

func (b *Bridge) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * float64(b.cfg.PollInterval) / float64(pollInterval))
}

func (b *Bridge) claimsDir() string { return filepath.Join(b.cfg.Core.Dir, "claims") }

// identity is the worker's id. A generated id is kept, because claimed jobs continue under it.
func (b *Bridge) identity() (string, error) {
	if b.cfg.WorkerID != "" {
		return b.cfg.WorkerID, nil
	}
	part := func(name string) string { return strings.ReplaceAll(lenient.Text(name, 100), "/", "-") }
	return bridge.Identity(filepath.Join(b.cfg.Core.Dir, "worker-id"), isID, func() string {
		if b.cfg.Core.Worker != "" {
			return "muster_" + part(b.cfg.Core.Worker)
		}
		host, err := os.Hostname()
		if err != nil {
			host = "host"
		}
		return fmt.Sprintf("worker_%s_%d", part(host), os.Getpid())
	})
}

// Run serves the server until ctx ends; the next Bridge in the directory reports the rest. Once acceptCtx ends it accepts no new jobs, and
// returns when everything is reported.
func (b *Bridge) Run(ctx, acceptCtx context.Context) error {
	return b.core.RunWith(ctx, func(ctx context.Context) error { return b.serve(ctx, acceptCtx) })
}

// serve registers, sends heartbeats and claims jobs, until acceptCtx ends and everything is reported.
func (b *Bridge) serve(ctx, acceptCtx context.Context) error {
	var takers errgroup.Group
	takers.SetLimit(4)
	defer func() { _ = takers.Wait() }() // nothing of it returns an error
	joinCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(acceptCtx, cancel)()
	var lastBeat, lastCheck time.Time
	joined, pause := false, b.cfg.PollInterval
	for joinCtx.Err() == nil {
		if !joined {
			if err := b.register(joinCtx); err != nil {
				if muster.CodeOf(err) != muster.Unavailable {
					return err
				}
				b.log.Warn("TrainForge server unavailable, retrying", slog.Any("error", err))
				_ = backoff.Sleep(joinCtx, pause)
				pause = min(2*pause, b.scaled(maxBackoff))
				continue
			}
			joined, pause, lastBeat = true, b.cfg.PollInterval, time.Now()
		}
		if time.Since(lastBeat) >= b.scaled(heartbeatInterval) {
			joined, lastBeat = b.sendHeartbeat(joinCtx), time.Now()
		}
		if err := b.claimJobs(joinCtx, &takers); err != nil && joinCtx.Err() == nil {
			b.log.Warn("cannot claim jobs", slog.Any("error", err))
		}
		if time.Since(lastCheck) >= b.scaled(cancelCheckInterval) {
			lastCheck = time.Now()
			b.checkCancelled(joinCtx)
		}
		_ = backoff.Sleep(joinCtx, b.cfg.PollInterval)
	}
	_ = takers.Wait() // what it was doing with claims is done
	return b.shutdown(ctx)
}

// shutdown reports running jobs, and unregisters the worker if nothing is left to the next bridge in the directory.
func (b *Bridge) shutdown(ctx context.Context) error {
	if b.cfg.CancelJobs {
		b.cancelling.Store(true)
		b.reportOffline(ctx)
		for _, i := range b.listClaims() {
			if i.Claimed { // otherwise it may be another worker's: the next bridge in the directory checks that
				b.reportUnrun(ctx, i, statusCancelled, shutdownMessage)
			}
		}
	}
	cancelled := map[string]bool{}
	for ctx.Err() == nil && b.core.Pending() > 0 {
		if b.cfg.CancelJobs {
			b.cancelAll(ctx, cancelled)
		}
		_ = backoff.Sleep(ctx, min(b.cfg.PollInterval, 100*time.Millisecond))
	}
	// The answer to a registration may be lost.
	if b.core.Pending() == 0 && len(b.listClaims()) == 0 && b.registerSent.Load() && !b.legacy.Load() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unregisterTimeout)
		defer cancel()
		if _, err := b.server.call(ctx, http.MethodDelete, b.workerPath(), nil); err != nil {
			b.log.Debug("the worker is not unregistered", slog.Any("error", err))
		}
	}
	return nil
}

func (b *Bridge) workerPath() string { return "/api/workers/" + url.PathEscape(b.id) }

// cancelAll cancels the jobs that were not yet. One that is just being submitted cannot be, and is at the next call.
func (b *Bridge) cancelAll(ctx context.Context, cancelled map[string]bool) {
	for _, j := range b.core.Jobs() {
		if cancelled[j.ID] {
			continue
		}
		err := b.core.Cancel(ctx, j.ID)
		if cancelled[j.ID] = err == nil; err != nil {
			b.log.Debug("a job cannot be cancelled now", slog.String("job", j.ID), slog.Any("error", err))
		}
	}
}

// reportOffline makes the server assign no more jobs to the worker, before the server learns that jobs were cancelled.
func (b *Bridge) reportOffline(ctx context.Context) {
	if !b.current.Load() || b.core.Pending() == 0 {
		return
	}
	if _, err := b.server.call(ctx, http.MethodPut, b.workerPath()+"/status", update{Status: statusOffline, Message: shutdownMessage}); err != nil {
		b.log.Debug("cannot report that the worker stops", slog.Any("error", err))
	}
}

// register detects the server's interface, and registers. The error is Unavailable while the server is unreachable, and another one
// if it has none of them.
func (b *Bridge) register(ctx context.Context) error {
	a, err := b.server.call(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		return err
	}
	if a.Status != http.StatusOK {
		return muster.Errorf(muster.Unavailable, "the TrainForge server's /health answers %d", a.Status)
	}
	c, err := b.core.Capacity(ctx)
	if err != nil {
		return err
	}
	b.registerSent.Store(true)
	a, err = b.server.call(ctx, http.MethodPost, "/api/workers/register", b.registration(&c))
	if err != nil {
		return err
	}
	if a.Status == http.StatusConflict || a.Status == http.StatusForbidden {
		return a.Err("the registration")
	}
	registered := a.OK()
	if a, err = b.server.call(ctx, http.MethodGet, "/api/jobs/pending", nil); err != nil {
		return err
	}
	if a.IsTemporary() {
		return a.Err("the list of pending jobs")
	}
	var list []json.RawMessage
	legacy := !registered || a.Status != http.StatusOK || json.Unmarshal(a.Body, &list) != nil
	if legacy {
		if err := b.checkLegacy(ctx); err != nil {
			return err
		}
	}
	b.current.Store(!legacy)
	b.legacy.Store(legacy)
	b.log.Info("serving a TrainForge server", slog.String("interface", map[bool]string{false: "current", true: "legacy"}[legacy]), slog.Int("max_jobs", b.maxJobs(&c)))
	return nil
}

// checkLegacy returns an error if the server does not have the older interface.
func (b *Bridge) checkLegacy(ctx context.Context) error {
	a, err := b.server.call(ctx, http.MethodGet, "/api/jobs?limit=50", nil)
	var jobs jobList
	switch {
	case err != nil:
		return err
	case a.Status == http.StatusOK && json.Unmarshal(a.Body, &jobs) == nil:
		return nil
	case a.Status == http.StatusUnauthorized:
		return muster.Errorf(muster.Unauthenticated, "the TrainForge server lists its jobs for users only, and has no interface for external workers: use muster bridge trainforge with --scheduler-token-file")
	case a.IsTemporary():
		return a.Err("the list of jobs")
	default:
		return muster.Errorf(muster.Invalid, "there is no TrainForge server at %s that Muster knows: GET /api/jobs/pending and GET /api/jobs do not answer as one", b.server.Host)
	}
}

func (b *Bridge) registration(c *bridge.Capacity) *registration {
	host, _ := os.Hostname() // it is for people
	r := &registration{
		WorkerID: b.id, Status: "idle", WorkerType: bridgeType, Location: lenient.Text(host, 100), GPUName: "None",
		Capabilities: capabilities{
			MaxJobs: b.maxJobs(c), CPUs: min(c.Resources.CPUs, 10_000), GPUCount: min(len(c.Resources.GPUs), maxWorkerGPUs),
			MaxMemoryGB: float64(c.Resources.Memory>>20) / 1024,
		},
	}
	if len(c.Resources.GPUs) > 0 {
		g := c.Resources.GPUs[0]
		r.GPUName, r.GPUMemoryGB = g.Name, float64(g.Memory>>20)/1024
		r.Capabilities.GPUInfo.Available, r.Capabilities.GPUInfo.Name, r.Capabilities.GPUInfo.MemoryGB = true, g.Name, r.GPUMemoryGB
	}
	return r
}

func (b *Bridge) maxJobs(c *bridge.Capacity) int {
	return cmp.Or(b.cfg.MaxJobs, max(1, min(c.Resources.Slots, 10_000)))
}

// sendHeartbeat sends a heartbeat and reports whether the server still knows the worker.
func (b *Bridge) sendHeartbeat(ctx context.Context) bool {
	if b.legacy.Load() {
		return true
	}
	body := heartbeat{Timestamp: lenient.UnixSeconds(time.Now())}
	if jobs := b.core.Jobs(); len(jobs) > 0 {
		body.CurrentJob = jobs[0].ID
	}
	a, err := b.server.call(ctx, http.MethodPost, b.workerPath()+"/heartbeat", &body)
	return err != nil || a.Status == http.StatusOK || a.Status == http.StatusTooManyRequests
}

// claimJobs takes jobs that wait, as many as may run.
func (b *Bridge) claimJobs(ctx context.Context, takers *errgroup.Group) error {
	c, err := b.core.Capacity(ctx)
	if err != nil {
		return err
	}
	b.continueClaims(ctx, takers)
	free := b.maxJobs(&c) - b.core.Pending() - len(b.listClaims())
	if free <= 0 || len(c.Workers) == 0 {
		return nil
	}
	jobs, err := b.pendingJobs(ctx)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if free <= 0 || ctx.Err() != nil {
			break
		}
		_, skipped := b.skippedJobs.Get(j.id())
		if skipped || j.Status != "" && j.Status != statusPending || !isID(j.id()) || b.core.Known(j.id()) {
			continue
		}
		if reason := unfitReason(&j, &c); reason != "" {
			b.skippedJobs.Put(j.id(), true)
			b.log.Warn("job left to other workers", slog.String("job", j.id()), slog.String("why", reason))
		} else if b.startClaim(ctx, &j) {
			free--
		}
	}
	b.continueClaims(ctx, takers)
	return nil //nolint:nilerr // no more claims are started once ctx has ended
}

func (b *Bridge) pendingJobs(ctx context.Context) ([]job, error) {
	path, legacy := "/api/jobs/pending", b.legacy.Load()
	if legacy {
		path = "/api/jobs?limit=100"
	}
	a, err := b.server.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, a.Err("the list of jobs")
	}
	list := json.RawMessage(a.Body)
	if legacy {
		whole := lenient.Object(list)
		if list = whole["jobs"]; list == nil && whole != nil {
			return nil, nil
		}
	}
	jobs, err := lenient.List[job](list, maxListed)
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server's list of jobs cannot be read: %w", err)
	}
	return jobs, nil
}

// Status writes the state of the server, and of the worker at the server, to w.
func (cfg BridgeConfig) Status(ctx context.Context, w io.Writer) error {
	r, err := newServerClient(&cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Max jobs:     %d\n", cfg.MaxJobs)
	a, err := r.call(ctx, http.MethodGet, "/health", nil)
	if err == nil && a.Status != http.StatusOK {
		err = a.Err("/health")
	}
	if err != nil {
		fmt.Fprintf(w, "Scheduler:    %s\n", r.Host)
		return err
	}
	fmt.Fprintf(w, "Scheduler:    %s, healthy\n", r.Host)
	if cfg.WorkerID == "" {
		return nil
	}
	state := "not registered"
	if a, err = r.call(ctx, http.MethodGet, "/api/workers/"+url.PathEscape(cfg.WorkerID), nil); err == nil && a.OK() {
		var reply struct {
			Status     string `json:"status"`
			ActiveJobs int    `json:"active_jobs"`
		}
		state = "registered"
		if json.Unmarshal(a.Body, &reply) == nil && reply.Status != "" {
			state = fmt.Sprintf("%s, %d jobs", lenient.Text(reply.Status, 40), reply.ActiveJobs)
		}
	}
	fmt.Fprintf(w, "Worker:       %s, %s\n", cfg.WorkerID, state)
	return nil
}
