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
	"github.com/muster-dev/muster/internal/dialect/bridge"
)

// What TrainForge's workers do, and when.
const (
	DefaultScheduler = "http://localhost:3000"
	DefaultMaxJobs   = 4
	// DefaultProjects is where worker B looks for projects, relative to where it is started.
	DefaultProjects = "../api/storage/projects/projects"

	pollEvery      = 5 * time.Second
	heartbeatEvery = 25 * time.Second
	askEvery       = 30 * time.Second // whether a job was cancelled
	maxBackoff     = 2 * time.Minute
	goodbye        = 3 * time.Second // for which the bridge waits when it unregisters
)

// The interfaces of TrainForge's API server.
const (
	current = "current" // register, pending, claim
	legacy  = "legacy"  // GET /api/jobs without a key
)

// bridgeType is the worker_type of bridges.
const bridgeType = "external_muster"

// BridgeConfig says how Muster's workers serve a TrainForge server, as one of its workers.
type BridgeConfig struct {
	Scheduler string // URL; "" means DefaultScheduler
	WorkerID  string // "" means worker_HOST_PID as TrainForge's does, or muster_ and the name of Core.Worker
	MaxJobs   int    // at the same time; 0 means as many as the workers have slots
	Token     string // a bearer token, for what only it shows: cancellations, and who else claimed a job
	Projects  string // where projects are that the server does not send; "" means DefaultProjects
	// CancelJobs has jobs that run reported as cancelled when nothing new is taken any more, as worker A does when it is
	// stopped. Otherwise they are left to the next bridge on the folder.
	CancelJobs bool
	Version    string
	HTTP       *http.Client
	Poll       time.Duration // between two looks for jobs; 0 means 5 s. Other waits keep their ratio to it
	Core       bridge.Config // System, Origin and Interval are set here
}

// Bridge is a worker of a TrainForge server.
type Bridge struct {
	cfg     BridgeConfig
	remote  *remote
	core    *bridge.Bridge
	log     *slog.Logger
	id      string
	leaving atomic.Bool // jobs that run are cancelled

	mu      sync.Mutex
	api     string             // current or legacy; "" until the server was asked
	asked   bool               // a registration was sent
	intents map[string]*intent // by job id
	left    map[string]bool    // jobs that others have, or that no worker can run: told once
	uploads map[string]int     // of results by job id, to which the server answered and did not take them
	blind   bool               // the server does not show jobs without a token
}

// NewBridge opens the outbox. Nothing is said to the server before Run; without Run the caller closes the Bridge.
func NewBridge(cfg BridgeConfig) (*Bridge, error) {
	cfg.Scheduler, cfg.Projects = or(cfg.Scheduler, DefaultScheduler), or(cfg.Projects, DefaultProjects)
	if cfg.Poll <= 0 {
		cfg.Poll = pollEvery
	}
	if cfg.MaxJobs < 0 || cfg.MaxJobs > 10_000 {
		return nil, muster.Errorf(muster.Invalid, "--max-jobs is %d: write a number from 1 to 10000", cfg.MaxJobs)
	}
	if cfg.WorkerID != "" {
		if err := checkID("--worker-id", cfg.WorkerID); err != nil {
			return nil, err
		}
	}
	r, err := newRemote(cfg.Scheduler, cfg.Token, cfg.HTTP, "TrainForge-Worker/2.0 muster/"+or(cfg.Version, "dev"))
	if err != nil {
		return nil, err
	}
	b := &Bridge{cfg: cfg, remote: r, intents: map[string]*intent{}, left: map[string]bool{}, uploads: map[string]int{}}
	if err := os.MkdirAll(b.intentsDir(), 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the bridge's folder cannot be made: %w", err)
	}
	if b.id, err = b.identity(); err != nil {
		return nil, err
	}
	b.log = cfg.Core.Log.With(slog.String("scheduler", r.host()), slog.String("worker_id", b.id))
	core := cfg.Core
	core.System, core.Origin, core.Log = Name, r.host()+"\x00"+b.id, b.log
	core.Interval = b.every(2 * pollEvery)
	if b.core, err = bridge.New(core, b); err != nil {
		return nil, err
	}
	if err := b.readIntents(); err != nil {
		return nil, cmp.Or(b.core.Close(), err)
	}
	return b, nil
}

