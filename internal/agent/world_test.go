package agent

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/noop"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	me        = muster.WorkerID("w1")
	heartbeat = 10 * time.Second
)

// world is a worker and a server's desk in a synctest bubble. Frames go through
// the real codec and the real sessions of both sides.
type world struct {
	t      *testing.T
	desk   *desk
	puppet *puppet
	shelf  *shelf
	keep   *Keep
	logs   *tasklog.Dir
	dir    string
	sleep  atomic.Int64 // how long the machine was suspended
	cfg    Config

	began time.Time // of the clock, which goes on over the worker's lives
	agent *Agent
	stop  context.CancelFunc
	ended chan error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	keep, err := OpenKeep(dir)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := tasklog.OpenDir(filepath.Join(dir, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close(); keep.Close() })
	w := &world{t: t, desk: newDesk(), shelf: &shelf{}, keep: keep, logs: logs, dir: dir}
	w.puppet = &puppet{began: make(chan *show, 100), shelf: w.shelf}
	w.cfg = Config{
		Identity: Identity{Worker: me, Key: "key"}, Name: "test", Dir: dir, Keep: keep, Logs: logs, Dialer: w.desk, Supervisor: w.shelf,
		Resources: muster.Resources{Slots: 4, CPUs: 2, Memory: 1 << 30, GPUs: []muster.GPU{{UUID: "g0", Memory: 100}, {UUID: "g1", Memory: 100}}},
		Executors: []run.Executor{noop.New(), w.puppet},
		Grace:     30 * time.Second,
		Log:       slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return w
}

// start begins a life of the worker and waits until it is connected, unless the
// desk is away.
func (w *world) start() {
	w.t.Helper()
	w.agent = New(w.cfg)
	begun := w.began
	if begun.IsZero() {
		begun = time.Now().Add(-time.Hour)
	}
	w.agent.roster.clock = func() time.Duration { return time.Since(begun) + time.Duration(w.sleep.Load()) }
	w.agent.roster.contact = w.agent.roster.clock()
	w.began = begun
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.ended = stop, make(chan error, 1)
	go func() { w.ended <- w.agent.Run(ctx) }()
	synctest.Wait()
}

// end shuts the worker down at once.
func (w *world) end() error {
	w.stop()
	w.agent.Hurry()
	return <-w.ended
}

// crash ends a life as if the process had been killed: nothing is said any more,
// and what has a process goes on.
func (w *world) crash() {
	w.desk.away(true)
	w.agent.roster.mu.Lock()
	for id, at := range w.agent.roster.held {
		at.cancelWith(run.ErrLeave)
		at.gone, at.kept, at.logSize, at.inline = true, false, 0, true
		delete(w.agent.roster.held, id)
	}
	w.agent.roster.mu.Unlock()
	_ = w.end() // nobody hears it
	w.desk.away(false)
}

func attemptID(num int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: 1, Num: num}, N: 1}
}

// assign offers a task of the kind process.
func (w *world) assign(num int, change ...func(*muster.TaskSpec)) muster.AttemptID {
	spec := muster.TaskSpec{Kind: "process"}
	for _, c := range change {
		c(&spec)
	}
	w.desk.say(&link.ToWorker{
		Specs:  []link.GroupSpec{{Ref: num + 1, UID: "j1", Name: "g", Spec: spec}},
		Assign: []link.Assign{{Attempt: attemptID(num), Ref: num + 1, Grant: muster.Grant{Slots: 1}}},
	})
	synctest.Wait()
	return attemptID(num)
}

// run assigns a task and waits until it runs.
func (w *world) run(num int, change ...func(*muster.TaskSpec)) *show {
	w.t.Helper()
	w.assign(num, change...)
	select {
	case s := <-w.puppet.began:
		return s
	default:
		w.t.Fatalf("task %d does not run", num)
		return nil
	}
}

// kept returns how many reports are on disk.
func (w *world) kept() int {
	w.t.Helper()
	reports, err := w.keep.Reports()
	if err != nil {
		w.t.Fatal(err)
	}
	return len(reports)
}

// shelf is a supervisor of processes that are not there: what the puppet puts on
// it stays until it is forgotten.
type shelf struct {
	mu      sync.Mutex
	held    map[muster.AttemptID]run.Held
	frozen  map[muster.AttemptID]bool
	contact time.Duration
}

