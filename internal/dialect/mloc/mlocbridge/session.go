package mlocbridge

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// minLife is the shortest time to live of a heartbeat.
const minLife = 2 * time.Minute

// settling is how long Muster's workers may take to join when all begin at once.
const settling = 10 * time.Second

// facts are what a worker of MLOC says about itself when it registers.
type facts struct {
	Hardware mloc.Hardware
	Tags     []string
	Cost     float64 // per hour
}

// session is the life of one worker of MLOC in Redis: its registration, heartbeats, status and events. It survives a
// Redis that was away, restarted or flushed: what it should hold is written again.
type session struct {
	ctl       *mloc.Control
	id, topic string
	interval  time.Duration
	log       *slog.Logger
	meter     *meter
	facts     func(ctx context.Context) (facts, error)
	message   func(b []byte) // each message of the channel of tasks; must not wait

	mu         sync.Mutex
	told       bool      // registered at least once by this process
	returned   bool      // an earlier process was registered under this id, and this one was not idle yet
	listening  bool      // a subscription is confirmed
	gap        bool      // there was a time without a subscription: a task may have been published meanwhile
	closed     bool      // no new tasks are wanted
	busy       string    // the task that is carried out, "" if none
	last       string    // the one before
	suspicious int       // looks in a row at which the host took this worker for busy though it is idle
	wake       chan bool // the heartbeats are told that something changed
}

func newSession(ctl *mloc.Control, id, topic string, interval time.Duration, log *slog.Logger, m *meter, f func(context.Context) (facts, error), message func([]byte)) *session {
	return &session{ctl: ctl, id: id, topic: topic, interval: interval, log: log, meter: m, facts: f, message: message, gap: true, wake: make(chan bool, 1)}
}

// run keeps the worker registered until ctx ends. It does not unregister it.
func (s *session) run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { s.follow(ctx) })
	group.Go(func() { s.beat(ctx) })
	group.Wait()
	return ctx.Err()
}

