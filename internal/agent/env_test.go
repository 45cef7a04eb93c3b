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

// env is a worker and a fake server in a synctest bubble. Frames pass the real codec and the real sessions of both sides.
type env struct {
	t          *testing.T
	server     *fakeServer
	executor   *fakeExecutor
	supervisor *fakeSupervisor
	reports    *ReportStore
	logs       *tasklog.Dir
	dir        string
	suspended  atomic.Int64 // how long the machine was suspended
	cfg        Config

	clockStart time.Time // of the clock, which continues across restarts of the worker
	agent      *Agent
	stop       context.CancelFunc
	ended      chan error
}

func newEnv(t *testing.T) *env {
	t.Helper()
	dir := t.TempDir()
	reports, err := OpenReportStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := tasklog.OpenDir(filepath.Join(dir, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close(); reports.Close() })
	e := &env{t: t, server: newFakeServer(), supervisor: &fakeSupervisor{}, reports: reports, logs: logs, dir: dir}
	e.executor = &fakeExecutor{started: make(chan *fakeTask, 100), supervisor: e.supervisor}
	e.cfg = Config{
		Identity: Identity{Worker: me, Key: "key"}, Name: "test", Dir: dir, Reports: reports, Logs: logs, Dialer: e.server, Supervisor: e.supervisor,
		Resources: muster.Resources{Slots: 4, CPUs: 2, Memory: 1 << 30, GPUs: []muster.GPU{{UUID: "g0", Memory: 100}, {UUID: "g1", Memory: 100}}},
		Executors: []run.Executor{noop.Executor{}, e.executor},
		Grace:     30 * time.Second,
		Log:       slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return e
}

// start starts the worker and waits until it is connected, unless the server is down.
func (e *env) start() {
	e.t.Helper()
	e.agent = New(e.cfg)
	clockStart := e.clockStart
	if clockStart.IsZero() {
		clockStart = time.Now().Add(-time.Hour)
	}
	e.agent.table.clock = func() time.Duration { return time.Since(clockStart) + time.Duration(e.suspended.Load()) }
	e.agent.table.lastContact = e.agent.table.clock()
	e.clockStart = clockStart
	ctx, stop := context.WithCancel(context.Background())
	e.stop, e.ended = stop, make(chan error, 1)
	go func() { e.ended <- e.agent.Run(ctx) }()
	synctest.Wait()
}

// end shuts the worker down at once.
func (e *env) end() error {
	e.stop()
	e.agent.ForceShutdown()
	return <-e.ended
}

// crash ends the worker as kill -9 does: it sends nothing more, and the tasks' processes keep running.
func (e *env) crash() {
	e.server.setDown(true)
	e.agent.table.mu.Lock()
	for id, at := range e.agent.table.held {
		at.stop(run.ErrDetach)
		at.dropped, at.persisted, at.logSize, at.inline = true, false, 0, true
		delete(e.agent.table.held, id)
	}
	e.agent.table.mu.Unlock()
	_ = e.end() // the connection is cut
	e.server.setDown(false)
}

func attemptID(num int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: 1, Num: num}, N: 1}
}

// assign offers a task of the kind process.
func (e *env) assign(num int, change ...func(*muster.TaskSpec)) muster.AttemptID {
	spec := muster.TaskSpec{Kind: "process"}
	for _, c := range change {
		c(&spec)
	}
	e.server.send(&link.ToWorker{
		Specs:  []link.GroupSpec{{Ref: num + 1, UID: "j1", Name: "g", Spec: spec}},
		Assign: []link.Assign{{Attempt: attemptID(num), Ref: num + 1, Grant: muster.Grant{Slots: 1}}},
	})
	synctest.Wait()
	return attemptID(num)
}

// run assigns a task and waits until it runs.
func (e *env) run(num int, change ...func(*muster.TaskSpec)) *fakeTask {
	e.t.Helper()
	e.assign(num, change...)
	select {
	case s := <-e.executor.started:
		return s
	default:
		e.t.Fatalf("task %d does not run", num)
		return nil
	}
}

// savedReports returns how many reports are on disk.
func (e *env) savedReports() int {
	e.t.Helper()
	reports, err := e.reports.Reports()
	if err != nil {
		e.t.Fatal(err)
	}
	return len(reports)
}

// fakeSupervisor is a supervisor without processes: it has the attempts of fakeExecutor until Forget.
type fakeSupervisor struct {
	mu      sync.Mutex
	held    map[muster.AttemptID]run.Recovered
	frozen  map[muster.AttemptID]bool
	contact time.Duration
}

