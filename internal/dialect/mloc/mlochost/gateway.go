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
)

// System is the dialect, for the list of a server.
func System() dialect.System {
	return dialect.System{
		Name: mloc.SystemName, Title: "MLOC", Address: mloc.DefaultAddress,
		Home: map[string]string{"redis": embeddedRedis},
		Options: []dialect.Option{
			{Name: "redis", Usage: "the Redis database between host and workers (" + mloc.DefaultRedis + "); embedded or embedded:PORT is one of this process on loopback, to try it", Secret: true},
			{Name: "url", Usage: "the address at which workers reach this one, such as http://10.0.0.1:8000"},
			{Name: "token", Usage: "what ORCHESTRATOR_TOKEN is for clients, beside keys of Muster", Secret: true},
			{Name: "mode", Usage: "ORCHESTRATOR_DISPATCH_MODE: adaptive; the others are accepted, and Muster's scheduler places tasks all the same"},
			{Name: "merge", Usage: "ENABLE_TASK_MERGE: true merges inference tasks that differ only in their data, for workers with the tag merge (false)"},
			{Name: "merge_max", Usage: "TASK_MERGE_MAX_BATCH_SIZE (4)"},
			{Name: "watchdog_grace", Usage: "WORKER_DEATH_GRACE_SEC: seconds without a heartbeat key until a worker is unreachable (60)"},
			{Name: "elastic", Usage: "ENABLE_ELASTIC_SCALING: auto disables idle workers and enables them again with a backlog; true allows it by hand only; false (true)"},
			{Name: "elastic_idle", Usage: "ELASTIC_AUTO_DISABLE_IDLE_SEC (60)"},
			{Name: "elastic_queue_min", Usage: "ELASTIC_AUTO_DISABLE_QUEUE_MAX: idle workers are disabled while no more tasks than this wait (2)"},
			{Name: "elastic_queue_max", Usage: "ELASTIC_AUTO_ENABLE_QUEUE_THRESHOLD: workers are enabled again when so many tasks wait (5)"},
			{Name: "elastic_min", Usage: "ELASTIC_AUTO_MIN_ACTIVE_WORKERS (1)"},
			{Name: "elastic_cooldown", Usage: "ELASTIC_AUTO_TOGGLE_COOLDOWN_SEC (60)"},
		},
		New: func(ctx context.Context, env dialect.Env) (dialect.Gateway, error) {
			return newGateway(ctx, env, usual)
		},
	}
}

// pace is how often the gateway looks at things. Tests are in more of a hurry than people.
type pace struct {
	sweep     time.Duration // between two looks at all workers in Redis
	redeliver time.Duration // until a task that no worker began is published again; doubles
	settle    time.Duration // how long a worker may be idle with a task of ours until its news counts as lost
	retry     time.Duration // the first pause after a failure of Redis or of the server; doubles to 30 times
	hold      time.Duration // how long the database stays this host's without a word of it
	merge     time.Duration // how long a task waits at most for a worker that merges, and for others to be merged with
}

var usual = pace{sweep: 3 * time.Second, redeliver: 10 * time.Second, settle: 10 * time.Second, retry: time.Second, hold: 15 * time.Second, merge: 30 * time.Second}

// maxPeers is how many workers of one database the gateway looks at.
const maxPeers = 2_000

// maxDeliveries is how often a task is published for a worker until it is handed back.
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

// Gateway is the host of MLOC: workers of that system become workers of the server, and its clients submit to it.
type Gateway struct {
	env      dialect.Env
	log      *slog.Logger
	pace     pace
	set      settings
	url      string
	secret   []byte // of grants
	name     string // of this host in Redis
	listener *dialect.Listener
	fleet    *fleet.Fleet
	api      *client.Client
	control  *mloc.Control
	embedded *miniredis.Miniredis // nil if Redis is another program
	ledger   *ledger
	results  *results
	figures  figures
	wake     chan struct{}                     // the driver of clients' tasks has something to do
	spawn    func(func(context.Context) error) // runs something until Run ends

	mu         sync.Mutex
	away       error // why Redis cannot be used now; nil if it can
	peers      map[string]*peer
	dispatches map[string]*dispatch // by the id that the worker knows
	disabled   map[string]bool      // workers that are given nothing
	runID      string               // of the Redis server
	dirty      map[muster.JobID]bool
	workers    map[muster.WorkerID]named // names of workers that are none of ours
}

