package webhook

import (
	"cmp"
	"context"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/sealing"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/traceparent"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	maxAttempts           = 32 // at the same time
	maxAttemptsPerProject = 16
	reservedAttempts      = 8 // of maxAttempts, for projects without an attempt in progress
	maxAttemptsPerHost    = 4 // for one host and port
	pageSize              = 256
	checkInterval         = 10 * time.Second       // for long waits, and for ends whose event was missed
	batchDelay            = 50 * time.Millisecond  // to write several results together
	storeRetryDelay       = 2 * time.Second        // after an error of the store
	shutdownTimeout       = 5 * time.Second        // for writing the last results
	idleFactor            = 4                      // rounds take at most a fifth of the time
	explainTimeout        = 500 * time.Millisecond // for Config.Explain
)

// Store is the part of the store that a Sender uses.
type Store interface {
	store.NotificationStore
	store.DeliveryStore
	Job(ctx context.Context, id muster.JobID) (muster.Job, error)
	Tasks(ctx context.Context, q store.TaskQuery) ([]muster.Task, string, error)
}

// Config configures a Sender.
type Config struct {
	Store   Store
	Events  *eventbus.Bus
	Explain func(context.Context, muster.TaskID) (string, error) // returns why a task waits
	KeyFile string                                               // has the sealing key, which also signs if Secret is ""; created at the first start
	Secret  string                                               // signing key
	Allow   []netip.Prefix                                       // allowed networks beside the public ones
	URL     string                                               // of the dashboard, for links, or ""
	Version string                                               // of the server
	Log     *slog.Logger
}

// Sender sends notifications while Run runs. Its other methods may be called at any time.
type Sender struct {
	cfg           Config
	keys          keyring
	client        *http.Client
	allowAny      bool // all addresses are allowed
	wake          chan struct{}
	notifyChanged atomic.Bool // since the last check of long waits
}

// New returns a Sender. It reads the server's key, or creates it at the first start.
func New(ctx context.Context, cfg Config) (*Sender, error) {
	stored, err := sealing.LoadKeys(ctx, sealing.Source{
		File: cfg.KeyFile, Name: "webhook key", IfLost: "delete it and set the webhooks of all projects again",
	})
	if err != nil {
		return nil, err
	}
	cfg.URL = strings.TrimSuffix(cfg.URL, "/")
	w := &Sender{cfg: cfg, wake: wake.New()}
	w.client, w.allowAny = newClient(cfg.Allow)
	w.keys, err = newKeyring(stored, cfg.Secret)
	return w, err
}

// Secret returns the secret that signs notifications of a project without a secret of their own.
func (w *Sender) Secret(project string) (string, error) { return w.keys.projectSecret(project) }

// Seal returns notifications with sealed URLs and secrets. It returns an Invalid error for one that another server sealed.
func (w *Sender) Seal(list []muster.Notify) ([]muster.Notify, error) {
	sealed, err := w.Unseal(list)
	if err != nil {
		return nil, err
	}
	for i := range sealed {
		n := &sealed[i]
		if n.Secret != "" {
			secret, err := w.keys.unsealSecret(n.Secret, n.URL)
			if err != nil {
				return nil, err
			}
			n.Secret = w.keys.seal(secret, n.URL)
		}
		n.URL = w.keys.sealURL(n.URL)
	}
	return sealed, nil
}

// Unseal returns notifications with plain URLs. Their secrets stay sealed.
func (w *Sender) Unseal(list []muster.Notify) ([]muster.Notify, error) {
	open := slices.Clone(list)
	for i := range open {
		var err error
		if open[i].URL, err = w.keys.unsealURL(open[i].URL); err != nil {
			return nil, err
		}
	}
	return open, nil
}

// NotificationsChanged must be called after a change of the notifications of a project.
func (w *Sender) NotificationsChanged() {
	w.notifyChanged.Store(true)
	wake.Set(w.wake)
}

// SendTest sends a test message to each of list once, and records the deliveries.
func (w *Sender) SendTest(ctx context.Context, project string, list []muster.Notify) ([]store.Delivery, error) {
	list, err := w.Seal(list)
	if err != nil {
		return nil, err
	}
	m := testMessage(project, muster.NewTime(time.Now()), w.cfg.URL)
	sent := make([]store.Delivery, len(list))
	for i := range list {
		d, err := m.delivery(&list[i], m.Timestamp)
		if err != nil {
			return nil, err
		}
		sent[i] = d
	}
	var group sync.WaitGroup
	for i := range sent {
		group.Go(func() {
			d := w.attempt(ctx, sent[i])
			if d.NextAt != 0 { // a test is not retried
				d.NextAt, d.FinishedAt = 0, d.AttemptedAt
			}
			sent[i] = d
		})
	}
	group.Wait()
	return sent, w.cfg.Store.RecordAttempts(ctx, sent)
}

// Run sends until ctx ends.
func (w *Sender) Run(ctx context.Context) error {
	defer w.client.CloseIdleConnections()
	var listener sync.WaitGroup
	listener.Go(func() { w.listen(ctx) })
	l := &loop{
		Sender: w, done: make(chan store.Delivery, maxAttempts), busy: map[int64]bool{}, hosts: map[string]int{}, projects: map[string]int{},
		nextChecks: map[muster.JobID]nextCheck{},
	}
	l.run(ctx)
	listener.Wait()
	return nil
}

// listen wakes the loop when a job has ended.
func (w *Sender) listen(ctx context.Context) {
	sub := w.cfg.Events.Subscribe("", eventbus.Scope{}, func(e *muster.Event) bool {
		return e.Type == muster.EventJob && muster.JobState(e.State).Final()
	})
	for {
		if _, err := sub.Next(ctx); err != nil {
			return
		}
		wake.Set(w.wake)
	}
}

