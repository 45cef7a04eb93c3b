package dtf

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

const (
	pingEvery  = 20 * time.Second // as the workers do
	pongWait   = 20 * time.Second
	writeWait  = 10 * time.Second
	maxRefused = 20              // messages without a meaning until the connection is closed
	lingerWait = 5 * time.Second // for what is still under way on a connection when the worker has another one
)

// socket serves /ws. The real worker sends no header: who it is comes with its first message. Compression is offered by it and declined.
func (g *gateway) socket(w http.ResponseWriter, r *http.Request) {
	serve := func(ctx context.Context) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // nothing depends on a browser's origin: keys come in messages
		if err != nil {
			return // Accept has answered
		}
		ws.SetReadLimit(maxFrame)
		ctx, cancel := context.WithCancel(ctx)
		s := &session{
			g: g, ws: ws, cancel: cancel, header: keyOf(r), remote: addressOf(r),
			pushed: make(chan struct{}), kick: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		}
		s.serve(ctx)
	}
	defer connlimit.MarkAuthenticated(r.Context())() // it is bounded by the patience for the first message
	err := g.gate.Do(r.Context(), serve)
	for tries := 0; err != nil && tries < 50 && sleep(r.Context(), 20*time.Millisecond); tries++ { // the server is just starting
		err = g.gate.Do(r.Context(), serve)
	}
	if err != nil {
		dialect.WriteJSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	}
}

// session is one connection of a worker.
type session struct {
	g      *gateway
	ws     *websocket.Conn
	cancel context.CancelFunc
	header string // the API key of the upgrade request, "" for none
	remote netip.Addr

	right   *right // nil until it is authenticated
	id      string // of the worker, as it authenticated
	byToken bool
	peer    *peer // nil until it is registered
	refused int

	pushing bool        // push runs, or has run
	retired atomic.Bool // the worker has another connection: nothing but answers is sent on this one
	retire  func()      // ends push, and a while later the session

	beside sync.WaitGroup // pings and tasks
	pushed chan struct{}  // closed when no more tasks are sent on it
	kick   chan struct{}
	turn   chan struct{} // holds a token while a message is answered and while tasks are sent: nothing comes between a message and its answer
}

func (s *session) serve(ctx context.Context) {
	pushing, stop := context.WithCancel(ctx)
	defer stop()
	s.retire = func() {
		if !s.retired.Swap(true) {
			stop()
			time.AfterFunc(lingerWait, s.cancel)
		}
	}
	defer s.end()
	s.beside.Go(func() { s.ping(ctx) })
	for {
		raw, err := s.read(ctx)
		if err != nil {
			return
		}
		s.turn <- struct{}{}
		ok := s.handle(ctx, pushing, raw)
		<-s.turn
		if !ok {
			return
		}
	}
}

func (s *session) end() {
	s.cancel()
	_ = s.ws.Close(websocket.StatusNormalClosure, "")
	_ = s.ws.CloseNow()
	s.beside.Wait()
	if !s.pushing {
		close(s.pushed)
	}
	if p := s.peer; p != nil {
		p.mu.Lock()
		if p.session == s {
			p.session = nil
		}
		p.mu.Unlock()
	}
}

// read waits for a message: not long for the first one.
func (s *session) read(ctx context.Context) ([]byte, error) {
	if s.right == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.g.set.patient)
		defer cancel()
	}
	_, raw, err := s.ws.Read(ctx)
	return raw, err
}

// ping keeps the way open and ends the session of a worker that is gone without a word.
func (s *session) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		wait, cancel := context.WithTimeout(ctx, pongWait)
		err := s.ws.Ping(wait)
		cancel()
		if err != nil {
			s.cancel()
			return
		}
	}
}

