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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/notify"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/traceparent"
)

const (
	atOnce        = 32 // attempts
	atOnceProject = 16 // attempts for receivers of one project
	reserved      = 8  // of all attempts: for projects that have none in progress
	atOnceHost    = 4  // attempts for one host and port
	page          = 256
	lookEach      = 10 * time.Second       // for jobs that wait long, and for what an event was missed of
	gather        = 50 * time.Millisecond  // what comes within is written together
	afterError    = 2 * time.Second        // of the store
	lastWords     = 5 * time.Second        // for writing what was sent when the server stops
	leisure       = 4                      // rounds take a fifth of the time at most
	whyWithin     = 500 * time.Millisecond // for asking why a job waits
)

// Store is what is needed of the store.
type Store interface {
	store.Notices
	store.Deliveries
	Job(ctx context.Context, id muster.JobID) (muster.Job, error)
	Tasks(ctx context.Context, q store.TaskQuery) ([]muster.Task, string, error)
}

// Config is what Webhooks are made of.
type Config struct {
	Store  Store
	Events *notify.Bus
	Why    func(context.Context, muster.TaskID) (string, error) // says why a task waits
	// KeyFile has the key that seals, and that signs if Secret is "". It is made at the first start.
	KeyFile string
	Secret  string         // signs
	Allow   []netip.Prefix // networks beside the public ones
	URL     string         // of the dashboard, for links; "" for none
	// Version is the server's.
	Version string
	Log     *slog.Logger
}

// Webhooks sends what there is to send while Run runs. Its other methods may be called at any time.
type Webhooks struct {
	cfg    Config
	keys   keys
	client *http.Client
	open   bool // every address may be requested
	wake   chan struct{}

	mu    sync.Mutex
	later map[muster.JobID]visit // jobs that wait
}

// New reads the server's key, or makes it at the first start.
func New(cfg Config) (*Webhooks, error) {
	stored, err := loadKey(cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	cfg.URL = strings.TrimSuffix(cfg.URL, "/")
	w := &Webhooks{cfg: cfg, wake: make(chan struct{}, 1), later: map[muster.JobID]visit{}}
	w.client, w.open = newClient(cfg.Allow)
	w.keys, err = newKeys(stored, cfg.Secret)
	return w, err
}

// Secret returns the secret by which the notifications of a project are signed that have none of their own.
func (w *Webhooks) Secret(project string) (string, error) { return w.keys.projectSecret(project) }

// Seal returns notifications with their URLs and secrets sealed. It returns an Invalid error for one that was sealed elsewhere.
func (w *Webhooks) Seal(list []muster.Notify) ([]muster.Notify, error) {
	sealed, err := w.Open(list)
	if err != nil {
		return nil, err
	}
	for i := range sealed {
		n := &sealed[i]
		if n.Secret != "" {
			secret, err := w.keys.open(n.Secret, n.URL)
			if err != nil {
				return nil, err
			}
			n.Secret = w.keys.seal(secret, n.URL)
		}
		n.URL = w.keys.sealURL(n.URL)
	}
	return sealed, nil
}

// Open returns notifications with their URLs as they were written. Their secrets stay sealed.
func (w *Webhooks) Open(list []muster.Notify) ([]muster.Notify, error) {
	open := slices.Clone(list)
	for i := range open {
		var err error
		if open[i].URL, err = w.keys.openURL(open[i].URL); err != nil {
			return nil, err
		}
	}
	return open, nil
}

// Changed says that the notifications of a project were changed.
func (w *Webhooks) Changed() {
	w.mu.Lock()
	clear(w.later)
	w.mu.Unlock()
	w.rouse()
}

// Test sends a test to each of some notifications, once, and logs that.
func (w *Webhooks) Test(ctx context.Context, project string, list []muster.Notify) ([]store.Delivery, error) {
	list, err := w.Seal(list)
	if err != nil {
		return nil, err
	}
	m := testOf(project, muster.TimeOf(time.Now()), w.cfg.URL)
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
			if d.NextAt != 0 { // a test is not repeated
				d.NextAt, d.FinishedAt = 0, d.TriedAt
			}
			sent[i] = d
		})
	}
	group.Wait()
	return sent, w.cfg.Store.Attempted(ctx, sent)
}

func (w *Webhooks) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run sends until ctx ends.
func (w *Webhooks) Run(ctx context.Context) error {
	defer w.client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		w.listen(ctx)
		return nil
	})
	group.Go(func() error {
		l := &loop{Webhooks: w, done: make(chan store.Delivery, atOnce), busy: map[int64]bool{}, hosts: map[string]int{}, projects: map[string]int{}}
		l.run(ctx)
		return nil
	})
	return group.Wait()
}

// listen wakes the loop when a job has ended.
func (w *Webhooks) listen(ctx context.Context) {
	sub := w.cfg.Events.Subscribe("", notify.Scope{}, func(e *muster.Event) bool {
		return e.Type == muster.EventJob && muster.JobState(e.State).Final()
	})
	for {
		if _, err := sub.Next(ctx); err != nil {
			return
		}
		w.rouse()
	}
}

