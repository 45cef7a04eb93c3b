package mlochost

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// keyHost says which Muster server is the host of a database. No program of MLOC knows it.
const keyHost = "muster:mloc:host"

// hashFields are those of a worker's hash that are read.
var hashFields = []string{
	"worker_id", "status", "started_at", "last_seen", "pid", "env_json", "hardware_json", "tags_json", "cost_per_hour",
	"cache_models_json", "cache_datasets_json", "cache_updated_ts", "extra_task_id", "extra_last_task", fieldGiven,
}

// host is the gateway's side of the Redis database: it connects, holds the database against other hosts, listens to events and looks
// at all workers. When anything fails it begins again, with growing pauses.
func (g *Gateway) host(ctx context.Context) error {
	wait := g.pace.retry
	for {
		began := time.Now()
		err := g.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		g.setAway(err)
		if time.Since(began) > 10*g.pace.retry {
			wait = g.pace.retry
		}
		if !rest(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, 30*g.pace.retry)
	}
}

// setAway notes why Redis cannot be used, and tells it once.
func (g *Gateway) setAway(err error) {
	g.mu.Lock()
	was := g.away
	g.away = err
	g.mu.Unlock()
	switch {
	case err == nil && was != nil:
		g.log.Info("MLOC: the Redis database is this host's", slog.String("redis", g.control.URL()))
	case err != nil && (was == nil || was.Error() != err.Error()):
		g.log.Warn("MLOC: no workers can be served", slog.Any("why", err))
	}
}

// session serves one connection to Redis until it breaks.
func (g *Gateway) session(ctx context.Context) error {
	if err := g.hold(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	group.Go(func() error {
		return g.control.Listen(ctx, func() { close(ready) }, g.hear, mloc.TopicTasks, mloc.TopicWorkers)
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready: // what is said from now on is heard
		}
		if n, err := g.control.PubSubNumSub(ctx, mloc.TopicTasks).Result(); err == nil && n[mloc.TopicTasks] > 1 {
			g.log.Warn("MLOC: something else listens to the events of workers, too: a host of MLOC must not use the same Redis",
				slog.String("redis", g.control.URL()), slog.Int64("listeners", n[mloc.TopicTasks]))
		}
		for {
			if err := g.hold(ctx); err != nil {
				return err
			}
			if err := g.sweep(ctx); err != nil {
				return err
			}
			g.setAway(nil)
			if !rest(ctx, g.pace.sweep) {
				return ctx.Err()
			}
		}
	})
	return group.Wait()
}

// hold takes the database for this host or keeps it, and notices that it was emptied or that Redis is another one than before.
func (g *Gateway) hold(ctx context.Context) error {
	taken, err := g.control.SetNX(ctx, keyHost, g.name, g.pace.hold).Result()
	if err != nil {
		return g.control.Away(err)
	}
	if !taken {
		by, err := g.control.Get(ctx, keyHost).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return muster.Errorf(muster.Unavailable, "the Redis database at %s changes its host", g.control.URL())
		case err != nil:
			return g.control.Away(err)
		case by != g.name:
			return muster.Errorf(muster.Conflict, "the Redis database at %s has another host: %s. Give each server a database of its own", g.control.URL(), mloc.Cut(by, 200))
		}
		if err := g.control.PExpire(ctx, keyHost, g.pace.hold).Err(); err != nil {
			return g.control.Away(err)
		}
	}
	id := runID(g.control.Info(ctx, "server").Val())
	g.mu.Lock()
	before, disabled := g.runID, slices.Collect(maps.Keys(g.disabled))
	g.runID = cmpOr(id, before)
	flushed := before != "" && (taken || id != before)
	g.mu.Unlock()
	if before == "" { // the first time: who is disabled is in the database, see sweep
		return nil
	}
	if flushed {
		g.figures.count(&g.figures.flushed)
		g.log.Warn("MLOC: the Redis database was emptied, or Redis restarted: workers that do not register again by themselves are put back with their next heartbeat",
			slog.String("redis", g.control.URL()), slog.Bool("restarted", id != before))
		if len(disabled) > 0 {
			members := make([]any, len(disabled))
			for i, id := range disabled {
				members[i] = id
			}
			if err := g.control.SAdd(ctx, mloc.KeyElastic, members...).Err(); err != nil {
				return g.control.Away(err)
			}
		}
	}
	return nil
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// runID finds the id of one life of a Redis server in what INFO says.
func runID(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id
		}
	}
	return ""
}

