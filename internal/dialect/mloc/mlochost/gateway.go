package mlochost

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/lru"
	"github.com/muster-dev/muster/internal/wake"
)

// System is the dialect, for the list of a server.
func System() dialect.System {
	return dialect.System{
		Name: mloc.SystemName, Title: "MLOC", Address: mloc.DefaultAddress,
		DemoOptions: map[string]string{"redis": embeddedRedis},
		Options: []dialect.Option{
			{Name: "redis", Usage: "Redis database between host and workers; embedded or embedded:PORT runs one in this process on loopback, for tests (default: " + mloc.DefaultRedis + ")", Secret: true},
			{Name: "url", Usage: "URL of this server for workers, such as http://10.0.0.1:8000 (default: the address)"},
			{Name: "token", Usage: "ORCHESTRATOR_TOKEN: token of clients, in addition to Muster's keys", Secret: true},
			{Name: "mode", Usage: "ORCHESTRATOR_DISPATCH_MODE: accepted without effect; Muster's scheduler places tasks (default: adaptive)"},
			{Name: "merge", Usage: "ENABLE_TASK_MERGE: true merges inference tasks that differ only in their data, for workers with the tag merge (default: false)"},
			{Name: "merge_max", Usage: "TASK_MERGE_MAX_BATCH_SIZE (default: 4)"},
			{Name: "watchdog_grace", Usage: "WORKER_DEATH_GRACE_SEC: seconds without a heartbeat key until a worker is unreachable (default: 60)"},
			{Name: "elastic", Usage: "ENABLE_ELASTIC_SCALING: auto disables idle workers, and enables them again with a backlog; true allows this only manually; false never (default: true)"},
			{Name: "elastic_idle", Usage: "ELASTIC_AUTO_DISABLE_IDLE_SEC (default: 60)"},
			{Name: "elastic_queue_min", Usage: "ELASTIC_AUTO_DISABLE_QUEUE_MAX: idle workers are disabled while at most this number of tasks wait (default: 2)"},
			{Name: "elastic_queue_max", Usage: "ELASTIC_AUTO_ENABLE_QUEUE_THRESHOLD: workers are enabled again when this number of tasks wait (default: 5)"},
			{Name: "elastic_min", Usage: "ELASTIC_AUTO_MIN_ACTIVE_WORKERS (default: 1)"},
			{Name: "elastic_cooldown", Usage: "ELASTIC_AUTO_TOGGLE_COOLDOWN_SEC (default: 60)"},
		},
		New: func(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
			return newGateway(ctx, deps, defaultIntervals)
		},
	}
}

// intervals is how often the gateway looks at things. Tests are in more of a hurry than people.
type intervals struct {
	sweep         time.Duration // between two looks at all workers in Redis
	redeliver     time.Duration // until a task that no worker began is published again; doubles
	mismatchGrace time.Duration // how long a worker may be idle with a task of ours until its news counts as lost
	retry         time.Duration // the first pause after a failure of Redis or of the server; doubles to 30 times
	hostTTL       time.Duration // how long the database stays this host's without a word of it
	mergeWait     time.Duration // how long a task waits at most for a worker that merges, and for others to be merged with
}

var defaultIntervals = intervals{sweep: 3 * time.Second, redeliver: 10 * time.Second, mismatchGrace: 10 * time.Second, retry: time.Second, hostTTL: 15 * time.Second, mergeWait: 30 * time.Second}

const (
	maxRemoteWorkers = 2_000 // of one database that the gateway looks at
	maxDeliveries    = 4     // times that a task is published for a worker until it is requeued
)

type settings struct {
	redis, url, token string
	merge             bool
	mergeMax          int
	grace             time.Duration
	elastic           string
	elasticIdle       time.Duration
	queueMin          int
	queueMax          int
	minActive         int
	cooldown          time.Duration
}

// Gateway implements a host of MLOC: workers of that system become workers of the server, and its clients submit to it.
type Gateway struct {
	fleet.Gateway

	log       *slog.Logger
	intervals intervals
	settings  settings
	url       string
	secret    []byte // of grants
	name      string // of this host in Redis
	api       *client.Client
	control   *mloc.RedisConn
	embedded  *miniredis.Miniredis // nil if Redis is another program
	tasks     *taskStore
	results   *results
	metrics   *gatewayMetrics
	names     *lru.Cache[string, workerName]    // of workers, by their ids at the server
	wake      chan struct{}                     // the driver of clients' tasks has something to do
	goRun     func(func(context.Context) error) // runs something until Run ends

	mu            sync.Mutex
	redisErr      error // why Redis cannot be used now; nil if it can
	remoteWorkers map[string]*remoteWorker
	dispatches    map[string]*dispatch // by the id that the worker knows
	disabled      map[string]bool      // workers that are given nothing
	runID         string               // of the Redis server
	changedJobs   map[muster.JobID]bool
}