// follow listens to the channel of tasks, again and again.
func (s *session) follow(ctx context.Context) {
	for wait := time.Second / 4; ctx.Err() == nil; wait = min(2*wait, 10*time.Second) {
		err := s.ctl.Listen(ctx, func() {
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
				s.listening, s.gap = false, true
			}
		})
		if ctx.Err() == nil {
			s.log.Warn("not subscribed to the channel of tasks; trying again", slog.String("why", err.Error()), slog.Duration("in", wait))
			pause(ctx, wait)
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// change changes the session's state and has it written.
func (s *session) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	select {
	case s.wake <- true:
	default:
	}
}

// beat writes heartbeats, and whatever changed, until ctx ends.
func (s *session) beat(ctx context.Context) {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	var lastBeat time.Time
	began, said := time.Now(), false
	for away := false; ; {
		s.mu.Lock()
		subscribed, told := s.listening, s.told
		s.mu.Unlock()
		if subscribed { // before, a task that the host publishes would be lost
			due := time.Since(lastBeat) >= s.interval-s.interval/8
			err := s.uphold(ctx, due)
			switch {
			case err == nil:
				if due {
					lastBeat = time.Now()
				}
				away, said = false, false
			case ctx.Err() != nil || said:
			case !told && time.Since(began) < settling:
				away = true
			default:
				away, said = true, true
				s.log.Warn("cannot tell the host about this worker; trying again", slog.String("why", err.Error()))
			}
		}
		retry := (<-chan time.Time)(nil)
		if away {
			retry = time.After(min(s.interval, 2*time.Second))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.wake:
		case <-retry:
		}
	}
}

// uphold makes what Redis says about this worker right, and sends a heartbeat if one is due.
func (s *session) uphold(ctx context.Context, due bool) error {
	known, err := s.ctl.HMGet(ctx, mloc.WorkerKey(s.id), "worker_id", "status").Result()
	if err != nil {
		return s.ctl.Away(err)
	}
	there, status := len(known) == 2 && known[0] == s.id, ""
	if there {
		status, _ = known[1].(string)
	}
	s.mu.Lock()
	told, gap, unsure, want := s.told, s.gap, s.returned, s.status()
	holds := s.busy != ""
	last := s.last
	if status == mloc.StatusRunning && want == mloc.StatusIdle {
		s.suspicious++
	} else {
		s.suspicious = 0
	}
	suspicious := s.suspicious
	s.mu.Unlock()

	// A task that was published while this worker did not listen never arrived, and without UNREGISTER the host would wait
	// for it for ever. It has to be thought of where the host took the worker for busy, where that cannot be known any more,
	// and after each restart: an earlier process may have been killed with a message that it had not kept yet.
	lost := !holds && (unsure || gap && (there && (status == mloc.StatusRunning || !told) || !there && told))
	if lost {
		s.log.Info("a task may have been published while this worker did not listen: it registers again, so that the host hands it out again")
		if err := s.unregister(ctx); err != nil {
			return err
		}
	}
	if lost || !there || !told {
		if err := s.register(ctx); err != nil {
			return err
		}
		s.log.Info("registered", slog.String("worker_id", s.id))
		status, due = mloc.StatusStarting, true
	}
	s.mu.Lock()
	s.told, s.gap = true, false
	s.returned = s.returned && holds
	s.mu.Unlock()
	// A host writes RUNNING after it has published a task, which may be after the end of a short one. Two looks, so that
	// a task that is under way is not taken for that.
	if status != want && (status != mloc.StatusRunning || want != mloc.StatusIdle || suspicious > 1) {
		if err := s.say(ctx, want, last); err != nil {
			return err
		}
	}
	if due {
		return s.heartbeat(ctx)
	}
	if suspicious == 1 {
		return s.look(ctx)
	}
	return nil
}

// look has the second look soon, and not at the next heartbeat.
func (s *session) look(ctx context.Context) error {
	pause(ctx, min(time.Second, s.interval))
	s.change(func() {})
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
	f, err := s.facts(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	h := mloc.WorkerHash{
		WorkerID: s.id, Status: mloc.StatusStarting, StartedAt: mloc.Stamp(s.meter.began), LastSeen: mloc.Stamp(now), PID: os.Getpid(),
		Hardware: f.Hardware, Tags: f.Tags, CostPerHour: f.Cost,
	}
	starting := mloc.StatusStarting
	event, err := mloc.Encode(mloc.WorkerEvent{
		Type: mloc.EventRegister, TS: mloc.Stamp(now), WorkerID: s.id, Status: &starting, Tags: f.Tags,
		Metrics: mloc.Object{}, Payload: mloc.Object{"env": mloc.Object{}, "hardware": f.Hardware, "cost_per_hour": f.Cost, "power_metrics": s.meter.power()},
	})
	if err != nil {
		return err
	}
	_, err = s.ctl.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SAdd(ctx, mloc.KeyWorkers, s.id)
		p.HSet(ctx, mloc.WorkerKey(s.id), mloc.HashFields(h))
		p.SetEx(ctx, mloc.HeartbeatKey(s.id), mloc.Stamp(now), s.life())
		p.Publish(ctx, mloc.TopicWorkers, event)
		return nil
	})
	if err != nil {
		return s.ctl.Away(err)
	}
	return nil
}

// life is how long a heartbeat counts.
func (s *session) life() time.Duration { return max(4*s.interval, minLife) }

// say writes a status and tells it.
func (s *session) say(ctx context.Context, status, last string) error {
	payload, fields := mloc.Object{}, []any{"status", status, "last_seen", mloc.Stamp(time.Now())}
	s.mu.Lock()
	busy := s.busy
	s.mu.Unlock()
	switch {
	case status == mloc.StatusRunning:
		payload["task_id"], fields = busy, append(fields, "extra_task_id", busy)
	case last != "":
		payload["last_task"], fields = last, append(fields, "extra_last_task", last)
	}
	event, err := mloc.Encode(mloc.WorkerEvent{Type: mloc.EventStatus, TS: mloc.Stamp(time.Now()), WorkerID: s.id, Status: &status, Tags: []string{}, Metrics: mloc.Object{}, Payload: payload})
	if err != nil {
		return err
	}
	_, err = s.ctl.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, mloc.WorkerKey(s.id), fields...)
		p.Publish(ctx, mloc.TopicWorkers, event)
		return nil
	})
	if err != nil {
		return s.ctl.Away(err)
	}
	return nil
}