// release gives the database free for another host. Nothing else is removed from it.
func (g *Gateway) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if by, err := g.control.Get(ctx, keyHost).Result(); err == nil && by == g.name {
		_ = g.control.Del(ctx, keyHost).Err() // it ends by itself
	}
}

// hear takes a message of a channel of events. It does not block.
func (g *Gateway) hear(_ string, message []byte) {
	te, we, err := mloc.ReadEvent(message, time.Now())
	if err != nil {
		g.figures.count(&g.figures.refused)
		g.log.Debug("MLOC: an event is not understood", slog.Any("why", err))
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
		g.figures.worker(we)
	}
	if !mloc.GoodID(id) {
		return
	}
	g.mu.Lock()
	p := g.peers[id]
	if p == nil && we != nil && we.Type != mloc.EventUnregister && len(g.peers) < maxPeers {
		p = g.newPeer(id)
	}
	g.mu.Unlock()
	if p == nil {
		return
	}
	select {
	case p.inbox <- news{te, we}:
	default: // it says more than can be taken in; what is lost is found out by its hash
		g.figures.count(&g.figures.refused)
	}
}

// newPeer makes a worker known. g.mu is held.
func (g *Gateway) newPeer(id string) *peer {
	p := &peer{g: g, id: id, inbox: make(chan news, 256), swept: make(chan sight, 1), kick: make(chan struct{}, 1)}
	g.peers[id] = p
	g.spawn(p.run)
	return p
}

// sweep looks at all workers.
func (g *Gateway) sweep(ctx context.Context) error {
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
	for id := range g.peers {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	g.mu.Unlock()
	for chunk := range slices.Chunk(ids, 100) {
		seen, err := g.lookAt(ctx, chunk)
		if err != nil {
			return err
		}
		for i, id := range chunk {
			g.mu.Lock()
			p := g.peers[id]
			if p == nil && seen[i].err == nil && len(g.peers) < maxPeers {
				p = g.newPeer(id)
			}
			if p != nil {
				p.last = seen[i]
			}
			g.mu.Unlock()
			if p != nil {
				p.seen(seen[i])
			}
		}
	}
	return g.scale(ctx)
}

// members reads a set of ids of workers, as many as there may be.
func (g *Gateway) members(ctx context.Context, key string) ([]string, error) {
	var ids []string
	var cursor uint64
	for {
		found, next, err := g.control.SScan(ctx, key, cursor, "", 500).Result()
		if err != nil {
			return nil, g.control.Away(err)
		}
		for _, id := range found {
			if mloc.GoodID(id) && len(ids) < maxPeers {
				ids = append(ids, id)
			}
		}
		if cursor = next; cursor == 0 || len(ids) >= maxPeers {
			slices.Sort(ids)
			return slices.Compact(ids), nil
		}
	}
}

// sight is what Redis has of a worker.
type sight struct {
	at    time.Time
	raw   map[string]string
	hash  mloc.WorkerHash
	err   error // why there is no hash
	alive bool  // the heartbeat's key is there, and ends by itself
}

// lookAt reads several workers.
func (g *Gateway) lookAt(ctx context.Context, ids []string) ([]sight, error) {
	hashes := make([]*redis.SliceCmd, len(ids))
	beats := make([]*redis.DurationCmd, len(ids))
	_, err := g.control.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			hashes[i], beats[i] = p.HMGet(ctx, mloc.WorkerKey(id), hashFields...), p.PTTL(ctx, mloc.HeartbeatKey(id))
		}
		return nil
	})
	if err != nil && !strings.Contains(err.Error(), "WRONGTYPE") {
		return nil, g.control.Away(err)
	}
	now := time.Now()
	seen := make([]sight, len(ids))
	for i := range ids {
		raw := map[string]string{}
		values, err := hashes[i].Result()
		if err != nil { // the key is something else than a hash
			seen[i] = sight{at: now, err: g.control.Away(err)}
			continue
		}
		for k, v := range values {
			if s, ok := v.(string); ok {
				raw[hashFields[k]] = s
			}
		}
		seen[i] = sight{at: now, raw: raw, alive: beats[i].Val() > 0}
		seen[i].hash, seen[i].err = mloc.ParseHash(raw)
		if seen[i].err == nil && seen[i].hash.WorkerID != ids[i] {
			seen[i].err = muster.Errorf(muster.Invalid, "the hash of worker %s says that it is %s", ids[i], mloc.Cut(seen[i].hash.WorkerID, mloc.MaxID))
		}
	}
	return seen, nil
}