var _ run.Supervisor = (*fakeSupervisor)(nil)

func (s *fakeSupervisor) put(t *run.Task) (run.Pid, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := t.State()
	if err != nil {
		return run.Pid{}, err
	}
	if s.held == nil {
		s.held, s.frozen = map[muster.AttemptID]run.Recovered{}, map[muster.AttemptID]bool{}
	}
	pid := run.Pid{PID: 1000 + t.Attempt.Task.Num}
	s.held[t.Attempt] = run.Recovered{Start: run.StartSpec{Attempt: t.Attempt, State: state}, Started: 5000, PID: pid}
	return pid, nil
}

// change changes a held attempt.
func (s *fakeSupervisor) change(id muster.AttemptID, how func(h *run.Recovered)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[id]
	how(&h)
	s.held[id] = h
}

func (s *fakeSupervisor) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Start implements run.Supervisor.
func (s *fakeSupervisor) Start(context.Context, *run.StartSpec, run.Reporter) (run.Proc, error) {
	panic("the puppet starts nothing")
}

// Adopt implements run.Supervisor.
func (s *fakeSupervisor) Adopt(*run.Recovered, run.Reporter) (run.Proc, error) {
	panic("the puppet adopts nothing")
}

// Recovered implements run.Supervisor.
func (s *fakeSupervisor) Recovered() []run.Recovered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.held))
}

// SetLastContact implements run.Supervisor.
func (s *fakeSupervisor) SetLastContact(at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = at
}

// LastContact implements run.Supervisor.
func (s *fakeSupervisor) LastContact() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contact
}

// Freeze implements run.Supervisor.
func (s *fakeSupervisor) Freeze(id muster.AttemptID, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen[id] = on
	return nil
}

// Forget implements run.Supervisor.
func (s *fakeSupervisor) Forget(ids ...muster.AttemptID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		delete(s.held, id)
	}
}

// fakeExecutor is an executor whose tasks the test controls.
type fakeExecutor struct {
	started    chan *fakeTask
	supervisor *fakeSupervisor
	noProcess  atomic.Bool // tasks get no process
}

type fakeTask struct {
	id       muster.AttemptID
	task     *run.Task
	ctx      context.Context
	reporter run.Reporter
	done     chan muster.Report
}

func (p *fakeExecutor) Kind() string { return "process" }

func (p *fakeExecutor) Run(ctx context.Context, t *run.Task, sink run.Reporter) muster.Report {
	s := &fakeTask{id: t.Attempt, task: t, ctx: ctx, reporter: sink, done: make(chan muster.Report, 1)}
	if t.Recovered == nil && !p.noProcess.Load() {
		pid, err := p.supervisor.put(t)
		if err != nil {
			return muster.Report{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: err.Error()}
		}
		sink.Process(pid)
	}
	p.started <- s
	select {
	case r := <-s.done:
		return r
	case <-ctx.Done():
		why := run.StopCause(ctx)
		return muster.Report{Outcome: why.Outcome, Reason: why.Reason, Message: why.Message, FinishedAt: run.Now()}
	}
}

// finish ends the task with success.
func (s *fakeTask) finish() {
	s.done <- muster.Report{Outcome: muster.AttemptSucceeded, FinishedAt: run.Now()}
	synctest.Wait()
}

// print appends to the task's log.
func (e *env) print(s *fakeTask, offset int64, data []byte) {
	e.t.Helper()
	size, err := e.logs.Append(context.Background(), s.id, offset, data)
	if err != nil {
		e.t.Fatal(err)
	}
	s.reporter.LogGrew(size)
}

// fakeServer is the server's side of a worker's session.
type fakeServer struct {
	serving sync.WaitGroup

	mu          sync.Mutex
	down        bool
	refuse      error // of the next Dial
	conn        link.WorkerConn
	sendFrame   func(*link.ToWorker)
	stop        []muster.AttemptID // of the next Welcome
	holdAcks    bool               // reports are not acknowledged
	holdLogAcks bool               // logs are not acknowledged
	hellos      []*link.Hello
	frames      []*link.ToServer
	logs        map[muster.AttemptID][]byte
	segments    *tasklog.Dir // has the logs instead, with their segments; may be nil
	rejectLogs  bool         // logs are refused with a pause
	unacked     int
	maxUnacked  int // the maximum of unacknowledged log bytes
	cleanClose  bool
}

func newFakeServer() *fakeServer { return &fakeServer{logs: map[muster.AttemptID][]byte{}} }

