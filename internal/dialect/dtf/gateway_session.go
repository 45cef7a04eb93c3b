package dtf

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	pingEvery     = 20 * time.Second // as the workers do
	pongTimeout   = 20 * time.Second
	writeTimeout  = 10 * time.Second
	maxRefused    = 20              // rejected messages before the connection is closed
	lingerTimeout = 5 * time.Second // of a connection after the worker opened another one
	recheckEvery  = 5 * time.Second // whether the key of a connection is still valid
)

// socket serves /ws. DTF's worker authenticates with its first message.
func (g *gateway) socket(w http.ResponseWriter, r *http.Request) error {
	serve := func(ctx context.Context) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: g.Deps.Config.KeyRequired}) // keys come in messages, not from cookies; without keys the origin must be this gateway
		if err != nil {
			return // Accept has answered
		}
		ws.SetReadLimit(maxFrame)
		ctx, cancel := context.WithCancel(ctx)
		s := &session{
			g: g, ws: ws, cancel: cancel, header: requestKey(r), remote: dialect.RemoteAddr(r),
			pushDone: make(chan struct{}), pushWake: wake.New(), sendLock: make(chan struct{}, 1),
		}
		s.serve(ctx)
	}
	defer connlimit.MarkAuthenticated(r.Context())() // settings.timeout bounds the time to authenticate
	err := g.sessions.Do(r.Context(), serve)
	for tries := 0; err != nil && tries < 50 && backoff.Sleep(r.Context(), 20*time.Millisecond) == nil; tries++ { // the server is starting
		err = g.sessions.Do(r.Context(), serve)
	}
	if err != nil {
		dialect.WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	}
	return nil
}

type session struct {
	g      *gateway
	ws     *websocket.Conn
	cancel context.CancelFunc
	header string // the API key of the upgrade request, "" for none
	remote netip.Addr

	access  *access // nil until it is authenticated
	id      string  // of the worker, as it authenticated
	byToken bool
	worker  *remoteWorker // nil until it is registered
	refused int

	pushStarted bool        // pushLoop was started
	retired     atomic.Bool // the worker has another connection: this one only sends answers
	retire      func()      // ends pushLoop, and later the session

	background sync.WaitGroup // ping, watchKey and pushLoop
	pushDone   chan struct{}  // closed when pushLoop has ended
	pushWake   chan struct{}
	sendLock   chan struct{} // a lock: no task is sent between a message and its answer
}

func (s *session) serve(ctx context.Context) {
	pushCtx, stop := context.WithCancel(ctx)
	defer stop()
	s.retire = func() {
		if !s.retired.Swap(true) {
			stop()
			time.AfterFunc(lingerTimeout, s.cancel)
		}
	}
	defer s.close()
	s.background.Go(func() { s.ping(ctx) })
	for {
		raw, err := s.read(ctx)
		if err != nil {
			return
		}
		s.sendLock <- struct{}{}
		ok := s.handle(ctx, pushCtx, raw)
		<-s.sendLock
		if !ok {
			return
		}
	}
}

func (s *session) close() {
	s.cancel()
	_ = s.ws.Close(websocket.StatusNormalClosure, "")
	_ = s.ws.CloseNow()
	s.background.Wait()
	if !s.pushStarted {
		close(s.pushDone)
	}
	if p := s.worker; p != nil {
		p.mu.Lock()
		if p.session == s {
			p.session = nil
		}
		p.mu.Unlock()
	}
}

// read waits for a message, for the first one at most settings.timeout.
func (s *session) read(ctx context.Context) ([]byte, error) {
	if s.access == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.g.settings.timeout)
		defer cancel()
	}
	_, raw, err := s.ws.Read(ctx)
	return raw, err
}

func (s *session) ping(ctx context.Context) {
	for backoff.Sleep(ctx, pingEvery) == nil {
		wait, cancel := context.WithTimeout(ctx, pongTimeout)
		err := s.ws.Ping(wait)
		cancel()
		if err != nil {
			s.cancel()
			return
		}
	}
}

