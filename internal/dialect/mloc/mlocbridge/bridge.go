// Package mlocbridge is a worker of an MLOC host: it takes tasks from the host's Redis channel, submits them
// to a Muster server as jobs, and posts their results and events.
package mlocbridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

// Config is what a bridge to a host of MLOC needs.
type Config struct {
	Core bridge.Config // Client, Dir, Log

	Redis           string        // REDIS_URL
	Topic           string        // TASK_TOPIC
	WorkerID        string        // WORKER_ID; one of its own, which it keeps, if empty
	Results         string        // RESULTS_DIR
	Tags            []string      // WORKER_TAGS
	Heartbeat       time.Duration // HEARTBEAT_INTERVAL_SEC
	BaseURL         string        // ORCHESTRATOR_BASE_URL
	Token           string        // ORCHESTRATOR_TOKEN
	Cost            float64       // WORKER_COST_PER_HOUR
	Bandwidth       float64       // WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC; 0 means no limit
	HFModel         string        // HF_MODEL: of an inference that names none
	VLLMModel       string        // VLLM_MODEL: the same, where it runs on GPUs
	Cleanup         bool          // MODEL_CLEANUP_AFTER_UPLOAD
	StopTasks       bool          // the bridge is this machine's alone: when it stops, so do its tasks
	AllowAnyPath    bool          // tasks may name any path of this machine, as with a worker of MLOC
	Shared          []string      // folders beside Results that tasks may name
	DeliveryTimeout time.Duration // how long a delivery is tried that fails by no decision of the host; default 5m
	ConfirmTimeout  time.Duration // how long the host may take to note a report; default 2s
	RetryDelay      time.Duration // before the first repetition of something; default 1s
}

// Bridge lets a fleet of Muster, or one of its workers, serve a host of MLOC as one worker.
type Bridge struct {
	cfg    Config
	client *client.Client
	log    *slog.Logger
	http   *httpClient
	redis  *mloc.RedisConn
	tmpDir string
}

// New prepares a bridge; nothing is sent before Run.
func New(cfg Config) (*Bridge, error) {
	cfg.Redis, cfg.Topic, cfg.Results = cmp.Or(cfg.Redis, mloc.DefaultRedis), cmp.Or(cfg.Topic, mloc.DefaultTopic), cmp.Or(cfg.Results, "results_workers")
	cfg.Heartbeat, cfg.DeliveryTimeout = cmp.Or(cfg.Heartbeat, 30*time.Second), cmp.Or(cfg.DeliveryTimeout, 5*time.Minute)
	cfg.ConfirmTimeout, cfg.RetryDelay = cmp.Or(cfg.ConfirmTimeout, 2*time.Second), cmp.Or(cfg.RetryDelay, time.Second)
	switch {
	case cfg.Cost < 0:
		return nil, muster.Errorf(muster.Invalid, "WORKER_COST_PER_HOUR is %g: it cannot be negative", cfg.Cost)
	case cfg.Bandwidth < 0:
		return nil, muster.Errorf(muster.Invalid, "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC is %g: it must be more than 0", cfg.Bandwidth)
	case cfg.WorkerID != "" && !mloc.ValidID(cfg.WorkerID):
		return nil, muster.Errorf(muster.Invalid, "%q cannot be a WORKER_ID", mloc.Truncate(cfg.WorkerID, 200))
	case cfg.Heartbeat < 0:
		return nil, muster.Errorf(muster.Invalid, "HEARTBEAT_INTERVAL_SEC is negative")
	}
	if cfg.BaseURL != "" {
		if err := checkURL(cfg.BaseURL); err != nil {
			return nil, muster.Errorf(muster.Invalid, "ORCHESTRATOR_BASE_URL: %w", err)
		}
		cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	}
	tags := []string{} // without duplicates and empty ones
	for _, t := range cfg.Tags {
		if t != "" && !slices.Contains(tags, t) {
			tags = append(tags, t)
		}
	}
	cfg.Tags = tags
	var err error
	if cfg.Results, err = filepath.Abs(cfg.Results); err != nil {
		return nil, muster.Errorf(muster.Invalid, "RESULTS_DIR: %w", err)
	}
	b := &Bridge{cfg: cfg, client: cfg.Core.Client, log: cfg.Core.Log, http: newHTTPClient(cfg.Bandwidth), tmpDir: filepath.Join(cfg.Core.Dir, "temporary")}
	if b.redis, err = mloc.DialRedis(cfg.Redis, "muster-bridge"); err != nil {
		return nil, err
	}
	return b, nil
}

// Run serves the host. When taking ends it takes nothing new, and returns once everything is reported; when ctx ends it
// returns at once. Then the worker unregisters, unless it holds tasks that continue without the bridge: those are reported by
// the next Run on the same folder, and the host waits for it as long as the last heartbeat counts.
func (b *Bridge) Run(ctx, acceptCtx context.Context) error {
	defer func() { _ = b.redis.Close() }()
	_ = os.RemoveAll(b.tmpDir) // of a process that was killed
	for _, dir := range []string{b.cfg.Core.Dir, b.tmpDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return muster.Errorf(muster.Invalid, "cannot make %s: %w", dir, err)
		}
	}
	if err := os.MkdirAll(b.cfg.Results, 0o755); err != nil { //nolint:gosec // a folder that others share
		return muster.Errorf(muster.Invalid, "cannot make RESULTS_DIR: %w", err)
	}
	w, err := b.newWorker()
	if err != nil {
		return err
	}
	return w.run(ctx, acceptCtx)
}

func (b *Bridge) newWorker() (*bridgeWorker, error) {
	id := b.cfg.WorkerID
	var err error
	if id == "" { // it is made once and kept, so that a bridge that was killed comes back as the same worker
		if id, err = bridge.Identity(filepath.Join(b.cfg.Core.Dir, "worker-id"), mloc.ValidID, newID); err != nil {
			return nil, err
		}
	}
	w := &bridgeWorker{Bridge: b, id: id, dir: b.cfg.Core.Dir, openDispatches: map[string]*delivery{}, returned: map[string]bool{}, wake: wake.New()}
	if err = w.loadReturned(); err != nil {
		return nil, err
	}
	_, err = os.Stat(filepath.Join(w.dir, "inbox"))
	restarted := err == nil
	if w.inbox, err = openInbox(filepath.Join(w.dir, "inbox"), w.wake); err != nil {
		return nil, err
	}
	core := b.cfg.Core
	core.System, core.Origin = "mloc", b.redis.URL+" "+id
	core.ProgressInterval = cmp.Or(core.ProgressInterval, time.Second) // for TASK_STARTED
	if w.core, err = bridge.New(core, w); err != nil {
		return nil, err
	}
	w.session = &session{
		redis: b.redis, id: id, topic: b.cfg.Topic, interval: b.cfg.Heartbeat, log: b.log, meter: newMeter(time.Now(), b.cfg.Cost),
		facts: w.facts, message: w.handleMessage, restarted: restarted, missedMessages: true, wake: wake.New(),
	}
	return w, nil
}

// newID makes an id as workers of MLOC do: 16 hex digits.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
