package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/policy"
	"github.com/muster-dev/muster/internal/wake"
)

// connect keeps a session open until the worker has said goodbye or ctx ends, which return nil, or until the server permanently refuses it.
func (a *Agent) connect(ctx context.Context) error {
	var pause backoff.Backoff
	_, held := a.table.count()
	everWelcomed := held > 0 // the server has welcomed this worker, or its previous process
	tries := 0               // since the last session
	for {
		s := &session{agent: a, specs: map[int]*link.GroupSpec{}}
		err := s.run(ctx)
		a.table.onDisconnect()
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended, or goodbye was sent
		}
		if s.welcomed {
			everWelcomed = true
		}
		if s.healthy() {
			pause.Reset()
		}
		if _, ok := errors.AsType[*link.FrameError](err); ok {
			a.onRefused(RefusedFrame)
		}
		if isFatal(err, everWelcomed) {
			return a.explainRefusal(err)
		}
		level := slog.LevelDebug // the first failure is enough
		if tries++; tries == 1 || s.welcomed {
			level, tries = slog.LevelWarn, 1
		}
		a.log.Log(ctx, level, "not connected, retrying", slog.Any("error", err))
		if backoff.Sleep(ctx, pause.NextAfter(err)) != nil {
			return nil //nolint:nilerr // ctx ended
		}
	}
}

// isFatal reports whether err ends the worker. A worker that the server knows, and which may run tasks, does not exit because of temporary
// unexpected answers, such as those of a proxy.
func isFatal(err error, everWelcomed bool) bool {
	switch muster.CodeOf(err) {
	case muster.Unauthenticated, muster.Forbidden, muster.Conflict:
		return true
	default:
		return !everWelcomed && !link.Retryable(err)
	}
}

// ErrUnknownWorker is in the chain of Run's error if the server does not know this worker: the server lost its data, or is another one. A
// server that removed the worker answers Forbidden instead.
var ErrUnknownWorker = errors.New("the server does not know this worker")

// explainRefusal adds what to do to the error of a server that refuses this worker.
func (a *Agent) explainRefusal(err error) error {
	switch muster.CodeOf(err) {
	case muster.Unauthenticated:
		return muster.Errorf(muster.Unauthenticated,
			"%w (%w): if the server lost its data, or is another one, restart the worker with --token-file to join again",
			ErrUnknownWorker, err)
	case muster.Forbidden:
		return muster.Errorf(muster.Forbidden,
			"the server refuses this worker (%w): if it should join again, restart it with --token-file and a new token; if it was removed, delete %s first (muster up needs no token)",
			err, a.cfg.identityPath())
	case muster.Conflict:
		return muster.Errorf(muster.Conflict,
			"another process connected as worker %s (%w): two workers must not use copies of one data dir; delete %s in one of them and restart it with --token-file (muster up needs none)",
			a.cfg.Identity.Worker, err, a.cfg.identityPath())
	default:
		return err
	}
}

// session is one connection to the server.
type session struct {
	agent      *Agent
	helloAt    time.Duration
	welcomed   bool
	welcomedAt time.Time
	heartbeat  time.Duration           // of the server
	specs      map[int]*link.GroupSpec // by Ref; the last link.MaxGroupSpecs of them
	timer      *time.Timer
}

var _ link.FrameSource = (*session)(nil)

func (s *session) run(ctx context.Context) error {
	conn, err := s.agent.cfg.Dialer.Dial(ctx)
	if err != nil {
		return err
	}
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	tasks := context.WithoutCancel(ctx) // tasks outlive the session that assigned them
	return link.RunSession(ctx, conn, s.hello(), s, func(f *link.ToWorker) error {
		s.handle(tasks, f)
		return nil
	})
}

// minHealthyHeartbeats is how many heartbeats a session must last for the next one to begin without a pause.
const minHealthyHeartbeats = 2

func (s *session) healthy() bool {
	return s.welcomed && time.Since(s.welcomedAt) >= minHealthyHeartbeats*s.heartbeat
}

func (s *session) hello() *link.Hello {
	c := &s.agent.cfg
	h := &link.Hello{
		Version: link.Version, Worker: c.Identity.Worker, Name: c.Name, Build: c.Build, Labels: c.Labels, Price: c.Price, Address: c.Address, Heartbeat: c.Heartbeat,
	}
	s.helloAt = s.agent.table.fillHello(h)
	return h
}