type loop struct {
	*Sender

	done          chan store.Delivery
	attempts      sync.WaitGroup
	busy          map[int64]bool             // deliveries in progress, or in sent
	hosts         map[string]int             // attempts in progress by host
	projects      map[string]int             // attempts in progress by project
	sent          []store.Delivery           // results that are not written yet
	next          muster.Time                // when the next delivery is due, or 0
	nextChecks    map[muster.JobID]nextCheck // of idle jobs
	lastWaitCheck time.Time
	storeFailing  bool // an error of the store was logged
}

func (l *loop) run(ctx context.Context) {
	timer := time.After(0)
	var notBefore time.Time // the earliest start of the next round
	for {
		select {
		case <-ctx.Done():
			l.drain(ctx)
			return
		case d := <-l.done:
			l.attemptDone(d)
		case <-l.wake:
		case <-timer:
		}
		l.collect(ctx, notBefore)
		start := time.Now()
		err := l.round(ctx)
		l.logStoreErrors(ctx, err)
		notBefore = time.Now().Add(idleFactor * time.Since(start))
		wait := checkInterval
		switch {
		case err != nil:
			wait = storeRetryDelay
		case l.next != 0:
			wait = min(wait, max(0, time.Until(l.next.Std())))
		}
		timer = time.After(wait)
	}
}

// collect waits for more results, to write them together: for batchDelay, and at least until notBefore.
func (l *loop) collect(ctx context.Context, notBefore time.Time) {
	timeout := time.After(max(batchDelay, time.Until(notBefore)))
	for {
		select {
		case d := <-l.done:
			l.attemptDone(d)
		case <-l.wake:
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (l *loop) attemptDone(d store.Delivery) {
	decrement(l.hosts, d.Host)
	decrement(l.projects, d.Project)
	l.sent = append(l.sent, d)
}

func decrement(attempts map[string]int, key string) {
	if attempts[key]--; attempts[key] == 0 {
		delete(attempts, key)
	}
}

// logStoreErrors logs the first of several errors of the store, and their end.
func (l *loop) logStoreErrors(ctx context.Context, err error) {
	switch failing := err != nil && ctx.Err() == nil; {
	case failing && !l.storeFailing:
		l.cfg.Log.Warn("store unavailable, notifications are delayed", slog.Any("error", err))
		l.storeFailing = true
	case err == nil && l.storeFailing:
		l.cfg.Log.Info("store available again, sending notifications")
		l.storeFailing = false
	}
}

// round writes results, adds new deliveries, and starts due ones.
func (l *loop) round(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	if err := l.enqueueEnds(ctx); err != nil {
		return err
	}
	if time.Since(l.lastWaitCheck) >= checkInterval {
		if err := l.checkWaits(ctx); err != nil {
			return err
		}
		l.lastWaitCheck = time.Now()
	}
	return l.start(ctx)
}

func (l *loop) flush(ctx context.Context) error {
	if len(l.sent) == 0 {
		return nil
	}
	if err := l.cfg.Store.RecordAttempts(ctx, l.sent); err != nil {
		return err
	}
	for i := range l.sent {
		d := &l.sent[i]
		delete(l.busy, d.ID)
		if d.NextAt == 0 && !d.Delivered {
			l.log(ctx, slog.LevelWarn, "notification failed permanently", d.Job, slog.String("host", d.Host), slog.Int("attempts", d.Attempts), slog.String("why", d.Error))
		}
	}
	l.sent = l.sent[:0]
	return nil
}

// log logs a message about a job, with its trace if the job can be read, also during shutdown.
func (w *Sender) log(ctx context.Context, level slog.Level, text string, id muster.JobID, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("job", id.String()))
	if job, err := w.cfg.Store.Job(context.WithoutCancel(ctx), id); err == nil && job.UID != "" {
		attrs = append(attrs, slog.String("trace_id", traceparent.TraceText(job.UID)))
	}
	w.cfg.Log.LogAttrs(ctx, level, text, attrs...)
}

// start starts due attempts within the limits, first those of projects with few in progress. A host or a project
// at its limit does not delay others.
func (l *loop) start(ctx context.Context) error {
	if len(l.busy) >= maxAttempts {
		l.next = 0
		return nil
	}
	due, next, err := l.cfg.Store.Due(ctx, muster.NewTime(time.Now()), maxAttemptsPerHost, l.busy)
	if err != nil {
		return err
	}
	l.next = next
	mathrand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] }) //nolint:gosec // the order is no secret
	slices.SortStableFunc(due, func(a, b store.Delivery) int { return cmp.Compare(l.projects[a.Project], l.projects[b.Project]) })
	for i := range due {
		d := due[i]
		if len(l.busy) >= maxAttempts {
			return nil
		}
		if l.hosts[d.Host] >= maxAttemptsPerHost || l.projects[d.Project] >= maxAttemptsPerProject {
			continue
		}
		if len(l.busy) >= maxAttempts-reservedAttempts && l.projects[d.Project] > 0 {
			continue
		}
		l.busy[d.ID] = true
		l.hosts[d.Host]++
		l.projects[d.Project]++
		l.attempts.Go(func() { l.done <- l.attempt(ctx, d) }) // there is room for all
	}
	return nil
}

// drain waits for the attempts in progress, which end with ctx, and writes successful ones.
func (l *loop) drain(ctx context.Context) {
	l.attempts.Wait()
	close(l.done)
	for d := range l.done {
		if d.Delivered {
			l.sent = append(l.sent, d)
		}
	}
	if len(l.sent) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := l.cfg.Store.RecordAttempts(ctx, l.sent); err != nil {
		l.cfg.Log.Warn("cannot record sent notifications, they will be sent again", slog.Int("count", len(l.sent)), slog.Any("error", err))
	}
}