func newGateway(ctx context.Context, env dialect.Env, p pace) (*Gateway, error) {
	set, err := readSettings(env.Config.Options)
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		env: env, log: env.Log, pace: p, set: set,
		wake: make(chan struct{}, 1), peers: map[string]*peer{}, dispatches: map[string]*dispatch{}, disabled: map[string]bool{},
		dirty: map[muster.JobID]bool{}, workers: map[muster.WorkerID]named{},
		away: muster.Errorf(muster.Unavailable, "Redis at %s was not reached yet", mloc.HidePassword(set.redis)),
	}
	if mode := env.Config.Options["mode"]; mode != "" && mode != "adaptive" {
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
	if g.secret, err = secretFile(filepath.Join(g.env.Dir, "secret")); err != nil {
		return err
	}
	if g.set.redis, err = g.startEmbedded(g.set.redis); err != nil {
		return err
	}
	if g.control, err = mloc.DialControl(g.set.redis, "muster-mloc-host"); err != nil {
		return err
	}
	if g.ledger, err = openLedger(g.env.Dir); err != nil {
		return err
	}
	if g.results, err = openResults(filepath.Join(g.env.Dir, "results"), g.ledger.known()); err != nil {
		return err
	}
	if g.api, err = g.env.Server.Client(""); err != nil {
		return err
	}
	g.fleet, err = fleet.Open(fleet.Config{
		Server: g.env.Server, Dir: filepath.Join(g.env.Dir, "fleet"), Log: g.log, System: mloc.SystemName,
		Silence: g.set.grace, Lacks: lacks, Projects: g.env.Config.Projects(), Kinds: g.env.Config.Kinds, Price: g.env.Config.Price,
	})
	if err != nil {
		return err
	}
	open := g.env
	open.Config.KeyRequired = false // what it takes to be let in is in handler: there are other tokens, too
	if g.listener, err = dialect.Listen(ctx, open); err != nil {
		return err
	}
	g.listener.Refuse = refuse
	g.url = cmp.Or(strings.TrimSuffix(g.set.url, "/"), reachable(g.listener.URL()))
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
	if g.ledger != nil {
		errs = append(errs, g.ledger.close())
	}
	if g.control != nil {
		errs = append(errs, g.control.Close())
	}
	if g.embedded != nil {
		g.embedded.Close()
	}
	return errors.Join(errs...)
}

// lacks are features of specs that no worker of MLOC can carry out, and what it cannot do while a task runs. Kinds that keep
// checkpoints are carried out all the same: a retry begins at the start.
var lacks = []string{
	"files", "inputs", "outputs", "env", "args", "url", "shell", "command", "python", "container", "gang", "launcher",
	"network", "interpreter", "requirements", "cancel", "logs",
}

// URL is where clients of MLOC reach the gateway.
func (g *Gateway) URL() string { return g.url }

// Ready says why workers cannot be served now: Redis is away, or another host has the database.
func (g *Gateway) Ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away
}

// Run serves until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	g.spawn = func(f func(context.Context) error) { group.Go(func() error { return f(ctx) }) }
	group.Go(func() error { return g.listener.Serve(ctx, g.handler()) })
	group.Go(func() error { return g.fleet.Run(ctx) })
	group.Go(func() error { return g.host(ctx) })
	if g.embedded != nil {
		group.Go(func() error { return g.age(ctx) })
	}
	group.Go(func() error { return g.watch(ctx) })
	group.Go(func() error { return g.drive(ctx) })
	err := group.Wait()
	g.release(context.WithoutCancel(ctx))
	g.fleet = nil // Run has closed it
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, g.close())
}

// nudge wakes the driver of clients' tasks.
func (g *Gateway) nudge() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// rest waits, or returns false if ctx ends first.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// readSettings reads the options, whose names the list of the system has.
func readSettings(o map[string]string) (settings, error) {
	s := settings{redis: cmp.Or(o["redis"], mloc.DefaultRedis), url: o["url"], token: o["token"], elastic: cmp.Or(o["elastic"], "true")}
	var errs []error
	whole := func(name string, usual, least int) int {
		v := o[name]
		if v == "" {
			return usual
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > 1_000_000 {
			errs = append(errs, muster.Errorf(muster.Invalid, "%s=%s: write a number of %d or more", name, v, least))
			return usual
		}
		return n
	}
	s.mergeMax, s.queueMin, s.queueMax, s.minActive = whole("merge_max", 4, 1), whole("elastic_queue_min", 2, 0), whole("elastic_queue_max", 5, 1), whole("elastic_min", 1, 1)
	s.grace = time.Duration(whole("watchdog_grace", 60, 1)) * time.Second
	s.elasticIdle = time.Duration(whole("elastic_idle", 60, 1)) * time.Second
	s.cooldown = time.Duration(whole("elastic_cooldown", 60, 1)) * time.Second
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

// secretFile reads a secret, or makes one that survives restarts.
func secretFile(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) >= 16 {
		return b, nil
	}
	b = []byte(rand.Text() + rand.Text())
	part := path + ".part"
	if err := errors.Join(os.WriteFile(part, b, 0o600), os.Rename(part, path)); err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot store the secret of the MLOC dialect: %w", err)
	}
	return b, nil
}

// reachable returns a URL with a host that other machines can use where it names none.
func reachable(url string) string {
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
