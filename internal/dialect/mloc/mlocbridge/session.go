package mlocbridge

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	minHeartbeatTTL = 2 * time.Minute  // shortest time to live of a heartbeat
	startupGrace    = 10 * time.Second // for Muster's workers to join when all begin at once
)

// session keeps one worker of MLOC in Redis: its registration, heartbeats, status and events. It survives a
// Redis that was unreachable, restarted or flushed: missing entries are written again.
type session struct {
	redis     *mloc.RedisConn
	id, topic string
	interval  time.Duration
	log       *slog.Logger
	meter     *meter
	facts     func(ctx context.Context) (mloc.WorkerHash, error) // what the worker says about itself when it registers
	message   func(b []byte)                                     // each message of the channel of tasks; must not wait

	writing        sync.Mutex // held while a status is written, before mu
	mu             sync.Mutex
	registered     bool          // registered at least once by this process
	restarted      bool          // an earlier process was registered under this id, and this one was not idle yet
	listening      bool          // a subscription is confirmed
	missedMessages bool          // there was a time without a subscription: a task may have been published meanwhile
	closed         bool          // no new tasks are wanted
	busy           string        // the task that is carried out, "" if none
	last           string        // the one before
	suspicious     int           // looks in a row at which the host took this worker for busy though it is idle
	wake           chan struct{} // wakes the heartbeats after a change
}

// run keeps the worker registered until ctx ends. It does not unregister it.
func (s *session) run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { s.listen(ctx) })
	group.Go(func() { s.heartbeatLoop(ctx) })
	group.Wait()
	return ctx.Err()
}

// listen listens to the channel of tasks, again and again.
func (s *session) listen(ctx context.Context) {
	for wait := time.Second / 4; ctx.Err() == nil; wait = min(2*wait, 10*time.Second) {
		err := s.redis.Listen(ctx, func() {
			wait = time.Second / 4
			s.change(func() { s.listening = true })
		}, func(_ string, b []byte) {
			if len(b) <= mloc.MaxMessage {
				s.message(b)
			} else {
				s.log.Warn("a message on the channel of tasks is too large and was not read", slog.Int("bytes", len(b)))
			}
		}, s.topic)
		s.change(func() {
			if s.listening {
				s.listening, s.missedMessages = false, true
			}
		})
		if ctx.Err() == nil {
			s.log.Warn("not subscribed to the channel of tasks, retrying", slog.String("why", err.Error()), slog.Duration("in", wait))
			_ = backoff.Sleep(ctx, wait)
		}
	}
}

// change changes the session's state and has it written.
func (s *session) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	wake.Set(s.wake)
}

// heartbeatLoop writes heartbeats, and whatever changed, until ctx ends.
func (s *session) heartbeatLoop(ctx context.Context) {
	var lastBeat time.Time
	began, warned := time.Now(), false
	for retrying := false; ; {
		s.mu.Lock()
		subscribed, registered := s.listening, s.registered
		s.mu.Unlock()
		if subscribed { // before, a task that the host publishes would be lost
			due := time.Since(lastBeat) >= s.interval-s.interval/8
			err := s.reconcile(ctx, due)
			switch {
			case err == nil:
				if due {
					lastBeat = time.Now()
				}
				retrying, warned = false, false
			case ctx.Err() != nil || warned:
			case !registered && time.Since(began) < startupGrace:
				retrying = true
			default:
				retrying, warned = true, true
				s.log.Warn("cannot register with the host, retrying", slog.String("why", err.Error()))
			}
		}
		pause := s.interval
		if retrying {
			pause = min(pause, 2*time.Second)
		} else if subscribed {
			pause -= time.Since(lastBeat)
		}
		if wake.Wait(ctx, s.wake, pause) != nil {
			return
		}
	}
}