func (s *session) heartbeat(ctx context.Context) error {
	now := time.Now()
	metrics, err := s.metrics(ctx, now)
	if err != nil {
		return err
	}
	s.mu.Lock()
	status := s.status()
	s.mu.Unlock()
	event, err := mloc.Encode(mloc.WorkerEvent{Type: mloc.EventHeartbeat, TS: mloc.Stamp(now), WorkerID: s.id, Status: &status, Tags: []string{}, Metrics: metrics, Payload: mloc.Object{}})
	if err != nil {
		return err
	}
	_, err = s.ctl.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SetEx(ctx, mloc.HeartbeatKey(s.id), mloc.Stamp(now), s.life())
		p.HSet(ctx, mloc.WorkerKey(s.id), "last_seen", mloc.Stamp(now))
		p.Publish(ctx, mloc.TopicWorkers, event)
		return nil
	})
	if err != nil {
		return s.ctl.Away(err)
	}
	return nil
}

// metrics measures, and returns what a heartbeat says. The hash's hardware is written again where it changed: workers
// of a fleet come and go.
func (s *session) metrics(ctx context.Context, now time.Time) (mloc.Object, error) {
	f, err := s.facts(ctx)
	if err != nil { // Muster's server is away: the last figures stay
		return s.meter.metrics(now, s.meter.cost), nil //nolint:nilerr // a heartbeat is due all the same
	}
	if _, err := s.ctl.HSet(ctx, mloc.WorkerKey(s.id), "hardware_json", mloc.Compact(f.Hardware), "tags_json", mloc.Compact(f.Tags), "cost_per_hour", mloc.PythonFloat(f.Cost)).Result(); err != nil {
		return nil, s.ctl.Away(err)
	}
	return s.meter.metrics(now, f.Cost), nil
}

// unregister removes the worker: the host gives its tasks to others.
func (s *session) unregister(ctx context.Context) error {
	event, err := mloc.Encode(mloc.WorkerEvent{Type: mloc.EventUnregister, TS: mloc.Stamp(time.Now()), WorkerID: s.id, Tags: []string{}, Metrics: mloc.Object{}, Payload: s.meter.farewell(time.Now())})
	if err != nil {
		return err
	}
	_, err = s.ctl.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SRem(ctx, mloc.KeyWorkers, s.id)
		p.Del(ctx, mloc.WorkerKey(s.id), mloc.HeartbeatKey(s.id))
		p.Publish(ctx, mloc.TopicWorkers, event)
		return nil
	})
	if err != nil {
		return s.ctl.Away(err)
	}
	return nil
}

// begin says that the worker carries out a task from now on. Redis may be away: the status is written as soon as it is
// not.
func (s *session) begin(task string) {
	s.change(func() {
		if s.busy != "" && s.busy != task {
			s.last = s.busy
		}
		s.busy, s.suspicious = task, 0
	})
}

// close says that the worker wants no new tasks.
func (s *session) close() { s.change(func() { s.closed = true }) }

// end says that it does not any more, and can take the next one.
func (s *session) end() {
	s.change(func() {
		if s.busy != "" {
			s.busy, s.last = "", s.busy
		}
	})
}

// tell publishes an event of a task, and fails unless a subscriber received it.
func (s *session) tell(ctx context.Context, e mloc.TaskEvent) error {
	e.WorkerID, e.Payload = s.id, mloc.OrObject(e.Payload)
	if e.TS == "" {
		e.TS = mloc.Stamp(time.Now())
	}
	n, err := s.ctl.Tell(ctx, mloc.TopicTasks, e)
	if err == nil && n == 0 {
		err = muster.Errorf(muster.Unavailable, "no host listens to the events of tasks: %s of task %s is published again", e.Type, e.TaskID)
	}
	return err
}

// tellStatus writes the status of now at once, so that it comes before the events of a task, or after them. What fails is
// made good by the heartbeats.
func (s *session) tellStatus(ctx context.Context) {
	s.mu.Lock()
	status, last := s.status(), s.last
	s.mu.Unlock()
	if err := s.say(ctx, status, last); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("cannot tell the status of this worker", slog.String("why", err.Error()))
	}
}

// sameTags returns tags without doubles and empty ones.
func sameTags(tags []string) []string {
	out := []string{}
	for _, t := range tags {
		if t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}