// every is a pause at the pace of Poll.
func (b *Bridge) every(d time.Duration) time.Duration {
	return time.Duration(float64(d) * float64(b.cfg.Poll) / float64(pollEvery))
}

func (b *Bridge) intentsDir() string { return filepath.Join(b.cfg.Core.Dir, "claims") }

// identity is the worker's id. One that was made is kept: jobs that were claimed under it go on.
func (b *Bridge) identity() (string, error) {
	if b.cfg.WorkerID != "" {
		return b.cfg.WorkerID, nil
	}
	path := filepath.Join(b.cfg.Core.Dir, "worker-id")
	if kept, err := os.ReadFile(path); err == nil && checkID("id", strings.TrimSpace(string(kept))) == nil {
		return strings.TrimSpace(string(kept)), nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	id := fmt.Sprintf("worker_%s_%d", strings.ReplaceAll(cut(host, 100), "/", "-"), os.Getpid())
	if b.cfg.Core.Worker != "" {
		id = "muster_" + strings.ReplaceAll(cut(b.cfg.Core.Worker, 100), "/", "-")
	}
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", muster.Errorf(muster.Invalid, "the worker's id cannot be kept: %w", err)
	}
	return id, nil
}

// Run serves the server until ctx ends; what is not reported then is so by the next Bridge on the folder. Once taking ends it
// takes nothing new, and returns when everything is reported.
func (b *Bridge) Run(ctx, taking context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group.Go(func() error { return b.core.Run(ctx) })
	group.Go(func() error {
		defer cancel()
		return b.serve(ctx, taking)
	})
	return group.Wait()
}

// serve registers, sends heartbeats and takes jobs, until taking ends and everything is reported.
func (b *Bridge) serve(ctx, taking context.Context) error {
	var works errgroup.Group
	works.SetLimit(4)
	defer func() { _ = works.Wait() }() // nothing of it returns an error
	joining, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(taking, cancel)()
	var beaten, asked time.Time
	joined, backoff := false, b.cfg.Poll
	for joining.Err() == nil {
		if !joined {
			if err := b.join(joining); err != nil {
				if muster.CodeOf(err) != muster.Unavailable {
					return err
				}
				b.log.Warn("the TrainForge server cannot be used now", slog.Any("error", err))
				pauseFor(joining, backoff)
				backoff = min(2*backoff, b.every(maxBackoff))
				continue
			}
			joined, backoff, beaten = true, b.cfg.Poll, time.Now()
		}
		if time.Since(beaten) >= b.every(heartbeatEvery) {
			joined, beaten = b.beat(joining), time.Now()
		}
		if err := b.look(joining, &works); err != nil && joining.Err() == nil {
			b.log.Warn("no jobs were taken", slog.Any("error", err))
		}
		if time.Since(asked) >= b.every(askEvery) {
			asked = time.Now()
			b.ask(joining)
		}
		pauseFor(joining, b.cfg.Poll)
	}
	_ = works.Wait() // what it was doing with claims is done
	return b.end(ctx)
}

func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// end reports what runs, and unregisters the worker if nothing is left to the next bridge on the folder.
func (b *Bridge) end(ctx context.Context) error {
	if b.cfg.CancelJobs {
		b.leaving.Store(true)
		b.sayOffline(ctx)
		for _, i := range b.claimed() {
			if !i.Claimed {
				continue // it may be another worker's: the next bridge on the folder finds out
			}
			b.drop(ctx, i, statusCancelled, shutdownMessage)
		}
	}
	cancelled := map[string]bool{}
	for ctx.Err() == nil && b.core.Pending() > 0 {
		if b.cfg.CancelJobs {
			b.cancelAll(ctx, cancelled)
		}
		pauseFor(ctx, min(b.cfg.Poll, 100*time.Millisecond))
	}
	if b.core.Pending() == 0 && len(b.claimed()) == 0 && b.mayBeRegistered() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
		defer cancel()
		if _, err := b.remote.call(ctx, http.MethodDelete, "/api/workers/"+url.PathEscape(b.id), nil); err != nil {
			b.log.Debug("the worker is not unregistered", slog.Any("error", err))
		}
	}
	return nil
}

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

