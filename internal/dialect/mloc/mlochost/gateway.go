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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/mloc"
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

// maxRemoteWorkers is how many workers of one database the gateway looks at.
const maxRemoteWorkers = 2_000

// maxDeliveries is how often a task is published for a worker until it is requeued.
const maxDeliveries = 4

// settings are the options of the dialect.
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
	deps      dialect.Deps
	log       *slog.Logger
	intervals intervals
	settings  settings
	url       string
	secret    []byte // of grants
	name      string // of this host in Redis
	listener  *dialect.Listener
	fleet     *fleet.Fleet
	api       *client.Client
	control   *mloc.RedisConn
	embedded  *miniredis.Miniredis // nil if Redis is another program
	tasks     *taskStore
	results   *results
	metrics   gatewayMetrics
	wake      chan struct{}                     // the driver of clients' tasks has something to do
	goRun     func(func(context.Context) error) // runs something until Run ends

	mu            sync.Mutex
	redisErr      error // why Redis cannot be used now; nil if it can
	remoteWorkers map[string]*remoteWorker
	dispatches    map[string]*dispatch // by the id that the worker knows
	disabled      map[string]bool      // workers that are given nothing
	runID         string               // of the Redis server
	changedJobs   map[muster.JobID]bool
	workerNames   map[muster.WorkerID]workerName // names of workers of other systems
}

func newGateway(ctx context.Context, deps dialect.Deps, p intervals) (*Gateway, error) {
	settings, err := readSettings(deps.Config.Options)
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		deps: deps, log: deps.Log, intervals: p, settings: settings,
		wake: wake.New(), remoteWorkers: map[string]*remoteWorker{}, dispatches: map[string]*dispatch{}, disabled: map[string]bool{},
		changedJobs: map[muster.JobID]bool{}, workerNames: map[muster.WorkerID]workerName{},
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
	if g.secret, err = dialect.Secret(filepath.Join(g.deps.Dir, "secret")); err != nil {
		return err
	}
	if g.settings.redis, err = g.startEmbedded(g.settings.redis); err != nil {
		return err
	}
	if g.control, err = mloc.DialRedis(g.settings.redis, "muster-mloc-host"); err != nil {
		return err
	}
	if g.tasks, err = openTaskStore(g.deps.Dir); err != nil {
		return err
	}
	if g.results, err = openResults(filepath.Join(g.deps.Dir, "results"), g.tasks.knownFolders()); err != nil {
		return err
	}
	if g.api, err = g.deps.Server.Client(""); err != nil {
		return err
	}
	g.fleet, err = fleet.Open(fleet.Config{
		Server: g.deps.Server, Dir: filepath.Join(g.deps.Dir, "fleet"), Log: g.log, System: mloc.SystemName,
		SilenceTimeout: g.settings.grace, Lacks: missingFeatures, Projects: g.deps.Config.Projects(), Kinds: g.deps.Config.Kinds, Price: g.deps.Config.Price,
	})
	if err != nil {
		return err
	}
	deps := g.deps
	deps.Config.KeyRequired = false // what it takes to be let in is in handler: there are other tokens, too
	if g.listener, err = dialect.Listen(ctx, deps); err != nil {
		return err
	}
	g.listener.WriteError = writeAuthError
	g.url = cmp.Or(strings.TrimSuffix(g.settings.url, "/"), reachableURL(g.listener.URL()))
	return nil
}

// close gives free what was opened.
func (g *Gateway) close() error {
	var errs []error
	if g.fleet != nil {
		errs = append(errs, g.fleet.Close())
	}
	if g.results != nil {
		errs = append(errs, g.results.close())
	}
	if g.tasks != nil {
		errs = append(errs, g.tasks.close())
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
	group.Go(func() error { return g.listener.Serve(ctx, g.handler()) })
	group.Go(func() error { return g.fleet.Run(ctx) })
	group.Go(func() error { return g.redisLoop(ctx) })
	if g.embedded != nil {
		group.Go(func() error { return g.advanceClock(ctx) })
	}
	group.Go(func() error { return g.watchEvents(ctx) })
	group.Go(func() error { return g.driveLoop(ctx) })
	err := group.Wait()
	g.releaseHost(context.WithoutCancel(ctx))
	g.fleet = nil // Run has closed it
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, g.close())
}

// wakeDriver wakes the driver of clients' tasks.
func (g *Gateway) wakeDriver() {
	wake.Set(g.wake)
}

// readSettings reads the options, whose names the list of the system has.
func readSettings(o map[string]string) (settings, error) {
	s := settings{redis: cmp.Or(o["redis"], mloc.DefaultRedis), url: o["url"], token: o["token"], elastic: cmp.Or(o["elastic"], "true")}
	var errs []error
	intOption := func(name string, fallback, minValue int) int {
		v := o[name]
		if v == "" {
			return fallback
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < minValue || n > 1_000_000 {
			errs = append(errs, muster.Errorf(muster.Invalid, "%s=%s: write a number of %d or more", name, v, minValue))
			return fallback
		}
		return n
	}
	s.mergeMax, s.queueMin, s.queueMax, s.minActive = intOption("merge_max", 4, 1), intOption("elastic_queue_min", 2, 0), intOption("elastic_queue_max", 5, 1), intOption("elastic_min", 1, 1)
	s.grace = time.Duration(intOption("watchdog_grace", 60, 1)) * time.Second
	s.elasticIdle = time.Duration(intOption("elastic_idle", 60, 1)) * time.Second
	s.cooldown = time.Duration(intOption("elastic_cooldown", 60, 1)) * time.Second
	switch o["merge"] {
	case "", "false":
	case "true":
		s.merge = true
	default:
		errs = append(errs, muster.Errorf(muster.Invalid, "merge=%s: write true or false", o["merge"]))
	}
	switch s.elastic {
	case "auto", "true", "false":
	default:
		errs = append(errs, muster.Errorf(muster.Invalid, "elastic=%s: write auto, true or false", s.elastic))
	}
	switch o["mode"] {
	case "", "adaptive", "static_worker", "fixed_pipeline", "static_round_robin":
	default:
		errs = append(errs, muster.Errorf(muster.Invalid, "mode=%s: write adaptive, static_worker, fixed_pipeline or static_round_robin", o["mode"]))
	}
	if s.url != "" && !strings.HasPrefix(s.url, "http://") && !strings.HasPrefix(s.url, "https://") {
		errs = append(errs, muster.Errorf(muster.Invalid, "url=%s: write an address such as http://10.0.0.1:8000", s.url))
	}
	if err := errors.Join(errs...); err != nil {
		return s, muster.Errorf(muster.Invalid, "--dialect mloc: %w", err)
	}
	return s, nil
}

// reachableURL returns a URL with a host that other machines can use where it names none.
func reachableURL(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	host, port, err := net.SplitHostPort(rest)
	if ip := net.ParseIP(host); err != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return strings.TrimSuffix(url, "/")
	}
	found := "127.0.0.1"
	addrs, _ := net.InterfaceAddrs() // without any it is this machine
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			found = n.IP.String()
			break
		}
	}
	return scheme + "://" + net.JoinHostPort(found, port)
}
