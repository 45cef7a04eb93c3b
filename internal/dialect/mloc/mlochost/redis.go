package mlochost

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	keyHost          = "muster:mloc:host" // says which Muster server is the host of a database. No program of MLOC knows it
	embeddedRedis    = "embedded"         // the value of the option redis for a database inside of this process, on loopback: to try things at home
	defaultRedisPort = "6379"             // where programs of MLOC look for Redis
)

// hashFields are those of a worker's hash that are read.
var hashFields = []string{
	"worker_id", "status", "started_at", "last_seen", "pid", "env_json", "hardware_json", "tags_json", "cost_per_hour",
	"cache_models_json", "cache_datasets_json", "cache_updated_ts", "extra_task_id", "extra_last_task", fieldTask,
}

// redisLoop is the gateway's side of the Redis database: it connects, holds the database against other hosts, listens to events and looks
// at all workers. When anything fails it begins again, with growing pauses.
func (g *Gateway) redisLoop(ctx context.Context) error {
	for wait := g.intervals.retry; ; wait = min(2*wait, 30*g.intervals.retry) {
		began := time.Now()
		err := g.redisSession(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		g.setRedisErr(err)
		if time.Since(began) > 10*g.intervals.retry {
			wait = g.intervals.retry
		}
		if backoff.Sleep(ctx, wait) != nil {
			return ctx.Err()
		}
	}
}

// setRedisErr notes why Redis cannot be used, and tells it once.
func (g *Gateway) setRedisErr(err error) {
	g.mu.Lock()
	previous := g.redisErr
	g.redisErr = err
	g.mu.Unlock()
	switch {
	case err == nil && previous != nil:
		g.log.Info("MLOC: the Redis database is this host's", slog.String("redis", g.control.URL))
	case err != nil && (previous == nil || previous.Error() != err.Error()):
		g.log.Warn("MLOC: no workers can be served", slog.Any("why", err))
	}
}

// redisSession serves one connection to Redis until it breaks.
func (g *Gateway) redisSession(ctx context.Context) error {
	if err := g.acquireHost(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	group.Go(func() error {
		return g.control.Listen(ctx, func() { close(ready) }, g.handleMessage, mloc.TopicTasks, mloc.TopicWorkers)
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready: // later events are received
		}
		if n, err := g.control.PubSubNumSub(ctx, mloc.TopicTasks).Result(); err == nil && n[mloc.TopicTasks] > 1 {
			g.log.Warn("MLOC: another client is subscribed to the events of workers: a host of MLOC must not use the same Redis",
				slog.String("redis", g.control.URL), slog.Int64("listeners", n[mloc.TopicTasks]))
		}
		for {
			if err := g.acquireHost(ctx); err != nil {
				return err
			}
			if err := g.scanWorkers(ctx); err != nil {
				return err
			}
			g.setRedisErr(nil)
			if backoff.Sleep(ctx, g.intervals.sweep) != nil {
				return ctx.Err()
			}
		}
	})
	return group.Wait()
}

// acquireHost takes the database for this host or keeps it, and notices that it was emptied or that Redis is another one than before.
func (g *Gateway) acquireHost(ctx context.Context) error {
	acquired, err := g.control.SetNX(ctx, keyHost, g.name, g.intervals.hostTTL).Result()
	if err != nil {
		return g.control.Unavailable(err)
	}
	if !acquired {
		owner, err := g.control.Get(ctx, keyHost).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return muster.Errorf(muster.Unavailable, "the Redis database at %s changes its host", g.control.URL)
		case err != nil:
			return g.control.Unavailable(err)
		case owner != g.name:
			return muster.Errorf(muster.Conflict, "the Redis database at %s has another host: %s. Give each server a database of its own", g.control.URL, mloc.Truncate(owner, 200))
		}
		if err := g.control.PExpire(ctx, keyHost, g.intervals.hostTTL).Err(); err != nil {
			return g.control.Unavailable(err)
		}
	}
	id := runID(g.control.Info(ctx, "server").Val())
	g.mu.Lock()
	previous, disabled := g.runID, slices.Collect(maps.Keys(g.disabled))
	g.runID = cmp.Or(id, previous)
	flushed := previous != "" && (acquired || id != previous)
	g.mu.Unlock()
	if flushed { // the first time it is not: who is disabled is in the database, see sweep
		g.metrics.count(&g.metrics.counters.Flushes, 1)
		g.log.Warn("MLOC: the Redis database was emptied, or Redis restarted: workers that do not register again by themselves are put back with their next heartbeat",
			slog.String("redis", g.control.URL), slog.Bool("restarted", id != previous))
		if len(disabled) > 0 {
			return g.control.Unavailable(g.control.SAdd(ctx, mloc.KeyElastic, disabled).Err())
		}
	}
	return nil
}

// runID returns the run_id of a Redis server from the reply to INFO.
func runID(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id
		}
	}
	return ""
}

// releaseHost gives the database free for another host. Nothing else is removed from it.
func (g *Gateway) releaseHost(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if owner, err := g.control.Get(ctx, keyHost).Result(); err == nil && owner == g.name {
		_ = g.control.Del(ctx, keyHost).Err() // it ends by itself
	}
}