// sayOffline has the server give nothing new to the worker, before it is told that jobs were cancelled.
func (b *Bridge) sayOffline(ctx context.Context) {
	if b.interfaceNow() != current || b.core.Pending() == 0 {
		return
	}
	if _, err := b.remote.call(ctx, http.MethodPut, "/api/workers/"+url.PathEscape(b.id)+"/status", update{Status: statusOffline, Message: shutdownMessage}); err != nil {
		b.log.Debug("the server does not know that the worker stops", slog.Any("error", err))
	}
}

func (b *Bridge) interfaceNow() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.api
}

// mayBeRegistered reports whether the server has the worker, as far as is known: the answer to a registration may be lost.
func (b *Bridge) mayBeRegistered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.api == current || b.api == "" && b.asked
}

// join finds out which interface the server has, and registers. It is Unavailable while the server is not there, and another error
// if it has none of them.
func (b *Bridge) join(ctx context.Context) error {
	a, err := b.remote.call(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return muster.Errorf(muster.Unavailable, "the TrainForge server's /health answers %d", a.status)
	}
	c, err := b.core.Capacity(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.asked = true
	b.mu.Unlock()
	a, err = b.remote.call(ctx, http.MethodPost, "/api/workers/register", b.registration(&c))
	if err != nil {
		return err
	}
	if a.status == http.StatusConflict || a.status == http.StatusForbidden {
		return a.failure("the registration")
	}
	registered := a.ok()
	if a, err = b.remote.call(ctx, http.MethodGet, "/api/jobs/pending", nil); err != nil {
		return err
	}
	var list []json.RawMessage
	var api string
	switch {
	case a.status >= 500 || a.status == http.StatusTooManyRequests:
		return a.failure("the list of pending jobs")
	case registered && a.status == http.StatusOK && json.Unmarshal(a.body, &list) == nil:
		api = current
	default:
		if a, err = b.remote.call(ctx, http.MethodGet, "/api/jobs?limit=50", nil); err != nil {
			return err
		}
		var jobs listed
		switch {
		case a.status == http.StatusOK && json.Unmarshal(a.body, &jobs) == nil:
			api = legacy
		case a.status == http.StatusUnauthorized:
			return muster.Errorf(muster.Unauthenticated, "the TrainForge server lists its jobs for users only, and has no interface for external workers: use muster bridge trainforge with --scheduler-token-file")
		case a.status >= 500 || a.status == http.StatusTooManyRequests:
			return a.failure("the list of jobs")
		default:
			return muster.Errorf(muster.Invalid, "there is no TrainForge server at %s that Muster knows: GET /api/jobs/pending and GET /api/jobs do not answer as one", b.remote.host())
		}
	}
	b.mu.Lock()
	b.api = api
	b.mu.Unlock()
	b.log.Info("serving a TrainForge server", slog.String("interface", api), slog.Int("max_jobs", b.most(&c)))
	return nil
}

// registration is what worker C says of itself.
func (b *Bridge) registration(c *bridge.Capacity) *registration {
	host, _ := os.Hostname() // it is for people
	r := &registration{WorkerID: b.id, Status: "idle", WorkerType: bridgeType, Location: cut(host, 100), GPUName: "None"}
	r.Capabilities.MaxJobs = b.most(c)
	r.Capabilities.CPUs = min(c.Resources.CPUs, 10_000)
	r.Capabilities.GPUCount = min(len(c.Resources.GPUs), maxWorkerGPUs)
	r.Capabilities.MaxMemoryGB = float64(c.Resources.Memory>>20) / 1024
	if len(c.Resources.GPUs) > 0 {
		g := c.Resources.GPUs[0]
		r.GPUName, r.GPUMemoryGB = g.Name, float64(g.Memory>>20)/1024
		r.Capabilities.GPUInfo.Available, r.Capabilities.GPUInfo.Name, r.Capabilities.GPUInfo.MemoryGB = true, g.Name, r.GPUMemoryGB
	}
	return r
}

// most is how many jobs may run at the same time.
func (b *Bridge) most(c *bridge.Capacity) int {
	if b.cfg.MaxJobs > 0 {
		return b.cfg.MaxJobs
	}
	return max(1, min(c.Resources.Slots, 10_000))
}

// beat sends a heartbeat and reports whether the server still knows the worker.
func (b *Bridge) beat(ctx context.Context) bool {
	if b.interfaceNow() == legacy {
		return true
	}
	body := beat{Timestamp: epoch(time.Now())}
	if jobs := b.core.Jobs(); len(jobs) > 0 {
		body.CurrentJob = jobs[0].ID
	}
	a, err := b.remote.call(ctx, http.MethodPost, "/api/workers/"+url.PathEscape(b.id)+"/heartbeat", &body)
	return err != nil || a.status == http.StatusOK || a.status == http.StatusTooManyRequests
}

// look takes jobs that wait, as many as may run.
func (b *Bridge) look(ctx context.Context, works *errgroup.Group) error {
	c, err := b.core.Capacity(ctx)
	if err != nil {
		return err
	}
	for _, i := range b.claimed() {
		b.advance(ctx, works, i)
	}
	free := b.most(&c) - b.core.Pending() - len(b.claimed())
	if free <= 0 || len(c.Workers) == 0 {
		return nil
	}
	jobs, err := b.pending(ctx)
	if err != nil {
		return err
	}
	for n := range jobs {
		j := &jobs[n]
		if free <= 0 || ctx.Err() != nil {
			break
		}
		if j.Status != "" && j.Status != statusPending || checkID("job_id", j.id()) != nil || b.core.Known(j.id()) || b.told(j.id(), false) {
			continue
		}
		if why := misfit(j, &c); why != "" {
			if !b.told(j.id(), true) {
				b.log.Warn("a job is left to other workers", slog.String("job", j.id()), slog.String("why", why))
			}
			continue
		}
		if b.claim(ctx, j) {
			free--
		}
	}
	for _, i := range b.claimed() {
		b.advance(ctx, works, i)
	}
	return nil
}

// told reports whether a job was left to others, and notes that it is.
func (b *Bridge) told(id string, note bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.left[id]
	if note {
		if len(b.left) > maxTickets {
			clear(b.left)
		}
		b.left[id] = true
	}
	return was
}

// pending lists jobs that nobody has.
func (b *Bridge) pending(ctx context.Context) ([]job, error) {
	path := "/api/jobs/pending"
	if b.interfaceNow() == legacy {
		path = "/api/jobs?limit=100"
	}
	a, err := b.remote.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, a.failure("the list of jobs")
	}
	var raw []json.RawMessage
	if b.interfaceNow() == legacy {
		var whole struct {
			Jobs []json.RawMessage `json:"jobs"`
		}
		err = json.Unmarshal(a.body, &whole)
		raw = whole.Jobs
	} else {
		err = json.Unmarshal(a.body, &raw)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the TrainForge server's list of jobs cannot be read: %w", err)
	}
	var jobs []job
	for _, one := range raw[:min(len(raw), maxListed)] {
		var j job
		if json.Unmarshal(one, &j) == nil { // one that cannot be read is nobody's reason to leave the others
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// Status writes how the server answers, and how the worker stands there, to w.
func (cfg BridgeConfig) Status(ctx context.Context, w io.Writer) error {
	r, err := newRemote(or(cfg.Scheduler, DefaultScheduler), cfg.Token, cfg.HTTP, "TrainForge-Worker/2.0 muster/"+or(cfg.Version, "dev"))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Max jobs:     %d\n", cfg.MaxJobs)
	a, err := r.call(ctx, http.MethodGet, "/health", nil)
	if err == nil && a.status != http.StatusOK {
		err = a.failure("/health")
	}
	if err != nil {
		fmt.Fprintf(w, "Scheduler:    %s\n", r.host())
		return err
	}
	fmt.Fprintf(w, "Scheduler:    %s, healthy\n", r.host())
	if cfg.WorkerID == "" {
		return nil
	}
	state := "not registered"
	if a, err = r.call(ctx, http.MethodGet, "/api/workers/"+url.PathEscape(cfg.WorkerID), nil); err == nil && a.ok() {
		var said struct {
			Status     string `json:"status"`
			ActiveJobs int    `json:"active_jobs"`
		}
		state = "registered"
		if json.Unmarshal(a.body, &said) == nil && said.Status != "" {
			state = fmt.Sprintf("%s, %d jobs", cut(said.Status, 40), said.ActiveJobs)
		}
	}
	fmt.Fprintf(w, "Worker:       %s, %s\n", cfg.WorkerID, state)
	return nil
}

// Close closes the outbox of a Bridge that was not run.
func (b *Bridge) Close() error { return b.core.Close() }