// Dial implements link.Dialer.
func (d *fakeServer) Dial(ctx context.Context) (link.WorkerConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return nil, d.refuse
	}
	if d.down {
		return nil, muster.Errorf(muster.Unavailable, "the server is down")
	}
	local, peer := linktest.Pipe(1)
	d.conn = local
	ctx = context.WithoutCancel(ctx)
	d.serving.Go(func() {
		_ = link.Serve(ctx, peer, d, me, slog.New(slog.DiscardHandler))
	})
	return local, nil
}

// Open implements link.SessionHandler.
func (d *fakeServer) Open(_ context.Context, h *link.Hello, send func(*link.ToWorker)) (link.Session, *link.Welcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hellos, d.sendFrame = append(d.hellos, h), send
	welcome := &link.Welcome{Heartbeat: muster.Duration(heartbeat), Stop: d.stop}
	stopped := map[muster.AttemptID]bool{}
	for _, a := range d.stop {
		stopped[a] = true
	}
	d.stop, d.unacked = nil, 0
	for _, a := range h.Held {
		if !stopped[a] {
			welcome.Keep = append(welcome.Keep, link.LogAck{Attempt: a, Size: int64(len(d.logs[a]))})
		}
	}
	return d, welcome, nil
}

// Handle implements link.Session.
func (d *fakeServer) Handle(ctx context.Context, f *link.ToServer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frames = append(d.frames, f)
	answer := &link.ToWorker{}
	for _, c := range f.Logs {
		d.unacked += len(c.Data)
		d.maxUnacked = max(d.maxUnacked, d.unacked)
		if d.segments != nil {
			size, err := d.segments.AppendChunk(ctx, c.Attempt, &tasklog.Chunk{Offset: c.Offset, Data: c.Data, Segment: c.Segment, Kept: c.Kept, To: c.To}, int64(muster.MinLogCap))
			if err != nil {
				return err
			}
			answer.LogAck = append(answer.LogAck, link.LogAck{Attempt: c.Attempt, Size: size})
			d.unacked -= len(c.Data)
			continue
		}
		if d.rejectLogs {
			answer.LogAck = append(answer.LogAck, link.LogAck{
				Attempt: c.Attempt, Size: int64(len(d.logs[c.Attempt])), Pause: muster.Duration(5 * time.Second),
			})
			d.unacked -= len(c.Data)
			continue
		}
		if stored := int64(len(d.logs[c.Attempt])); c.Offset <= stored && c.Offset+int64(len(c.Data)) > stored {
			d.logs[c.Attempt] = append(d.logs[c.Attempt], c.Data[stored-c.Offset:]...)
		}
		if !d.holdLogAcks {
			answer.LogAck = append(answer.LogAck, link.LogAck{Attempt: c.Attempt, Size: int64(len(d.logs[c.Attempt]))})
			d.unacked -= len(c.Data)
		}
	}
	if !d.holdAcks {
		for _, r := range f.Finished {
			answer.FinishedAck = append(answer.FinishedAck, r.Attempt)
		}
	}
	if len(answer.FinishedAck)+len(answer.LogAck) > 0 {
		d.sendFrame(answer)
	}
	return nil
}

// Close implements link.Session.
func (d *fakeServer) Close(orderly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cleanClose = orderly
}

func (d *fakeServer) send(f *link.ToWorker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sendFrame(f)
}

// setDown cuts the connection and refuses new ones, or accepts them again.
func (d *fakeServer) setDown(on bool) {
	d.mu.Lock()
	d.down = on
	conn := d.conn
	d.mu.Unlock()
	if on && conn != nil {
		conn.Close()
	}
	synctest.Wait()
}

// set changes the behaviour of the server.
func (d *fakeServer) set(change func(*fakeServer)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// received returns all frames so far as one.
func (d *fakeServer) received() link.ToServer {
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
func (d *fakeServer) log(a muster.AttemptID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.logs[a])
}

// forgetFrames clears the received frames.
func (d *fakeServer) forgetFrames() { d.set(func(d *fakeServer) { d.frames = nil }) }

// hello returns the n-th hello.
func (d *fakeServer) hello(n int) *link.Hello {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hellos[n]
}

// held returns what the n-th hello held.
func (d *fakeServer) held(n int) []muster.AttemptID { return d.hello(n).Held }

// closedCleanly reports whether the last session ended with a goodbye.
func (d *fakeServer) closedCleanly() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cleanClose
}

// sessions returns the number of hellos of a worker.
func (d *fakeServer) sessions() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.hellos)
}