// Next implements link.FrameSource: it returns the next frame as soon as there is something to send.
func (s *session) Next(ctx context.Context) (*link.ToServer, error) {
	tbl := s.agent.table
	for {
		var load *muster.Load
		if s.agent.cfg.Load != nil && tbl.heartbeatDue() {
			load = s.agent.cfg.Load(ctx)
		}
		f, logs, wait := tbl.nextFrame(load)
		if f != nil {
			s.agent.readLogs(ctx, f, logs)
			return f, nil
		}
		if tbl.isDone() {
			return nil, io.EOF
		}
		s.timer.Reset(wait)
		select {
		case <-tbl.wake:
		case <-s.timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Post implements link.FrameSource. The link only posts pings, which the heartbeat carries.
func (s *session) Post(*link.ToServer) { s.agent.table.ping() }

// handle carries out a frame.
func (s *session) handle(ctx context.Context, f *link.ToWorker) {
	tbl := s.agent.table
	now, contact := tbl.onContact(f.Pong)
	if f.Welcome != nil {
		s.welcomed, s.welcomedAt, s.heartbeat = true, time.Now(), f.Welcome.Heartbeat.Std()
		contact = tbl.onWelcome(f.Welcome, s.helloAt)
		s.agent.log.Info("connected", slog.Int("kept", len(f.Welcome.Keep)), slog.Int("stopped", len(f.Welcome.Stop)))
		if name := s.agent.cfg.Name; f.Welcome.SharedName {
			s.agent.log.Warn(fmt.Sprintf("another connected worker is named %s, too: restart one of them with --name NAME", name))
		}
	}
	switch {
	case f.Welcome != nil && f.Welcome.Pending:
		s.agent.log.Warn("this worker waits for approval and gets no tasks: an administrator approves it with muster workers approve " + string(s.agent.cfg.Identity.Worker))
	case f.Approved:
		s.agent.log.Info("approved: this worker takes tasks")
	}
	if f.Welcome != nil || f.Pong {
		s.agent.cfg.Supervisor.SetLastContact(contact)
	}
	for i := range f.Specs {
		s.specs[f.Specs[i].Ref] = &f.Specs[i]
		delete(s.specs, f.Specs[i].Ref-link.MaxGroupSpecs)
		if len(s.specs) > link.MaxGroupSpecs { // the server left numbers out
			delete(s.specs, slices.Min(slices.Collect(maps.Keys(s.specs))))
		}
	}
	for i := range f.Assign {
		s.assign(ctx, &f.Assign[i], now)
	}
	if len(f.Assign) > 0 {
		wake.Set(tbl.wake) // one frame for all that ran inline
	}
	for i := range f.Cancel {
		tbl.cancel(&f.Cancel[i])
	}
	if len(f.FinishedAck) > 0 {
		tbl.finishedAck(f.FinishedAck)
	}
	for _, ack := range f.LogAck {
		tbl.logAck(ack)
	}
	if len(f.Heal) > 0 && s.agent.cfg.OnHeal != nil {
		s.agent.cfg.OnHeal(f.Heal)
	}
	for _, x := range f.Exec {
		if s.agent.cfg.OnExec != nil {
			s.agent.cfg.OnExec(x)
		}
	}
	if f.Ping {
		tbl.pong()
	}
	if f.Drain {
		s.agent.onDrained()
	}
}

// assign starts an attempt that was received at now, or rejects it.
func (s *session) assign(ctx context.Context, as *link.Assign, now time.Duration) {
	a := s.agent
	group := s.specs[as.Ref]
	if group == nil {
		a.refuse(ctx, as.Attempt, RefusedSpec, "the assignment refers to a stage spec that this session never received")
		return
	}
	spec := cmp.Or(as.Spec, &group.Spec)
	if reason, why := a.refusal(spec, group.Project); why != "" {
		a.refuse(ctx, as.Attempt, reason, why)
		return
	}
	for i := range spec.Secrets {
		if name := spec.Secrets[i].Name; !slices.ContainsFunc(as.Secrets, func(v muster.SecretValue) bool { return v.Name == name }) {
			a.refuse(ctx, as.Attempt, RefusedSpec, "the assignment does not have the secret "+name)
			return
		}
	}
	t := &run.Task{
		Attempt: as.Attempt, Job: group.UID, Project: group.Project, Group: group.Name, Element: as.Element, Spec: spec, Grant: as.Grant,
		Checkpoint: as.Checkpoint, Gang: as.Gang, Inputs: as.Inputs, Secrets: as.Secrets, Assigned: now,
	}
	if a.cfg.Signed != nil {
		signed, err := a.cfg.Signed.Verify(t, group.Signature)
		if err != nil {
			a.log.Warn("rejecting a task whose signature does not allow it", slog.String("attempt", as.Attempt.String()), slog.Any("why", err))
			a.table.reject(&link.Rejected{Attempt: as.Attempt, Message: err.Error(), Final: muster.CodeOf(err) == muster.Forbidden})
			return
		}
		t.Spec, spec = signed, signed
		t.Checkpoint = "" // the server could have replaced it
		t.Fresh = true    // the server names the job, and with it the folder of an earlier attempt
	}
	for i := range as.Secrets {
		t.Redact = append(t.Redact, as.Secrets[i].Value)
	}
	inline := spec.Kind == muster.KindNoop
	if g := as.Gang; g != nil && g.Rank == 0 && !inline && !a.cfg.RemoteTasks && !a.table.has(as.Attempt) {
		var err error
		if t.Port, err = bindPort(ctx, g.Port); err != nil {
			a.table.reject(&link.Rejected{Attempt: as.Attempt, Message: fmt.Sprintf("port %d of the gang is not free on this worker: %v", g.Port, err)})
			return
		}
	}
	a.start(ctx, t, inline)
}

// What a worker refuses although its server sent it.
const (
	RefusedAllow     = "allow"     // its owner does not allow it
	RefusedProject   = "project"   // a task of another project
	RefusedKind      = "kind"      // it does not offer the kind, or containers
	RefusedFeature   = "feature"   // it lacks a feature that the task uses
	RefusedResources = "resources" // more than it has free, or a GPU that it does not have or that is in use
	RefusedSpec      = "spec"      // an assignment without its spec, or without a secret of it
	RefusedFrame     = "frame"     // a frame with a wrong signature, which ended the session
)

// refuse rejects an attempt that the server may not assign, counts it, and logs the first one of each reason.
func (a *Agent) refuse(ctx context.Context, id muster.AttemptID, reason, why string) {
	a.table.reject(&link.Rejected{Attempt: id, Message: why})
	a.onRefused(reason)
	level := slog.LevelDebug
	if _, again := a.refused.LoadOrStore(reason, true); !again {
		level = slog.LevelWarn
	}
	a.log.Log(ctx, level, "an assignment was refused; others for the same reason are logged at level debug", slog.String("attempt", id.String()), slog.String("reason", reason), slog.String("message", why))
}

func (a *Agent) onRefused(reason string) {
	if a.cfg.OnRefused != nil {
		a.cfg.OnRefused(reason)
	}
}

// refusal returns why the worker does not run a task, "" if it does, with one of the Refused constants. The server does not assign such a
// task; a server that did would have it run with what the owner does not allow, or without what it requests.
func (a *Agent) refusal(spec *muster.TaskSpec, project string) (reason, why string) {
	if why := policy.Check(a.cfg.Allow, spec); why != "" {
		return RefusedAllow, why
	}
	if len(a.cfg.Projects) > 0 && !slices.Contains(a.cfg.Projects, project) {
		return RefusedProject, fmt.Sprintf("this worker takes no tasks of project %q", project)
	}
	if len(a.cfg.Lacks) > 0 {
		for _, feature := range muster.Features(spec) {
			if slices.Contains(a.cfg.Lacks, feature) {
				return RefusedFeature, "this worker does not support " + feature
			}
		}
	}
	if !a.accepts(spec.Kind) {
		return RefusedKind, "this worker does not run tasks of kind " + spec.Kind
	}
	if !a.accepts(muster.KindContainer) && policy.RunsInContainer(spec) {
		return RefusedKind, "this worker does not run containers"
	}
	return "", ""
}

// ping makes the next frame a ping, unless one was just sent.
func (tbl *attemptTable) ping() {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if now := tbl.clock(); now-tbl.lastHeartbeat > tbl.heartbeat/2 {
		tbl.nextHeartbeat = now
		wake.Set(tbl.wake)
	}
}

// pong answers a ping of the server with the next frame.
func (tbl *attemptTable) pong() {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	tbl.pongDue = true
	wake.Set(tbl.wake)
}

func (tbl *attemptTable) isDone() bool {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	return tbl.goodbyeSent
}

// cancel stops an attempt as the server asks.
func (tbl *attemptTable) cancel(c *link.Cancel) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	at := tbl.held[c.Attempt]
	switch {
	case at == nil:
	case c.Drop:
		tbl.drop(at, errAttemptDropped)
	case at.running() && c.Reason == muster.Preempted:
		at.stop(preempted("the server preempted it"))
	case at.running():
		reason := c.Reason
		if reason == muster.NoReason {
			reason = muster.CancelledByUser
		}
		at.stop(&run.Stopped{Outcome: muster.AttemptCancelled, Reason: reason})
	}
}

// finishedAck records that the server has the reports of attempts.
func (tbl *attemptTable) finishedAck(ids []muster.AttemptID) {
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	for _, id := range ids {
		if at := tbl.held[id]; at != nil && at.report != nil {
			tbl.markAcked(at, true)
			tbl.removeIfDone(at)
		}
	}
}

// errStopped ends the goroutines of an agent that has said goodbye.
var errStopped = errors.New("the worker has stopped")