func newGateway(ctx context.Context, deps dialect.Deps, p intervals) (*Gateway, error) {
	settings, err := readSettings(deps.Config)
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		Gateway: fleet.Gateway{Deps: deps}, log: deps.Log, intervals: p, settings: settings,
		metrics: newGatewayMetrics(), names: lru.NewCounted[string, workerName](maxRemoteWorkers), wake: wake.New(),
		remoteWorkers: map[string]*remoteWorker{}, dispatches: map[string]*dispatch{}, disabled: map[string]bool{}, changedJobs: map[muster.JobID]bool{},
		redisErr: muster.Errorf(muster.Unavailable, "Redis at %s was not reached yet", mloc.HidePassword(settings.redis)),
	}
	if mode := deps.Config.Options["mode"]; mode != "" && mode != "adaptive" {
		g.log.Warn("MLOC: the mode has no effect: Muster's scheduler places tasks", slog.String("mode", mode))
	}
	host, _ := os.Hostname() // only for people
	g.name = fmt.Sprintf("muster %s pid %d %s", host, os.Getpid(), rand.Text()[:8])
	if err := g.open(ctx); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *Gateway) open(ctx context.Context) (err error) {
	if g.secret, err = dialect.Secret(filepath.Join(g.Deps.Dir, "secret")); err != nil {
		return err
	}
	if g.settings.redis, err = g.startEmbedded(g.settings.redis); err != nil {
		return err
	}
	if g.control, err = mloc.DialRedis(g.settings.redis, "muster-mloc-host"); err != nil {
		return err
	}
	if g.tasks, err = openTaskStore(g.Deps.Dir, g.metrics.recordEnd); err != nil {
		return err
	}
	if g.results, err = openResults(filepath.Join(g.Deps.Dir, "results"), g.tasks.knownFolders()); err != nil {
		return err
	}
	if g.api, err = g.Deps.Server.Client(""); err != nil {
		return err
	}
	g.Gateway, err = fleet.OpenGateway(ctx, g.Deps, fleet.Config{
		System: mloc.SystemName, SilenceTimeout: g.settings.grace, Lacks: missingFeatures, OwnKeys: true,
	})
	if err != nil {
		return err
	}
	g.Listener.WriteError = writeAuthError
	g.url = cmp.Or(strings.TrimSuffix(g.settings.url, "/"), reachableURL(g.Listener.URL()))
	return nil
}

// close closes what was opened, but for the fleet, which is opened last and which Serve closes.
func (g *Gateway) close() error {
	var errs []error
	if g.results != nil {
		errs = append(errs, g.results.root.Close())
	}
	if g.tasks != nil {
		errs = append(errs, g.tasks.db.Close())
	}
	if g.control != nil {
		errs = append(errs, g.control.Close())
	}
	if g.embedded != nil {
		g.embedded.Close()
	}
	return errors.Join(errs...)
}

// missingFeatures are features of specs that no worker of MLOC can carry out, and what it cannot do while a task runs. Kinds that keep
// checkpoints are carried out all the same: a retry begins at the start.
var missingFeatures = []string{
	"files", "inputs", "outputs", "env", "args", "url", "shell", "command", "python", "container", "gang", "launcher",
	"network", "interpreter", "requirements", "cancel", "logs",
}

// Databases implements dialect.DatabaseOwner.
func (g *Gateway) Databases() []*bbolt.DB { return append(g.Gateway.Databases(), g.tasks.db) }

// URL is where clients of MLOC reach the gateway.
func (g *Gateway) URL() string { return g.url }

// Ready returns why workers cannot be served now: Redis is unreachable, or another host has the database.
func (g *Gateway) Ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.redisErr
}

// Run serves until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	g.goRun = func(f func(context.Context) error) { group.Go(func() error { return f(ctx) }) }
	loops := []func(context.Context) error{g.redisLoop, g.watchEvents, g.driveLoop}
	if g.embedded != nil {
		loops = append(loops, g.advanceClock)
	}
	g.goRun(func(ctx context.Context) error { return g.Serve(ctx, g.handler(), loops...) })
	err := group.Wait()
	g.releaseHost(context.WithoutCancel(ctx))
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, g.close())
}

func readSettings(c dialect.Config) (settings, error) {
	const most = 1_000_000
	o := c.ReadOptions()
	seconds := func(name string) time.Duration { return time.Duration(o.Int(name, 60, 1, most)) * time.Second }
	s := settings{
		redis: cmp.Or(c.Options["redis"], mloc.DefaultRedis), url: c.Options["url"], token: c.Options["token"],
		merge: o.OneOf("merge", "false", "true") == "true", mergeMax: o.Int("merge_max", 4, 1, most),
		elastic: o.OneOf("elastic", "true", "auto", "false"), queueMin: o.Int("elastic_queue_min", 2, 0, most),
		queueMax: o.Int("elastic_queue_max", 5, 1, most), minActive: o.Int("elastic_min", 1, 1, most),
		grace: seconds("watchdog_grace"), elasticIdle: seconds("elastic_idle"), cooldown: seconds("elastic_cooldown"),
	}
	o.OneOf("mode", "adaptive", "static_worker", "fixed_pipeline", "static_round_robin") // has no effect: see newGateway
	if s.url != "" && !strings.HasPrefix(s.url, "http://") && !strings.HasPrefix(s.url, "https://") {
		o.Fail("url", "use an address, such as http://10.0.0.1:8000")
	}
	return s, o.Err()
}

// reachableURL returns a URL with a host that other machines can use where it names none.
func reachableURL(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	host, port, err := net.SplitHostPort(rest)
	if ip := net.ParseIP(host); err != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return strings.TrimSuffix(url, "/")
	}
	return scheme + "://" + net.JoinHostPort(mloc.LocalIP(), port)
}