// reconcile makes what Redis says about this worker right, and sends a heartbeat if one is due.
func (s *session) reconcile(ctx context.Context, due bool) error {
	known, err := s.redis.HMGet(ctx, mloc.WorkerKey(s.id), "worker_id", "status").Result()
	if err != nil {
		return s.redis.Unavailable(err)
	}
	there, status := len(known) == 2 && known[0] == s.id, ""
	if there {
		status, _ = known[1].(string)
	}
	s.mu.Lock()
	registered, missed, restarted, want := s.registered, s.missedMessages, s.restarted, s.status()
	holds := s.busy != ""
	if status == mloc.StatusRunning && want == mloc.StatusIdle {
		s.suspicious++
	} else {
		s.suspicious = 0
	}
	suspicious := s.suspicious
	s.mu.Unlock()

	// A task that was published while this worker did not listen never arrived, and without UNREGISTER the host would wait
	// for it forever. It has to be thought of where the host took the worker for busy, where that cannot be known any more,
	// and after each restart: an earlier process may have been killed with a message that it had not kept yet.
	lost := !holds && (restarted || missed && (there && (status == mloc.StatusRunning || !registered) || !there && registered))
	if lost {
		s.log.Info("a task may have been published while this worker was not subscribed: registering again, so that the host publishes it again")
		if err := s.unregister(ctx); err != nil {
			return err
		}
	}
	if lost || !there || !registered {
		if err := s.register(ctx); err != nil {
			return err
		}
		s.log.Info("registered", slog.String("worker_id", s.id))
		status, due = mloc.StatusStarting, true
	}
	s.mu.Lock()
	s.registered, s.missedMessages = true, false
	s.restarted = s.restarted && holds
	s.mu.Unlock()
	// A host writes RUNNING after it has published a task, which may be after the end of a short one. Two looks, so that
	// a task that is under way is not taken for that.
	if status != want && (status != mloc.StatusRunning || want != mloc.StatusIdle || suspicious > 1) {
		if err := s.writeStatus(ctx); err != nil {
			return err
		}
	}
	if due {
		return s.heartbeat(ctx)
	}
	if suspicious == 1 { // the second look comes soon, and not at the next heartbeat
		_ = backoff.Sleep(ctx, min(time.Second, s.interval))
		wake.Set(s.wake)
	}
	return ctx.Err()
}

// status is what the host should believe. s.mu is held.
func (s *session) status() string {
	switch {
	case s.busy != "":
		return mloc.StatusRunning
	case s.closed:
		return mloc.StatusStarting // which hosts give nothing
	default:
		return mloc.StatusIdle
	}
}

// register writes the worker's hash as a worker of MLOC does when it starts.
func (s *session) register(ctx context.Context) error {
	h, err := s.facts(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	h.WorkerID, h.Status, h.PID = s.id, mloc.StatusStarting, os.Getpid()
	h.StartedAt, h.LastSeen = mloc.FormatTime(s.meter.startedAt), mloc.FormatTime(now)
	event := mloc.WorkerEvent{
		Type: mloc.EventRegister, Status: &h.Status, Tags: h.Tags,
		Payload: mloc.Object{"env": mloc.Object{}, "hardware": h.Hardware, "cost_per_hour": h.CostPerHour, "power_metrics": s.meter.power()},
	}
	return s.announce(ctx, now, event, func(p redis.Pipeliner) {
		p.SAdd(ctx, mloc.KeyWorkers, s.id)
		p.HSet(ctx, mloc.WorkerKey(s.id), h.Fields())
		p.SetEx(ctx, mloc.HeartbeatKey(s.id), mloc.FormatTime(now), s.heartbeatTTL())
	})
}

// announce makes changes in Redis and publishes the event of this worker about them, all or nothing.
func (s *session) announce(ctx context.Context, now time.Time, e mloc.WorkerEvent, change func(redis.Pipeliner)) error {
	e.TS, e.WorkerID, e.Tags = mloc.FormatTime(now), s.id, mloc.NonNilList(e.Tags)
	e.Metrics, e.Payload = mloc.NonNilObject(e.Metrics), mloc.NonNilObject(e.Payload)
	event, err := mloc.Encode(e)
	if err != nil {
		return err
	}
	_, err = s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		change(p)
		p.Publish(ctx, mloc.TopicWorkers, event)
		return nil
	})
	return s.redis.Unavailable(err)
}