// write sends a message, signed where there is a secret.
func (s *session) write(ctx context.Context, m *message) error {
	sign := s.g.set.sign
	if m.Type == typeAuthResponse || m.Type == typeExecute || m.Type == typeExecuteBatch || m.Type == typeCancel {
		sign = signer{} // as the coordinator leaves them unsigned
	}
	raw, err := sign.sign(m, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	return s.ws.Write(ctx, websocket.MessageText, raw)
}

// refuse answers a message that has no effect. It reports whether the session continues.
func (s *session) refuse(ctx context.Context, why string) bool {
	s.refused++
	return s.write(ctx, &message{Type: typeError, Message: why}) == nil && s.refused < maxRefused
}

// handle answers one message, before the next one is read. It reports whether the session continues. pushing ends before ctx, when the worker
// has another connection.
func (s *session) handle(ctx, pushing context.Context, raw []byte) bool {
	m, v, err := decode(raw)
	if err != nil {
		return s.refuse(ctx, "Invalid message: "+err.Error())
	}
	switch {
	case m.Type == typeAuth:
		return s.auth(ctx, m)
	case s.right == nil:
		return s.refuse(ctx, "Not authenticated") && s.refused < 3
	case s.g.set.sign.on() && !s.g.set.sign.verify(&v, time.Now()):
		return s.refuse(ctx, errSignature)
	case m.Type == typeRegister:
		return s.register(ctx, pushing, m)
	case s.peer == nil:
		return s.refuse(ctx, "Worker not registered")
	case m.WorkerID != "" && m.WorkerID != s.peer.id:
		return s.refuse(ctx, "This connection is of worker "+s.peer.id+", not of "+m.WorkerID)
	}
	switch m.Type {
	case typeHeartbeat:
		return s.heartbeat(ctx, m)
	case typeTaskResult:
		return s.result(ctx, m)
	}
	return s.refuse(ctx, "Unknown message type: "+cut(m.Type))
}

// auth answers the first message of a connection.
func (s *session) auth(ctx context.Context, m *message) bool {
	if s.right != nil {
		return s.refuse(ctx, "Already authenticated")
	}
	now := time.Now()
	asking, cancel := context.WithTimeout(ctx, s.g.set.patient)
	defer cancel()
	var r *right
	var err error
	var again bool
	id, token := m.WorkerID, m.Token
	if m.AuthType == "token" || m.AuthType == "" && m.Token != "" {
		id, r, again, err = s.g.authorizeToken(asking, m.Token, now)
		s.byToken = true
	} else {
		key := m.APIKey
		if key == "" {
			key = s.header
		}
		r, err = s.g.authorize(asking, key)
		again = true
	}
	if err == nil && !r.may(roleWorker) {
		err = muster.Errorf(muster.Forbidden, "this key is not one for workers: use a join key")
	}
	if err == nil {
		if id == "" {
			id = newUUID()
		}
		if again {
			token, err = s.g.tokens.issue(id, r.key, now)
		}
	}
	if err != nil {
		_ = s.write(ctx, &message{Type: typeAuthResponse, Status: statusError, Message: err.Error()})
		return false
	}
	s.right, s.id = r, id
	return s.write(ctx, &message{Type: typeAuthResponse, Status: statusSuccess, Token: token, WorkerID: id}) == nil
}

// register makes the worker one of Muster's, or takes up the one that it was.
func (s *session) register(ctx, pushing context.Context, m *message) bool {
	if s.retired.Load() {
		return false // the later connection is the worker's
	}
	id := m.WorkerID
	if id == "" {
		id = s.id
	}
	if (s.byToken || s.peer != nil) && id != s.id {
		return s.refuse(ctx, "The token is of worker "+s.id+", not of "+id)
	}
	asking, cancel := context.WithTimeout(ctx, s.g.set.patient)
	defer cancel()
	p := s.g.peer(id)
	if p.stays(s.g.fleet.Worker(id), s.g.set.grace) {
		_ = s.write(ctx, &message{Type: typeError, Message: "Registration failed: this worker was drained; it may join again once it has been away for a while"})
		return false
	}
	facts := s.g.facts(id, m.Hostname, m.Capabilities, s.right)
	facts.Remote = s.remote
	if p.withoutHash() {
		facts.Kinds = without(facts.Kinds, taskHash)
	}
	w, err := s.g.fleet.Register(asking, facts)
	if err != nil {
		_ = s.write(ctx, &message{Type: typeError, Message: "Registration failed: " + err.Error()})
		return false
	}
	s.id, s.peer = id, p
	p.attach(s, w, m.Capabilities)
	if err := s.write(ctx, &message{Type: typeRegisterResponse, Status: statusSuccess, WorkerID: id}); err != nil {
		return false
	}
	if !s.pushing {
		s.pushing = true
		s.beside.Go(func() {
			defer close(s.pushed)
			s.push(ctx, pushing)
		})
	}
	return true
}

// attach makes s the connection of the worker in place of an older one, on which no task is sent any more when it returns. A result that is
// still under way there counts.
func (p *peer) attach(s *session, w *fleet.Worker, c *capabilities) {
	p.mu.Lock()
	old := p.session
	p.worker, p.session = w, s
	if old != s {
		p.conns++
		p.execs, p.beats = 0, 0
		p.first = p.conns == 1 || !s.byToken // a worker's process shows its key once, on its first connection
	}
	p.slots, p.cancels = 1, false
	if c != nil && c.Muster != nil {
		p.cancels = c.Muster.Cancel
		p.slots = max(1, min(c.Muster.Tasks, 1000))
	}
	p.mu.Unlock()
	if old == nil || old == s {
		return
	}
	old.retire()
	<-old.pushed
}

// heartbeat answers at once; the worker waits for it and takes the next message for the answer.
func (s *session) heartbeat(ctx context.Context, m *message) bool {
	now := time.Now()
	p := s.peer
	w := p.current()
	if w.Err() != nil { // it was removed or has left: it may register again
		return s.refuse(ctx, "Worker not registered")
	}
	if s.write(ctx, &message{Type: typeHeartbeatResponse, Timestamp: now.Unix()}) != nil {
		return false
	}
	r := w.Facts().Resources
	w.Touch(loadOf(m.Metrics, &r))
	s.health(m)
	task := ""
	if m.Task != nil {
		task = m.Task.TaskID
		s.progress(m.Task)
	}
	if c := m.Cancelled; c != nil {
		_ = s.g.fleet.Late(c.TaskID) // it has no effect but that the worker is free
		p.done(c.TaskID)
	}
	if p.heard(now, task) {
		w.Idle()
	}
	s.wake()
	return true
}

// health withholds tasks from a worker that says that it is not well.
func (s *session) health(m *message) {
	if m.Health == nil || m.Health.Healthy == nil {
		return
	}
	healthy, why := *m.Health.Healthy, ""
	if r := m.Health.Metrics; r != nil && r.ResourceHealthy != nil { // the rest is its connection, on which this message came
		healthy = healthy || *r.ResourceHealthy
	}
	if !healthy {
		why = "it reports that it is not healthy"
		if m.Metrics != nil && (m.Metrics.CPUPercent >= 95 || m.Metrics.MemoryPercent >= 95) {
			why = "it reports that its processor or memory is nearly full"
		}
	}
	s.peer.current().Constrain("dtf health", why)
}

// progress passes on what a heartbeat says of a task, if it is one of this worker.
func (s *session) progress(ts *taskStatus) {
	t := s.task(ts.TaskID)
	if t == nil {
		return
	}
	if !t.Began() {
		if err := t.Begin(); err != nil {
			return // it is over
		}
	}
	if p := ts.Progress / 100; !math.IsNaN(p) && p >= 0 && p <= 1 {
		_ = t.Progress(muster.Progress{Progress: &p}) // a worker of a task that is over is not told
	}
}

// task returns the task of an id if this worker holds it, else nil.
func (s *session) task(id string) *fleet.Task {
	t := s.g.fleet.Task(id)
	if t == nil || t.Worker().ID() != s.peer.id {
		return nil
	}
	return t
}

// result ends a task. What comes late, twice or for another worker's task is answered as DTF's coordinator answers, and has no effect.
func (s *session) result(ctx context.Context, m *message) bool {
	s.peer.current().Touch(nil)
	if m.TaskID == "" || m.Status != statusCompleted && m.Status != statusFailed {
		return s.refuse(ctx, "A task_result needs a task_id and the status completed or failed")
	}
	received := true
	answer := &message{Type: typeResultResponse, TaskID: m.TaskID, Received: &received, Status: statusSuccess}
	if t := s.task(m.TaskID); t != nil {
		waiting, cancel := context.WithTimeout(ctx, s.g.set.patient)
		err := s.finish(waiting, t, m)
		cancel()
		if err != nil && !gone(err) {
			s.g.env.Log.Warn("a result is not taken yet", slog.String("worker", s.peer.id), slog.String("task", m.TaskID), slog.Any("why", err))
			answer = &message{Type: typeError, TaskID: m.TaskID, Message: "The result cannot be stored now: " + err.Error()}
		}
	} else if w := s.peer.current(); w.Err() == nil {
		_ = s.g.fleet.Late(m.TaskID) // it has no effect but that the worker is free
	}
	if answer.Type == typeResultResponse {
		s.peer.reported(m.TaskID)
	}
	ok := s.write(ctx, answer) == nil
	s.wake()
	return ok
}

// finish hands what a worker says of the end of a task to the fleet.
func (s *session) finish(ctx context.Context, t *fleet.Task, m *message) error {
	spec := t.Run().Spec
	taskType, _, err := fromMuster(spec)
	if err != nil {
		return err
	}
	if !t.Began() {
		if err := t.Begin(); err != nil {
			return err
		}
	}
	end := fleet.Ending{Outcome: muster.AttemptSucceeded, Result: m.Result}
	if m.Seconds != nil && *m.Seconds >= 0 && *m.Seconds < 1e9 {
		end.Usage = &muster.Usage{WallSeconds: *m.Seconds}
	}
	switch made := simulated(taskType, m.Result); {
	case m.Status == statusFailed && taskType == taskHash && m.Error == "Unknown task type: hash":
		end = fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.Rejected, Message: "this DTF worker is of a version that does not know hash"}
		s.forgetHash(ctx)
	case m.Status == statusFailed:
		end.Outcome, end.Reason, end.Result = muster.AttemptFailed, muster.ExitCode, nil
		end.Message = m.Error
		if end.Message == "" {
			end.Message = "the DTF worker reports a failure and no reason"
		}
	case len(m.Result) > muster.MaxResultSize:
		end.Outcome, end.Reason, end.Result = muster.AttemptFailed, muster.ResultInvalid, nil
		end.Message = "the result has more than 256 KiB"
	case made && spec.Kind == kindForeign:
		_ = t.Log(ctx, "dtf: these are the figures that DTF's own worker makes up for tasks of type "+taskType+": nothing was computed") // a note
	case made && !s.g.set.simulated:
		end.Outcome, end.Reason, end.Result = muster.AttemptFailed, muster.Dependency, nil
		end.Message = "the DTF worker only simulates tasks of type " + taskType + ": start the server with simulated=allow if its figures are to count"
	case made:
		_ = t.Log(ctx, "dtf: the result is simulated: DTF's own worker makes these figures up") // a note
	}
	if len(end.Result) > 0 && !json.Valid(end.Result) {
		end.Result = nil
	}
	return t.Finish(ctx, end)
}