// handleMessage takes a message of a channel of events. It does not block.
func (g *Gateway) handleMessage(_ string, message []byte) {
	te, we, err := mloc.ParseEvent(message, time.Now())
	if err != nil {
		g.metrics.count(&g.metrics.counters.Refused, 1)
		g.log.Debug("MLOC: unknown event", slog.Any("why", err))
		return
	}
	var id string
	if te != nil {
		id = te.WorkerID
	} else {
		id = we.WorkerID
		if we.Status != nil && we.Type == mloc.EventStatus && we.Payload == nil && we.Metrics == nil && we.Tags == nil {
			return // our own
		}
		g.metrics.recordEvent(we)
	}
	if !mloc.ValidID(id) {
		return
	}
	g.mu.Lock()
	p := g.remoteWorkers[id]
	if p == nil && we != nil && we.Type != mloc.EventUnregister && len(g.remoteWorkers) < maxRemoteWorkers {
		p = g.addWorker(id)
	}
	g.mu.Unlock()
	if p == nil {
		return
	}
	select {
	case p.events <- workerNews{te, we}:
	default: // it says more than can be taken in; what is lost is found out by its hash
		g.metrics.count(&g.metrics.counters.Refused, 1)
	}
}

// addWorker makes a worker known. g.mu is held.
func (g *Gateway) addWorker(id string) *remoteWorker {
	p := &remoteWorker{g: g, id: id, events: make(chan workerNews, 256), looked: wake.New(), wake: wake.New()}
	g.remoteWorkers[id] = p
	g.goRun(p.run)
	return p
}

func (g *Gateway) scanWorkers(ctx context.Context) error {
	disabled, err := g.members(ctx, mloc.KeyElastic)
	if err != nil {
		return err
	}
	ids, err := g.members(ctx, mloc.KeyWorkers)
	if err != nil {
		return err
	}
	g.mu.Lock()
	clear(g.disabled)
	for _, id := range disabled {
		g.disabled[id] = true
	}
	for id := range g.remoteWorkers {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	g.mu.Unlock()
	for chunk := range slices.Chunk(ids, 100) {
		snapshots, err := g.readWorkers(ctx, chunk)
		if err != nil {
			return err
		}
		for i, id := range chunk {
			g.mu.Lock()
			p := g.remoteWorkers[id]
			if p == nil && snapshots[i].err == nil && len(g.remoteWorkers) < maxRemoteWorkers {
				p = g.addWorker(id)
			}
			if p != nil {
				p.last = snapshots[i]
				wake.Set(p.looked)
			}
			g.mu.Unlock()
			if p == nil || !snapshots[i].alive {
				continue
			}
			if w := p.worker.Load(); w != nil { // here, because its own goroutine may wait for the server
				w.Touch(p.load.Load())
			}
		}
	}
	return g.scale(ctx)
}

// members reads a set of ids of workers, as many as there may be.
func (g *Gateway) members(ctx context.Context, key string) ([]string, error) {
	var ids []string
	found := g.control.SScan(ctx, key, 0, "", 500).Iterator()
	for len(ids) < maxRemoteWorkers && found.Next(ctx) {
		if id := found.Val(); mloc.ValidID(id) {
			ids = append(ids, id)
		}
	}
	if err := found.Err(); err != nil {
		return nil, g.control.Unavailable(err)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// workerSnapshot is what Redis has of a worker.
type workerSnapshot struct {
	raw   map[string]string
	hash  mloc.WorkerHash
	err   error // why there is no hash
	alive bool  // the heartbeat's key is there, and ends by itself
}

func (g *Gateway) readWorkers(ctx context.Context, ids []string) ([]workerSnapshot, error) {
	hashes := make([]*redis.SliceCmd, len(ids))
	beats := make([]*redis.DurationCmd, len(ids))
	_, err := g.control.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			hashes[i], beats[i] = p.HMGet(ctx, mloc.WorkerKey(id), hashFields...), p.PTTL(ctx, mloc.HeartbeatKey(id))
		}
		return nil
	})
	if err != nil && !strings.Contains(err.Error(), "WRONGTYPE") {
		return nil, g.control.Unavailable(err)
	}
	snapshots := make([]workerSnapshot, len(ids))
	for i := range ids {
		raw := map[string]string{}
		values, err := hashes[i].Result()
		if err != nil { // the key is something else than a hash
			snapshots[i] = workerSnapshot{err: g.control.Unavailable(err)}
			continue
		}
		for k, v := range values {
			if s, ok := v.(string); ok {
				raw[hashFields[k]] = s
			}
		}
		snapshots[i] = workerSnapshot{raw: raw, alive: beats[i].Val() > 0}
		snapshots[i].hash, snapshots[i].err = mloc.ParseHash(raw)
		if snapshots[i].err == nil && snapshots[i].hash.WorkerID != ids[i] {
			snapshots[i].err = muster.Errorf(muster.Invalid, "the hash of worker %s says that it is %s", ids[i], mloc.Truncate(snapshots[i].hash.WorkerID, mloc.MaxID))
		}
	}
	return snapshots, nil
}

// startEmbedded starts a Redis database of this process if the option asks for one, and returns its URL. What is in it ends with
// the process.
func (g *Gateway) startEmbedded(option string) (string, error) {
	name, port, _ := strings.Cut(option, ":")
	if name != embeddedRedis {
		return option, nil
	}
	m, port := miniredis.NewMiniRedis(), cmp.Or(port, defaultRedisPort)
	if err := m.StartAddr("127.0.0.1:" + port); err != nil {
		return "", muster.Errorf(muster.Conflict, "--dialect mloc: cannot start a Redis database on port %s: %w. If there is one already, write redis=redis://127.0.0.1:%[1]s", port, err)
	}
	g.embedded = m
	return "redis://" + m.Addr() + "/0", nil
}

// advanceClock advances the clock of the embedded database, so that its keys expire.
func (g *Gateway) advanceClock(ctx context.Context) error {
	last := time.Now()
	for backoff.Sleep(ctx, g.intervals.sweep) == nil {
		now := time.Now()
		g.embedded.FastForward(now.Sub(last))
		last = now
	}
	return ctx.Err()
}