// write sends a message, signed if there is a secret.
func (s *session) write(ctx context.Context, m *message) error {
	sign := s.g.settings.signer
	if m.Type == typeAuthResponse || m.Type == typeExecute || m.Type == typeExecuteBatch || m.Type == typeCancel {
		sign = signer{} // the coordinator does not sign these
	}
	raw, err := sign.sign(m, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return s.ws.Write(ctx, websocket.MessageText, raw)
}

// reject answers a message with an error. It reports whether the session continues.
func (s *session) reject(ctx context.Context, reason string) bool {
	s.refused++
	return s.write(ctx, &message{Type: typeError, Message: reason}) == nil && s.refused < maxRefused
}

// handle processes a message. It reports whether the session continues. pushCtx ends when the worker has another connection.
func (s *session) handle(ctx, pushCtx context.Context, raw []byte) bool {
	m, v, err := decode(raw)
	if err != nil {
		return s.reject(ctx, "Invalid message: "+err.Error())
	}
	switch {
	case m.Type == typeAuth:
		return s.authenticate(ctx, m)
	case s.access == nil:
		return s.reject(ctx, "Not authenticated") && s.refused < 3
	case s.g.settings.signer.enabled() && !s.g.settings.signer.verify(&v, time.Now()):
		return s.reject(ctx, errSignature)
	case m.Type == typeRegister:
		return s.register(ctx, pushCtx, m)
	case s.worker == nil:
		return s.reject(ctx, "Worker not registered")
	case m.WorkerID != "" && m.WorkerID != s.worker.id:
		return s.reject(ctx, "This connection is of worker "+s.worker.id+", not of "+m.WorkerID)
	}
	switch m.Type {
	case typeHeartbeat:
		return s.heartbeat(ctx, m)
	case typeTaskResult:
		return s.handleResult(ctx, m)
	}
	return s.reject(ctx, "Unknown message type: "+lenient.Name(m.Type))
}

func (s *session) authenticate(ctx context.Context, m *message) bool {
	if s.access != nil {
		return s.reject(ctx, "Already authenticated")
	}
	now := time.Now()
	authCtx, cancel := context.WithTimeout(ctx, s.g.settings.timeout)
	defer cancel()
	var r *access
	var err error
	var newToken bool
	id, token := m.WorkerID, m.Token
	if m.AuthType == "token" || m.AuthType == "" && m.Token != "" {
		id, r, newToken, err = s.g.authorizeToken(authCtx, m.Token, now)
		s.byToken = true
	} else {
		r, err = s.g.authorize(authCtx, cmp.Or(m.APIKey, s.header))
		newToken = true
	}
	if err == nil && !r.hasRole(roleWorker) {
		err = muster.Errorf(muster.Forbidden, "the key is not for workers: use a join key")
	}
	if err == nil {
		id = cmp.Or(id, dialect.NewUUID())
		if newToken {
			token, err = s.g.tokens.issue(id, r.key, now)
		}
	}
	if err != nil {
		_ = s.write(ctx, &message{Type: typeAuthResponse, Status: statusError, Message: err.Error()})
		return false
	}
	s.access, s.id = r, id
	s.background.Go(func() { s.watchKey(ctx, r.key) })
	return s.write(ctx, &message{Type: typeAuthResponse, Status: statusSuccess, Token: token, WorkerID: id}) == nil
}

// watchKey ends the session when its key is revoked, expires, or may no longer join workers.
func (s *session) watchKey(ctx context.Context, key string) {
	for backoff.Sleep(ctx, recheckEvery) == nil {
		r, err := s.g.authorize(dialect.Recheck(ctx), key)
		code := muster.CodeOf(err)
		if err == nil && !r.hasRole(roleWorker) || code == muster.Unauthenticated || code == muster.Forbidden {
			s.cancel()
			return
		}
	}
}

func (s *session) register(ctx, pushCtx context.Context, m *message) bool {
	if s.retired.Load() {
		return false // the worker has a newer connection
	}
	id := cmp.Or(m.WorkerID, s.id)
	if (s.byToken || s.worker != nil) && id != s.id {
		return s.reject(ctx, "The token is of worker "+s.id+", not of "+id)
	}
	registerCtx, cancel := context.WithTimeout(ctx, s.g.settings.timeout)
	defer cancel()
	p := s.g.remoteWorker(id)
	if p.staysDrained(s.g.Fleet.Worker(id), s.g.settings.grace) {
		_ = s.write(ctx, &message{Type: typeError, Message: "Registration failed: this worker was drained; it may join again after it was disconnected for a while"})
		return false
	}
	facts := s.g.workerFacts(id, m.Hostname, m.Capabilities, s.access)
	facts.Remote = s.remote
	p.mu.Lock()
	if p.noHash {
		facts.Kinds = remove(facts.Kinds, taskHash)
	}
	p.mu.Unlock()
	w, err := s.g.Fleet.Register(registerCtx, facts)
	if err != nil {
		_ = s.write(ctx, &message{Type: typeError, Message: "Registration failed: " + err.Error()})
		return false
	}
	s.id, s.worker = id, p
	p.setSession(s, w, m.Capabilities)
	if err := s.write(ctx, &message{Type: typeRegisterResponse, Status: statusSuccess, WorkerID: id}); err != nil {
		return false
	}
	if !s.pushStarted {
		s.pushStarted = true
		s.background.Go(func() {
			defer close(s.pushDone)
			s.pushLoop(ctx, pushCtx)
		})
	}
	return true
}

// setSession replaces the worker's session. When it returns no more tasks are sent on the old one, which still accepts results.
func (p *remoteWorker) setSession(s *session, w *fleet.Worker, c *capabilities) {
	p.mu.Lock()
	old := p.session
	p.worker, p.session = w, s
	if old != s {
		p.conns++
		p.execs, p.beats = 0, 0
		p.awaitFirstBeat = p.conns == 1 || !s.byToken // a worker sends its key on its first connection only
	}
	p.slots, p.canCancel = 1, false
	if c != nil && c.Muster != nil {
		p.canCancel = c.Muster.Cancel
		p.slots = max(1, min(c.Muster.Tasks, 1000))
	}
	p.mu.Unlock()
	if old == nil || old == s {
		return
	}
	old.retire()
	<-old.pushDone
}

// heartbeat answers before anything else is sent: the worker considers the next message to be the answer.
func (s *session) heartbeat(ctx context.Context, m *message) bool {
	now := time.Now()
	p := s.worker
	w := p.fleetWorker()
	if w.Err() != nil { // it may register again
		return s.reject(ctx, "Worker not registered")
	}
	if s.write(ctx, &message{Type: typeHeartbeatResponse, Timestamp: now.Unix()}) != nil {
		return false
	}
	r := w.Facts().Resources
	w.Touch(toLoad(m.Metrics, &r))
	s.applyHealth(m)
	task := ""
	if m.Task != nil {
		task = m.Task.TaskID
		s.applyProgress(m.Task)
	}
	if c := m.Cancelled; c != nil {
		_ = s.g.Fleet.ReportLate(c.TaskID) // the task is not an orphan any more
		p.mu.Lock()
		delete(p.sent, c.TaskID)
		p.mu.Unlock()
	}
	if p.recordHeartbeat(now, task, s.g.settings.bridgeTurn) {
		w.MarkIdle()
	}
	wake.Set(s.pushWake)
	return true
}

// applyHealth constrains a worker that reports that it is not healthy.
func (s *session) applyHealth(m *message) {
	if m.Health == nil || m.Health.Healthy == nil {
		return
	}
	healthy, reason := *m.Health.Healthy, ""
	if r := m.Health.Metrics; r != nil && r.ResourceHealthy != nil { // the connection works, as this message shows
		healthy = healthy || *r.ResourceHealthy
	}
	if !healthy {
		reason = "reports that it is not healthy"
		if m.Metrics != nil && (m.Metrics.CPUPercent >= 95 || m.Metrics.MemoryPercent >= 95) {
			reason = "reports that its CPU or memory is nearly full"
		}
	}
	s.worker.fleetWorker().Constrain("dtf health", reason)
}

func (s *session) applyProgress(ts *taskStatus) {
	t := s.task(ts.TaskID)
	if t == nil {
		return
	}
	if !t.Started() {
		if err := t.MarkStarted(); err != nil {
			return // the task is done
		}
	}
	if p := ts.Progress / 100; !math.IsNaN(p) && p >= 0 && p <= 1 {
		_ = t.Progress(muster.Progress{Progress: &p}) // the task may be done
	}
}

// task returns the task with an id if it is this worker's, otherwise nil.
func (s *session) task(id string) *fleet.Task {
	t := s.g.Fleet.Task(id)
	if t == nil || t.Worker().ID() != s.worker.id {
		return nil
	}
	return t
}

// handleResult ends a task. A result that is late, repeated or of another worker's task has no effect; the answer is that of DTF's
// coordinator.
func (s *session) handleResult(ctx context.Context, m *message) bool {
	s.worker.fleetWorker().Touch(nil)
	if m.TaskID == "" || m.Status != statusCompleted && m.Status != statusFailed {
		return s.reject(ctx, "A task_result needs a task_id and the status completed or failed")
	}
	answer := &message{Type: typeResultResponse, TaskID: m.TaskID, Received: new(true), Status: statusSuccess}
	if t := s.task(m.TaskID); t != nil {
		finishCtx, cancel := context.WithTimeout(ctx, s.g.settings.timeout)
		err := s.finish(finishCtx, t, m)
		cancel()
		if err != nil && muster.CodeOf(err) != muster.Conflict { // the task is not done
			s.g.Deps.Log.Warn("cannot store a result", slog.String("worker", s.worker.id), slog.String("task", m.TaskID), slog.Any("why", err))
			answer = &message{Type: typeError, TaskID: m.TaskID, Message: "The result cannot be stored now: " + err.Error()}
		}
	} else if w := s.worker.fleetWorker(); w.Err() == nil {
		_ = s.g.Fleet.ReportLate(m.TaskID) // the task is not an orphan any more
	}
	if answer.Type == typeResultResponse {
		s.worker.markReported(m.TaskID)
	}
	ok := s.write(ctx, answer) == nil
	wake.Set(s.pushWake)
	return ok
}

func (s *session) finish(ctx context.Context, t *fleet.Task, m *message) error {
	spec := t.Run().Spec
	taskType, _, err := fromMuster(spec)
	if err != nil {
		return err
	}
	if !t.Started() {
		if err := t.MarkStarted(); err != nil {
			return err
		}
	}
	end := fleet.FinalReport{Outcome: muster.AttemptSucceeded, Result: m.Result}
	if m.Seconds != nil && *m.Seconds >= 0 && *m.Seconds < 1e9 {
		end.Usage = &muster.Usage{WallSeconds: *m.Seconds}
	}
	switch fabricated := simulated(taskType, m.Result); {
	case m.Status == statusFailed && taskType == taskHash && m.Error == "Unknown task type: hash":
		end = fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.Rejected, Message: "this version of the DTF worker does not know hash"}
		s.disableHash(ctx)
	case m.Status == statusFailed:
		end.Outcome, end.Reason, end.Result = muster.AttemptFailed, muster.ExitCode, nil
		end.Message = cmp.Or(m.Error, "the DTF worker reported a failure without a reason")
	case len(m.Result) > muster.MaxResultSize:
		end.Outcome, end.Reason, end.Result = muster.AttemptFailed, muster.ResultInvalid, nil
		end.Message = "the result has more than 256 KiB"
	case fabricated && spec.Kind == kindForeign:
		_ = t.Log(ctx, "dtf: the result is simulated: DTF's worker invents the figures of tasks of type "+taskType)
	case fabricated && !s.g.settings.simulated:
		end.Outcome, end.Reason, end.Result = muster.AttemptFailed, muster.Dependency, nil
		end.Message = "the DTF worker only simulates tasks of type " + taskType + ": start the server with simulated=allow to accept them"
	case fabricated:
		_ = t.Log(ctx, "dtf: the result is simulated: DTF's worker invents its figures")
	}
	return t.Finish(ctx, end)
}