var _ run.Supervisor = (*shelf)(nil)

func (s *shelf) put(t *run.Task) (run.Pid, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := t.State()
	if err != nil {
		return run.Pid{}, err
	}
	if s.held == nil {
		s.held, s.frozen = map[muster.AttemptID]run.Held{}, map[muster.AttemptID]bool{}
	}
	pid := run.Pid{PID: 1000 + t.Attempt.Task.Num}
	s.held[t.Attempt] = run.Held{Start: run.Start{Attempt: t.Attempt, State: state}, Started: 5000, PID: pid}
	return pid, nil
}

// change changes what is held of an attempt.
func (s *shelf) change(id muster.AttemptID, how func(h *run.Held)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	how(&h)
	s.held[id] = h
}

func (s *shelf) holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Start implements run.Supervisor.
func (s *shelf) Start(context.Context, *run.Start, run.Sink) (run.Proc, error) {
	panic("the puppet starts nothing")
}

// Adopt implements run.Supervisor.
func (s *shelf) Adopt(*run.Held, run.Sink) (run.Proc, error) { panic("the puppet adopts nothing") }

// Held implements run.Supervisor.
func (s *shelf) Held() []run.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.held))
}

// Contact implements run.Supervisor.
func (s *shelf) Contact(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = at
}

// Contacted implements run.Supervisor.
func (s *shelf) Contacted() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contact
}

// Freeze implements run.Supervisor.
func (s *shelf) Freeze(id muster.AttemptID, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen[id] = on
	return nil
}

// Forget implements run.Supervisor.
func (s *shelf) Forget(ids ...muster.AttemptID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.held, id)
	}
}

// puppet is an executor whose tasks do what the test says.
type puppet struct {
	began chan *show
	shelf *shelf
	bare  atomic.Bool // tasks get no process
}

type show struct {
	id   muster.AttemptID
	task *run.Task
	ctx  context.Context
	sink run.Sink
	done chan muster.Report
}

func (p *puppet) Kind() string { return "process" }

func (p *puppet) Run(ctx context.Context, t *run.Task, sink run.Sink) muster.Report {
	s := &show{id: t.Attempt, task: t, ctx: ctx, sink: sink, done: make(chan muster.Report, 1)}
	if t.Held == nil && !p.bare.Load() {
		pid, err := p.shelf.put(t)
		if err != nil {
			return muster.Report{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: err.Error()}
		}
		sink.Process(pid)
	}
	p.began <- s
	select {
	case r := <-s.done:
		return r
	case <-ctx.Done():
		why := run.StoppedBy(ctx)
		return muster.Report{Outcome: why.Outcome, Reason: why.Reason, Message: why.Message, FinishedAt: run.Now()}
	}
}

// finish ends the task with success.
func (s *show) finish() {
	s.done <- muster.Report{Outcome: muster.AttemptSucceeded, FinishedAt: run.Now()}
	synctest.Wait()
}

// print appends to the task's log.
func (w *world) print(s *show, offset int64, data []byte) {
	w.t.Helper()
	size, err := w.logs.Append(context.Background(), s.id, offset, data)
	if err != nil {
		w.t.Fatal(err)
	}
	s.sink.LogGrew(size)
}

// desk is the server, as far as a worker sees it.
type desk struct {
	serving sync.WaitGroup

	mu      sync.Mutex
	gone    bool
	refuse  error // of the next Dial
	conn    link.WorkerConn
	send    func(*link.ToWorker)
	stop    []muster.AttemptID // of the next Welcome
	quiet   bool               // reports are not acknowledged
	deaf    bool               // logs are not acknowledged
	hellos  []*link.Hello
	frames  []*link.ToServer
	logs    map[muster.AttemptID][]byte
	full    bool // logs are refused with a pause
	unacked int
	most    int // the most log bytes that ever waited for an acknowledgement
	orderly bool
}

func newDesk() *desk { return &desk{logs: map[muster.AttemptID][]byte{}} }

// Dial implements link.Dialer.
func (d *desk) Dial(ctx context.Context) (link.WorkerConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return nil, d.refuse
	}
	if d.gone {
		return nil, muster.Errorf(muster.Unavailable, "the server is away")
	}
	mine, theirs := linktest.Pipe(1)
	d.conn = mine
	ctx = context.WithoutCancel(ctx)
	d.serving.Go(func() {
		_ = link.Serve(ctx, theirs, d, me, slog.New(slog.DiscardHandler))
	})
	return mine, nil
}