// forgetHash offers no hash of this worker any more.
func (s *session) forgetHash(ctx context.Context) {
	p := s.peer
	p.mu.Lock()
	p.noHash = true
	p.onePer = !p.steady // so are the connections of that version
	facts := p.worker.Facts()
	p.mu.Unlock()
	facts.Kinds = without(facts.Kinds, taskHash)
	if _, err := s.g.fleet.Register(ctx, facts); err != nil {
		s.g.env.Log.Warn("a worker keeps a kind that it does not know", slog.String("worker", p.id), slog.Any("why", err))
	}
}

func (s *session) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// push sends tasks to the worker until pushing ends.
func (s *session) push(ctx, pushing context.Context) {
	p := s.peer
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case s.turn <- struct{}{}:
		case <-pushing.Done():
			return
		}
		if pushing.Err() != nil {
			<-s.turn
			return
		}
		now, w := time.Now(), p.current()
		o := p.next(now, w.Tasks(), s.g.set)
		ok := s.tell(ctx, &o, now)
		<-s.turn
		if !ok {
			s.cancel()
			return
		}
		if len(o.tasks) > 0 {
			continue // there may be more
		}
		wait := time.Minute
		if !o.again.IsZero() {
			wait = max(time.Until(o.again), time.Millisecond)
		}
		timer.Reset(wait)
		select {
		case <-pushing.Done():
			return
		case <-w.Changed():
		case <-s.kick:
		case <-timer.C:
		}
	}
}

// tell sends an order. It reports whether the session continues.
func (s *session) tell(ctx context.Context, o *order, now time.Time) bool {
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
		w, err := wireOf(t)
		if err != nil { // a kind that is not one of ours: the fleet offers only those that a worker has
			_ = t.Finish(ctx, fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.TaskInvalid, Message: err.Error()})
			continue
		}
		batch, sent = append(batch, w), append(sent, t)
	}
	s.peer.noteSent(sent, now)
	if s.peer.ours() || len(batch) == 1 {
		for _, w := range batch {
			if s.write(ctx, &message{Type: typeExecute, TaskID: w.TaskID, TaskType: w.TaskType, Config: w.Config}) != nil {
				return false
			}
		}
		return true
	}
	return len(batch) == 0 || s.write(ctx, &message{Type: typeExecuteBatch, Tasks: batch}) == nil
}
