package engine

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
)

// session is the session of one connected worker.
type session struct {
	engine *Engine
	worker muster.WorkerID
	post   func(*link.ToWorker)
	ended  atomic.Bool // send nothing more
	name   string      // of the worker
	bound  link.Enrolment
	tags   atomic.Pointer[[]string]
	remote bool // it is on another machine

	remoteIP string
	url      string        // of the server for the worker's tasks
	pongs    chan struct{} // has an answer to a challenge
	closed   chan struct{} // closed when it has ended
	close    sync.Once     // of closed

	refs  groupRefs // Run's goroutine only
	owned *ownedAttempts

	uploaded map[string]struct{} // named blobs that the worker uploaded; the goroutine that calls Handle
	inflight chan struct{}       // has a token for each frame that waits for the engine
}

var _ link.SessionHandler = (*Engine)(nil)

func (e *Engine) newSession(w muster.WorkerID, post func(*link.ToWorker)) *session {
	return &session{engine: e, worker: w, post: post, refs: newGroupRefs(), owned: newOwnedAttempts(), uploaded: map[string]struct{}{}, inflight: make(chan struct{}, maxFrames), pongs: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Open starts the session of a worker.
func (e *Engine) Open(ctx context.Context, h *link.Hello, send func(*link.ToWorker)) (link.Session, *link.Welcome, error) {
	address, err := e.addresses.verify(ctx, h)
	if err != nil {
		return nil, nil, err
	}
	s := e.newSession(h.Worker, send)
	s.name, s.bound, s.remote = h.Name, h.Enrolment, !isLoopback(h.RemoteIP)
	s.remoteIP, s.url = h.RemoteIP, h.ServerURL
	if err := s.bind(&h.Offer); err != nil {
		return nil, nil, err
	}
	s.tags.Store(&h.Tags)
	silent, err := e.challenge(ctx, h)
	if err != nil {
		return nil, nil, err
	}
	type lists struct {
		keep, stop []muster.AttemptID
		sharedName bool
		pending    bool
	}
	held, err := call(ctx, e, false, func(st *sched.State, now muster.Time, _ *batch) (l lists, err error) {
		if !e.mayReplace(h, silent) {
			return l, muster.Errorf(muster.Unavailable, "worker %s connected twice at the same time: try again", h.Name)
		}
		next := st.NextJob()
		err = st.Apply(now, sched.Joined{Worker: muster.Worker{
			ID: h.Worker, Name: h.Name, Version: h.Build, Tags: h.Tags, Labels: h.Labels,
			Kinds: h.Kinds, CustomKinds: h.OwnKinds, Price: h.Price, Resources: h.Resources, Address: address, Allow: h.Allow,
			UnsupportedFeatures: h.Lacks, Projects: h.Projects, Heartbeat: h.Heartbeat, Token: h.Enrolment.Token, Pending: h.Enrolment.Pending,
		}, Held: h.Held, Stale: h.Stale, Constrained: h.Constrained})
		if err != nil {
			return l, err
		}
		if st.NextJob() > next {
			e.cfg.Log.Warn("worker knows jobs that this server does not, as after a restored backup, skipping their numbers",
				slog.String("worker", string(h.Worker)), slog.String("from", next.String()), slog.String("next", st.NextJob().String()))
		}
		l.keep, l.stop = st.Reconcile(h.Worker, h.Held)
		l.sharedName, l.pending = e.replaceSession(s), st.Pending(h.Worker)
		return l, nil
	})
	if err != nil {
		s.Close(false) //nolint:contextcheck // ctx is over if the session opened after the timeout
		return nil, nil, err
	}
	w := &link.Welcome{Heartbeat: h.Heartbeat.Or(e.cfg.Sched.Heartbeat), Stop: held.stop, SharedName: held.sharedName, Pending: held.pending}
	for _, a := range held.keep {
		s.owned.add(a, 0)
	}
	for _, a := range held.keep {
		size, err := e.cfg.Logs.Size(ctx, a)
		if err != nil { // the worker resends the whole log, and only new bytes are stored
			e.reportLogError(h.Worker, err)
			size = 0
		}
		w.Keep = append(w.Keep, link.LogAck{Attempt: a, Size: size})
	}
	return s, w, nil
}

// bind changes an offer of the worker to what it may offer.
func (s *session) bind(o *muster.Offer) error {
	refused, err := s.bound.Bind(o)
	if len(refused) > 0 {
		s.engine.cfg.Log.Warn("worker has reserved tags that its join token does not give it, ignoring them",
			slog.String("worker", string(s.worker)), slog.String("tags", strings.Join(refused, ",")))
	}
	return err
}

// replaceSession makes s the session of its worker and ends the previous one. It reports whether another connected worker has the same name.
func (e *Engine) replaceSession(s *session) (sharedName bool) {
	e.mu.Lock()
	old := e.sessions.set(s)
	sharedName = e.sessions.names[s.name] > 1
	e.mu.Unlock()
	if old != nil {
		old.end(muster.Conflict, "another session of this worker took over")
	}
	return sharedName
}

// end says goodbye to the worker. Only the first call has an effect.
func (s *session) end(code muster.Code, message string) {
	if !s.ended.Swap(true) {
		s.post(&link.ToWorker{Goodbye: &link.Goodbye{Code: code, Message: message}})
	}
}

// endSessions ends every session: the workers reconnect and list what they hold.
func (e *Engine) endSessions(code muster.Code, message string) {
	e.mu.Lock()
	open := e.sessions
	e.sessions = newSessions()
	e.mu.Unlock()
	for _, s := range open.byWorker {
		s.end(code, message)
	}
}

// session returns the open session of a worker, or nil.
func (e *Engine) session(w muster.WorkerID) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions.byWorker[w]
}

// current reports whether s is its worker's session.
func (e *Engine) current(s *session) bool { return e.session(s.worker) == s }

// Close ends the session in the engine; orderly means that the worker shut down.
func (s *session) Close(orderly bool) {
	s.ended.Store(true)
	s.close.Do(func() { close(s.closed) })
	err := s.engine.inbox.post(context.Background(), request{
		decide: func(st *sched.State, now muster.Time, _ *batch) error {
			if !s.engine.current(s) {
				return nil
			}
			s.engine.mu.Lock()
			s.engine.sessions.remove(s)
			s.engine.mu.Unlock()
			if orderly {
				return st.Apply(now, sched.ShutDown{Worker: s.worker})
			}
			return st.Apply(now, sched.Disconnected{Worker: s.worker})
		},
		done: func(error) {},
	})
	if err != nil {
		s.engine.cfg.Log.Debug("session ended after the engine", slog.String("worker", string(s.worker)))
	}
}

// maxFrames is how many frames of one session wait for the engine before Handle blocks:
// frames may be large.
const maxFrames = 64

// Handle handles a frame. It stores the log bytes before it returns, which slows down a
// worker that sends more than the disk takes. The rest is posted to the engine, even if the
// log bytes were not stored, and acknowledged after the commit.
func (s *session) Handle(ctx context.Context, f *link.ToServer) error {
	if s.ended.Load() {
		return muster.Errorf(muster.Conflict, "the session of worker %s has ended", s.worker)
	}
	if f.Pong {
		s.pong()
	}
	if len(f.Logs) > 0 {
		s.appendLogs(ctx, f.Logs)
	}
	if f.Offer != nil {
		if err := s.bind(f.Offer); err != nil {
			return err
		}
	}
	saved, err := s.checkSaved(ctx, f.Saved)
	if err != nil {
		return err
	}
	if err := s.checkArtifacts(ctx, f); err != nil {
		return err
	}
	events := s.events(f, saved)
	if len(events) == 0 {
		return nil
	}
	select {
	case s.inflight <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err = s.engine.inbox.post(ctx, request{
		decide: func(st *sched.State, now muster.Time, _ *batch) error {
			if !s.engine.current(s) {
				return muster.Errorf(muster.Conflict, "the session of worker %s has ended", s.worker)
			}
			for _, ev := range events {
				if err := st.Apply(now, ev); err != nil {
					s.engine.cfg.Log.Debug("report refused", slog.String("worker", string(s.worker)), slog.Any("error", err))
				}
			}
			return nil
		},
		done: func(err error) {
			<-s.inflight
			if err == nil {
				s.acknowledge(f)
			}
		},
	})
	if err != nil {
		<-s.inflight
	}
	return err
}

// events translates a frame to events, in order of effect. saved lists the verified
// checkpoints of the frame.
func (s *session) events(f *link.ToServer, saved []link.Saved) []sched.Event {
	events := make([]sched.Event, 0, len(f.Accepted)+len(f.Rejected)+len(f.Started)+len(f.Progress)+len(saved)+len(f.Finished)+3)
	if f.Ready != nil {
		events = append(events, sched.Ready{Worker: s.worker, Constrained: f.Ready.Constrained})
	}
	if f.Offer != nil {
		s.tags.Store(&f.Offer.Tags)
		events = append(events, sched.Offered{Worker: s.worker, Offer: *f.Offer})
	}
	for _, a := range f.Accepted {
		events = append(events, sched.Accepted{Worker: s.worker, Attempt: a})
	}
	for _, r := range f.Rejected {
		events = append(events, sched.Rejected{Worker: s.worker, Attempt: r.Attempt, Message: r.Message, Constrained: r.Constrained, Final: r.Final})
	}
	for _, a := range f.Started {
		events = append(events, sched.Started{Worker: s.worker, Attempt: a.Attempt, At: a.At})
	}
	for _, p := range f.Progress {
		events = append(events, sched.Progressed{Worker: s.worker, Progress: p})
	}
	for _, c := range saved {
		events = append(events, sched.CheckpointSaved{Worker: s.worker, Attempt: c.Attempt, SHA256: c.SHA256})
	}
	for _, r := range f.Finished {
		events = append(events, sched.Finished{Worker: s.worker, Report: r})
	}
	if f.Renew != nil {
		events = append(events, sched.Renewed{Worker: s.worker, Load: f.Renew.Load, Held: f.Renew.Held})
	}
	return events
}

// acknowledge acknowledges the reports of a committed frame, also refused ones: a resend
// would not help.
func (s *session) acknowledge(f *link.ToServer) {
	if s.ended.Load() || len(f.Finished) == 0 {
		return
	}
	out := &link.ToWorker{}
	for _, r := range f.Finished {
		out.FinishedAck = append(out.FinishedAck, r.Attempt)
	}
	s.post(out)
}

// send sends commands, in one frame for each worker, or more if they have very many stage
// specs. A command to a worker without a session is dropped: Welcome covers it when the
// worker reconnects.
func (e *Engine) send(cmds []sched.Command) {
	if len(cmds) == 0 {
		return
	}
	frames := map[*session]*link.ToWorker{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cmd := range cmds {
		s := e.sessions.byWorker[cmd.To()]
		if s == nil || s.ended.Load() {
			continue
		}
		f := frames[s]
		if f != nil && len(f.Specs) >= link.MaxNewGroupSpecs {
			s.post(f)
			f = nil
		}
		if f == nil {
			f = &link.ToWorker{}
			frames[s] = f
		}
		switch w := cmd.(type) {
		case sched.Assign:
			secrets, err := s.secrets(&w)
			if err != nil {
				s.withhold(w.Attempt, err)
				continue
			}
			s.assign(f, w, secrets)
		case sched.Stop:
			f.Cancel = append(f.Cancel, link.Cancel{Attempt: w.Attempt, Reason: w.Reason, Drop: w.Outcome == muster.AttemptLost})
		case sched.Drained:
			f.Drain = true
		case sched.HealGPUs:
			f.Heal = append(f.Heal, w.GPUs...)
		}
	}
	for s, f := range frames {
		s.post(f)
	}
}

// secrets returns the values of an attempt's secrets, if the worker may have them.
func (s *session) secrets(w *sched.Assign) ([]muster.SecretValue, error) {
	if len(w.Spec.Secrets) == 0 {
		return nil, nil
	}
	if s.remote && !s.engine.cfg.PlainSecrets {
		return nil, muster.Errorf(muster.Forbidden, "the server has no TLS and sends secrets only to workers on its own machine: start it with --tls, or with --plain-secrets if the network is trusted")
	}
	return s.engine.cfg.Secrets.Values(w.Project, w.Spec.Secrets, *s.tags.Load())
}

// withhold ends an attempt that was not sent to the worker: it fails if its secrets do not exist, else the task is placed again.
func (s *session) withhold(a muster.AttemptID, why error) {
	var event sched.Event = sched.Rejected{Worker: s.worker, Attempt: a, Message: why.Error()}
	if muster.CodeOf(why) == muster.NotFound {
		event = sched.Finished{Worker: s.worker, Report: muster.Report{Attempt: a, Outcome: muster.AttemptFailed, Reason: muster.BadReference, Message: why.Error()}}
	}
	s.engine.inbox.add(request{
		decide: func(st *sched.State, now muster.Time, _ *batch) error { return st.Apply(now, event) },
		done:   func(error) {}, // an error says that the attempt has ended meanwhile
	})
}

// isLoopback reports whether an address is of this machine's loopback interface. "" is that of a worker in this process.
func isLoopback(ip string) bool {
	addr, err := netip.ParseAddr(ip)
	return ip == "" || err == nil && addr.Unmap().IsLoopback()
}

// assign adds an assignment to a frame, and the stage's spec if the session has not sent it.
func (s *session) assign(f *link.ToWorker, w sched.Assign, secrets []muster.SecretValue) {
	s.owned.add(w.Attempt, w.Spec.LogCap)
	ref, isNew := s.refs.get(w.Attempt.Task.Job, w.Group, w.Spec)
	if isNew {
		f.Specs = append(f.Specs, link.GroupSpec{Ref: ref, UID: w.UID, Name: w.Spec.Name, Spec: forWorker(w.Spec, w.Signature), Project: w.Project, Signature: w.Signature})
	}
	a := link.Assign{Attempt: w.Attempt, Ref: ref, Element: w.Spec.Element(w.Element), Grant: w.Grant, Checkpoint: w.Checkpoint, Gang: w.Gang, Inputs: w.Inputs, Secrets: secrets}
	if s.refs.perElement[ref] {
		a.Spec = s.bindElement(&w)
		if w.Signature == nil {
			a.Spec.Cache = 0
		}
	}
	f.Assign = append(f.Assign, a)
}

// forWorker returns a stage's spec as workers have it: without the values of its elements, as each element's spec has its own, and without its use
// of the result cache, which older workers do not know, unless that is signed.
func forWorker(t *muster.TaskSpec, signature *muster.Signature) muster.TaskSpec {
	c := *t
	if signature == nil {
		c.Cache = 0
	}
	if t.Array != nil {
		c.Array = t.Array.WithoutItems()
	}
	return c
}

// groupRefs numbers the stage specs that a session has sent. It keeps the last
// link.MaxNewGroupSpecs.
type groupRefs struct {
	last       int
	byGroup    map[groupKey]int
	keys       map[int]groupKey
	perElement map[int]bool
}

type groupKey struct {
	job   muster.JobID
	group int
	spec  *muster.TaskSpec // a retried stage may have been resolved again
}

func newGroupRefs() groupRefs {
	return groupRefs{byGroup: map[groupKey]int{}, keys: map[int]groupKey{}, perElement: map[int]bool{}}
}

func (r *groupRefs) get(job muster.JobID, group int, spec *muster.TaskSpec) (ref int, isNew bool) {
	key := groupKey{job, group, spec}
	if ref, ok := r.byGroup[key]; ok {
		return ref, false
	}
	r.last++
	if old, ok := r.keys[r.last-link.MaxNewGroupSpecs]; ok {
		delete(r.byGroup, old)
		delete(r.keys, r.last-link.MaxNewGroupSpecs)
		delete(r.perElement, r.last-link.MaxNewGroupSpecs)
	}
	r.byGroup[key], r.keys[r.last] = r.last, key
	if dag.PerElement(spec) {
		r.perElement[r.last] = true
	}
	return r.last, true
}