// Open implements link.Desk.
func (d *desk) Open(_ context.Context, h *link.Hello, send func(*link.ToWorker)) (link.Session, *link.Welcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hellos, d.send = append(d.hellos, h), send
	w := &link.Welcome{Heartbeat: muster.Duration(heartbeat), Stop: d.stop}
	stopped := map[muster.AttemptID]bool{}
	for _, a := range d.stop {
		stopped[a] = true
	}
	d.stop, d.unacked = nil, 0
	for _, a := range h.Held {
		if !stopped[a] {
			w.Keep = append(w.Keep, link.LogAck{Attempt: a, Size: int64(len(d.logs[a]))})
		}
	}
	return d, w, nil
}

// Handle implements link.Session.
func (d *desk) Handle(_ context.Context, f *link.ToServer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frames = append(d.frames, f)
	answer := &link.ToWorker{}
	for _, c := range f.Logs {
		d.unacked += len(c.Data)
		d.most = max(d.most, d.unacked)
		if d.full {
			answer.LogAck = append(answer.LogAck, link.LogAck{
				Attempt: c.Attempt, Size: int64(len(d.logs[c.Attempt])), Pause: muster.Duration(5 * time.Second),
			})
			d.unacked -= len(c.Data)
			continue
		}
		if have := int64(len(d.logs[c.Attempt])); c.Offset <= have && c.Offset+int64(len(c.Data)) > have {
			d.logs[c.Attempt] = append(d.logs[c.Attempt], c.Data[have-c.Offset:]...)
		}
		if !d.deaf {
			answer.LogAck = append(answer.LogAck, link.LogAck{Attempt: c.Attempt, Size: int64(len(d.logs[c.Attempt]))})
			d.unacked -= len(c.Data)
		}
	}
	if !d.quiet {
		for _, r := range f.Finished {
			answer.FinishedAck = append(answer.FinishedAck, r.Attempt)
		}
	}
	if len(answer.FinishedAck)+len(answer.LogAck) > 0 {
		d.send(answer)
	}
	return nil
}

// Close implements link.Session.
func (d *desk) Close(orderly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orderly = orderly
}

func (d *desk) say(f *link.ToWorker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.send(f)
}

// away cuts the connection and refuses new ones, or lets them in again.
func (d *desk) away(on bool) {
	d.mu.Lock()
	d.gone = on
	conn := d.conn
	d.mu.Unlock()
	if on && conn != nil {
		conn.Close()
	}
	synctest.Wait()
}

// set changes how the desk behaves.
func (d *desk) set(change func(*desk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// heard returns all frames so far as one.
func (d *desk) heard() link.ToServer {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	var all link.ToServer
	for _, f := range d.frames {
		all.Accepted = append(all.Accepted, f.Accepted...)
		all.Rejected = append(all.Rejected, f.Rejected...)
		all.Started = append(all.Started, f.Started...)
		all.Progress = append(all.Progress, f.Progress...)
		all.Logs = append(all.Logs, f.Logs...)
		all.Finished = append(all.Finished, f.Finished...)
		if f.Renew != nil {
			all.Renew = f.Renew
		}
		if f.Ready != nil {
			all.Ready = f.Ready
		}
		if f.Offer != nil {
			all.Offer = f.Offer
		}
		all.Saved = append(all.Saved, f.Saved...)
		if f.Goodbye != nil {
			all.Goodbye = f.Goodbye
		}
	}
	return all
}

// log returns what the server has of an attempt's log.
func (d *desk) log(a muster.AttemptID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.logs[a])
}

// forgetFrames starts heard over.
func (d *desk) forgetFrames() { d.set(func(d *desk) { d.frames = nil }) }

// hello returns the n-th hello.
func (d *desk) hello(n int) *link.Hello {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hellos[n]
}

// held returns what the n-th hello held.
func (d *desk) held(n int) []muster.AttemptID { return d.hello(n).Held }

// leftInOrder reports whether the last session ended with a goodbye.
func (d *desk) leftInOrder() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.orderly
}

// sessions returns how often a worker said hello.
func (d *desk) sessions() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.hellos)
}