func (s *session) disableHash(ctx context.Context) {
	p := s.worker
	p.mu.Lock()
	p.noHash = true
	p.oneTaskPerConn = !p.reliable // as always with that version
	facts := p.worker.Facts()
	p.mu.Unlock()
	facts.Kinds = remove(facts.Kinds, taskHash)
	if _, err := s.g.Fleet.Register(ctx, facts); err != nil {
		s.g.Deps.Log.Warn("cannot update a worker", slog.String("worker", p.id), slog.Any("why", err))
	}
}

// pushLoop sends tasks to the worker until pushCtx ends.
func (s *session) pushLoop(ctx, pushCtx context.Context) {
	p := s.worker
	for {
		select {
		case s.sendLock <- struct{}{}:
		case <-pushCtx.Done():
			return
		}
		if pushCtx.Err() != nil {
			<-s.sendLock
			return
		}
		now, w := time.Now(), p.fleetWorker()
		o := p.plan(now, w.Tasks(), s.g.settings)
		ok := s.sendPlanned(ctx, &o, now)
		<-s.sendLock
		if !ok {
			s.cancel()
			return
		}
		if len(o.tasks) > 0 {
			continue // there may be more
		}
		wait := time.Minute
		if !o.retryAt.IsZero() {
			wait = max(time.Until(o.retryAt), time.Millisecond)
		}
		select {
		case <-pushCtx.Done():
			return
		case <-w.Changed():
		case <-s.pushWake:
		case <-time.After(wait):
		}
	}
}

// sendPlanned sends a plan. It reports whether the session continues.
func (s *session) sendPlanned(ctx context.Context, o *sendPlan, now time.Time) bool {
	for _, id := range o.cancels {
		if s.write(ctx, &message{Type: typeCancel, TaskID: id, Reason: "user_request"}) != nil {
			return false
		}
	}
	if len(o.tasks) == 0 {
		return true
	}
	var batch []wireTask
	var sent []*fleet.Task
	for _, t := range o.tasks {
		w, err := toWireTask(t)
		if err != nil { // impossible: the fleet offers only kinds of the worker
			_ = t.Finish(ctx, fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.TaskInvalid, Message: err.Error()})
			continue
		}
		batch, sent = append(batch, w), append(sent, t)
	}
	s.worker.markSent(sent, now)
	if o.batch {
		return s.write(ctx, &message{Type: typeExecuteBatch, Tasks: batch}) == nil
	}
	for _, w := range batch {
		if s.write(ctx, &message{Type: typeExecute, TaskID: w.TaskID, TaskType: w.TaskType, Config: w.Config}) != nil {
			return false
		}
	}
	return true
}