// heartbeatTTL is how long a heartbeat counts.
func (s *session) heartbeatTTL() time.Duration { return max(4*s.interval, minHeartbeatTTL) }

// writeStatus writes the status of now and tells it. One at a time, so that an older status never replaces a newer one.
func (s *session) writeStatus(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	status, busy, last := s.status(), s.busy, s.last
	s.mu.Unlock()
	now := time.Now()
	payload, fields := mloc.Object{}, []any{"status", status, "last_seen", mloc.FormatTime(now)}
	switch {
	case status == mloc.StatusRunning:
		payload["task_id"], fields = busy, append(fields, "extra_task_id", busy)
	case last != "":
		payload["last_task"], fields = last, append(fields, "extra_last_task", last)
	}
	return s.announce(ctx, now, mloc.WorkerEvent{Type: mloc.EventStatus, Status: &status, Payload: payload}, func(p redis.Pipeliner) {
		p.HSet(ctx, mloc.WorkerKey(s.id), fields...)
	})
}

// heartbeat tells that the worker lives, and its hardware, which changes: workers of a fleet come and go.
func (s *session) heartbeat(ctx context.Context) error {
	now, cost := time.Now(), s.meter.cost
	fields := []any{"last_seen", mloc.FormatTime(now)}
	if h, err := s.facts(ctx); err == nil { // else Muster's server is unreachable: the last ones are kept
		cost = h.CostPerHour
		fields = append(fields, "hardware_json", mloc.EncodeString(h.Hardware), "tags_json", mloc.EncodeString(h.Tags), "cost_per_hour", mloc.FormatPythonFloat(cost))
	}
	s.mu.Lock()
	status := s.status()
	s.mu.Unlock()
	return s.announce(ctx, now, mloc.WorkerEvent{Type: mloc.EventHeartbeat, Status: &status, Metrics: s.meter.metrics(now, cost)}, func(p redis.Pipeliner) {
		p.SetEx(ctx, mloc.HeartbeatKey(s.id), mloc.FormatTime(now), s.heartbeatTTL())
		p.HSet(ctx, mloc.WorkerKey(s.id), fields...)
	})
}

// unregister removes the worker: the host gives its tasks to others.
func (s *session) unregister(ctx context.Context) error {
	now := time.Now()
	return s.announce(ctx, now, mloc.WorkerEvent{Type: mloc.EventUnregister, Payload: s.meter.finalMetrics(now)}, func(p redis.Pipeliner) {
		p.SRem(ctx, mloc.KeyWorkers, s.id)
		p.Del(ctx, mloc.WorkerKey(s.id), mloc.HeartbeatKey(s.id))
	})
}

// setBusy says that the worker carries out a task from now on. Redis may be away: the status is written as soon as it is
// not.
func (s *session) setBusy(task string) {
	s.change(func() {
		if s.busy != "" && s.busy != task {
			s.last = s.busy
		}
		s.busy, s.suspicious = task, 0
	})
}

// close records that the worker accepts no new tasks.
func (s *session) close() { s.change(func() { s.closed = true }) }

// setIdle says that it does not any more, and can take the next one.
func (s *session) setIdle() {
	s.change(func() {
		if s.busy != "" {
			s.busy, s.last = "", s.busy
		}
	})
}

// publish publishes an event of a task, and fails unless a subscriber received it.
func (s *session) publish(ctx context.Context, e mloc.TaskEvent) error {
	e.WorkerID, e.Payload = s.id, mloc.NonNilObject(e.Payload)
	if e.TS == "" {
		e.TS = mloc.FormatTime(time.Now())
	}
	n, err := s.redis.PublishJSON(ctx, mloc.TopicTasks, e)
	if err == nil && n == 0 {
		err = muster.Errorf(muster.Unavailable, "no host is subscribed to task events: retrying %s of task %s", e.Type, e.TaskID)
	}
	return err
}

// publishStatus writes the status of now at once, so that it comes before the events of a task, or after them. What fails is
// made good by the heartbeats.
func (s *session) publishStatus(ctx context.Context) {
	if err := s.writeStatus(ctx); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("cannot publish the status of this worker", slog.String("why", err.Error()))
	}
}