// loop is what Run's own goroutine knows.
type loop struct {
	*Webhooks

	done     chan store.Delivery
	going    sync.WaitGroup
	busy     map[int64]bool // deliveries that are sent, or were and are not written yet
	hosts    map[string]int // attempts in progress
	projects map[string]int // the same
	sent     []store.Delivery
	next     muster.Time // when the next delivery is due; 0 for none
	seen     time.Time   // when the jobs that wait were looked at
	sick     bool        // the store failed, and that was logged
}

func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var rest time.Time // no round begins before
	for {
		select {
		case <-ctx.Done():
			l.end(ctx)
			return
		case d := <-l.done:
			l.take(d)
		case <-l.wake:
		case <-timer.C:
		}
		l.gather(ctx, rest)
		began := time.Now()
		err := l.round(ctx)
		l.report(ctx, err)
		rest = time.Now().Add(leisure * time.Since(began))
		wait := lookEach
		switch {
		case err != nil:
			wait = afterError
		case l.next != 0:
			wait = min(wait, max(0, time.Until(l.next.Std())))
		}
		timer.Reset(wait)
	}
}

// gather waits a moment for more, so that much is written at once, and at least until a time.
func (l *loop) gather(ctx context.Context, least time.Time) {
	timer := time.NewTimer(max(gather, time.Until(least)))
	defer timer.Stop()
	for {
		select {
		case d := <-l.done:
			l.take(d)
		case <-l.wake:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// take takes a delivery that was sent.
func (l *loop) take(d store.Delivery) {
	release(l.hosts, d.Host)
	release(l.projects, d.Project)
	l.sent = append(l.sent, d)
}

// release counts an attempt less.
func release(attempts map[string]int, of string) {
	if attempts[of]--; attempts[of] == 0 {
		delete(attempts, of)
	}
}

// report logs trouble with the store once, and its end.
func (l *loop) report(ctx context.Context, err error) {
	switch sick := err != nil && ctx.Err() == nil; {
	case sick && !l.sick:
		l.cfg.Log.Warn("notifications wait for the store", slog.Any("error", err))
		l.sick = true
	case err == nil && l.sick:
		l.cfg.Log.Info("the store takes notifications again")
		l.sick = false
	}
}

// round writes what was sent, takes what is new, and starts what is due.
func (l *loop) round(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	if err := l.expand(ctx); err != nil {
		return err
	}
	if time.Since(l.seen) >= lookEach {
		if err := l.watch(ctx); err != nil {
			return err
		}
		l.seen = time.Now()
	}
	return l.start(ctx)
}

func (l *loop) flush(ctx context.Context) error {
	if len(l.sent) == 0 {
		return nil
	}
	if err := l.cfg.Store.Attempted(ctx, l.sent); err != nil {
		return err
	}
	for i := range l.sent {
		d := &l.sent[i]
		delete(l.busy, d.ID)
		if d.NextAt == 0 && !d.Delivered {
			l.log(ctx, slog.LevelWarn, "a notification was given up", d.Job, slog.String("host", d.Host), slog.Int("attempts", d.Attempts), slog.String("why", d.Error))
		}
	}
	l.sent = l.sent[:0]
	return nil
}

// log logs something about a job, with its trace if the job can be read, also while the server shuts down.
func (w *Webhooks) log(ctx context.Context, level slog.Level, text string, id muster.JobID, what ...slog.Attr) {
	what = append(what, slog.String("job", id.String()))
	if job, err := w.cfg.Store.Job(context.WithoutCancel(ctx), id); err == nil && job.UID != "" {
		what = append(what, slog.String("trace_id", traceparent.TraceText(job.UID)))
	}
	w.cfg.Log.LogAttrs(ctx, level, text, what...)
}

// start begins the attempts that are due, as many as may be made at once, first those of projects with few in progress. A host or a project that
// is at its limit, or slow, delays no other.
func (l *loop) start(ctx context.Context) error {
	if len(l.busy) >= atOnce {
		l.next = 0
		return nil
	}
	due, next, err := l.cfg.Store.Due(ctx, muster.TimeOf(time.Now()), atOnceHost, l.busy)
	if err != nil {
		return err
	}
	l.next = next
	mathrand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] }) //nolint:gosec // the order is no secret
	slices.SortStableFunc(due, func(a, b store.Delivery) int { return cmp.Compare(l.projects[a.Project], l.projects[b.Project]) })
	for i := range due {
		d := due[i]
		if len(l.busy) >= atOnce {
			return nil
		}
		if l.hosts[d.Host] >= atOnceHost || l.projects[d.Project] >= atOnceProject {
			continue
		}
		if len(l.busy) >= atOnce-reserved && l.projects[d.Project] > 0 {
			continue
		}
		l.busy[d.ID] = true
		l.hosts[d.Host]++
		l.projects[d.Project]++
		l.going.Go(func() { l.done <- l.attempt(ctx, d) }) // there is room for all
	}
	return nil
}

// end waits for the attempts in progress, which end with ctx, and writes those that got through.
func (l *loop) end(ctx context.Context) {
	l.going.Wait()
	close(l.done)
	for d := range l.done {
		if d.Delivered {
			l.sent = append(l.sent, d)
		}
	}
	if len(l.sent) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := l.cfg.Store.Attempted(ctx, l.sent); err != nil {
		l.cfg.Log.Warn("notifications that were sent are sent again after the next start", slog.Int("count", len(l.sent)), slog.Any("error", err))
	}
}
