package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
)

// maxPulls is how many images are pulled at the same time.
const maxPulls = 3

// ensureImage has the image that a task is to run in here, as its policy says, and returns it. Its errors
// are TaskErrors.
func (c *Containers) ensureImage(ctx context.Context, ref, policy string, logLine, step func(string)) (*docker.Image, error) {
	if policy != muster.PullAlways {
		img, err := c.inspectImage(ctx, ref)
		switch {
		case err == nil:
			return img, nil
		case !errors.Is(err, docker.ErrNotFound):
			return nil, c.taskError(ctx, err)
		case policy == muster.PullNever:
			return nil, run.Failf(muster.ImageMissing, "this worker does not have the image %s, and container.pull is never: pull it there, or write container.pull: missing", familiarRef(ref))
		}
	}
	begun := time.Now()
	img, err := c.puller.wait(ctx, ref, logLine, step)
	if err != nil {
		return nil, c.taskError(ctx, err)
	}
	if took := time.Since(begun); took > 100*time.Millisecond {
		logLine(fmt.Sprintf("pulled the image %s (%s) in %s", familiarRef(ref), muster.Size(img.Size), took.Round(100*time.Millisecond)))
	}
	return img, nil
}

// inspectImage returns an image that is here.
func (c *Containers) inspectImage(ctx context.Context, ref string) (*docker.Image, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, errTimeout)
	defer cancel()
	return c.cfg.Engine.Image(ctx, ref)
}

// errTimeout is why what takes moments was given up.
var errTimeout = fmt.Errorf("the container engine did not answer in time: %w", docker.ErrUnreachable)

// pullFunc brings an image here. It calls moved as it goes on, and warn for what those who wait should know.
type pullFunc func(ctx context.Context, ref string, onProgress func(docker.PullProgress), warn func(string)) (*docker.Image, error)

// puller brings each image once for all who wait for it.
type puller struct {
	pull     pullFunc
	timeouts *timeouts
	slots    chan struct{}

	mu       sync.Mutex
	inFlight map[string]*pullCall
	absent   map[string]missingImage
}

// pullCall is one pull.
type pullCall struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at the end, after which img, err and warned are set

	waiters  int // who want it
	progress docker.PullProgress
	started  bool // it has a place

	img     *docker.Image
	err     error
	warning string // what those who wait should know
}

// missingImage is what is known of an image that is nowhere.
type missingImage struct {
	err   error
	until time.Time
}

func newPuller(w *timeouts, pull pullFunc) *puller {
	return &puller{pull: pull, timeouts: w, slots: make(chan struct{}, maxPulls), inFlight: map[string]*pullCall{}, absent: map[string]missingImage{}}
}

// errAbandoned is why a pull ends that nobody waits for any more.
var errAbandoned = errors.New("nobody waits for it any more")

// wait returns an image once it is pulled. step tells how far it is, about once a second, and say what is
// to be known of it at its end.
func (p *puller) wait(ctx context.Context, ref string, logLine, step func(string)) (*docker.Image, error) {
	f, err := p.join(ctx, ref)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := ""; ; {
		if now := p.describe(ref, f); now != last {
			last = now
			step(now)
		}
		select {
		case <-f.done:
			if f.warning != "" {
				logLine(f.warning)
			}
			return f.img, f.err
		case <-tick.C:
		case <-ctx.Done():
			p.leave(ref, f)
			return nil, context.Cause(ctx)
		}
	}
}

// join returns the pull of an image, begun if there is none.
func (p *puller) join(ctx context.Context, ref string) (*pullCall, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.absent[ref]; ok {
		if time.Now().Before(known.until) {
			return nil, known.err
		}
		delete(p.absent, ref)
	}
	f := p.inFlight[ref]
	if f == nil {
		f = &pullCall{done: make(chan struct{})}
		var pullCtx context.Context
		pullCtx, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx)) // it is not of the first who wants it
		p.inFlight[ref] = f
		go p.run(pullCtx, ref, f) // joined by the last who waits
	}
	f.waiters++
	return f, nil
}

// leave says that one less waits for a pull. The last one stays until it has ended.
func (p *puller) leave(ref string, f *pullCall) {
	p.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last && p.inFlight[ref] == f {
		delete(p.inFlight, ref) // who comes now wants another one
	}
	p.mu.Unlock()
	if last {
		f.cancel(errAbandoned)
		<-f.done
	}
}

// run pulls an image and tells all who wait.
func (p *puller) run(ctx context.Context, ref string, f *pullCall) {
	defer close(f.done)
	defer f.cancel(nil)
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		f.err = context.Cause(ctx)
		return
	}
	p.setProgress(f, docker.PullProgress{})
	f.img, f.err = p.pull(ctx, ref, func(progress docker.PullProgress) { p.setProgress(f, progress) }, func(text string) { f.warning = text })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight[ref] == f {
		delete(p.inFlight, ref)
	}
	if errors.Is(f.err, docker.ErrNotFound) || errors.Is(f.err, docker.ErrDenied) {
		p.absent[ref] = missingImage{err: f.err, until: time.Now().Add(p.timeouts.absentTTL)}
	}
	for other, known := range p.absent {
		if time.Now().After(known.until) {
			delete(p.absent, other)
		}
	}
}

func (p *puller) setProgress(f *pullCall, progress docker.PullProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.progress, f.started = progress, true
}

// describe is the step of who waits for a pull.
func (p *puller) describe(ref string, f *pullCall) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !f.started:
		return "waiting for other pulls, then pulling " + familiarRef(ref)
	case f.progress.Total == 0:
		return "pulling " + familiarRef(ref)
	case f.progress.Unpacking:
		return fmt.Sprintf("unpacking %s, %s", familiarRef(ref), muster.Size(f.progress.Total))
	}
	return fmt.Sprintf("pulling %s, %d%% of %s", familiarRef(ref), min(100, 100*f.progress.Done/f.progress.Total), muster.Size(f.progress.Total))
}

// pull brings an image here, again where it stalls or breaks, and notes it in the ledger if it was not here before. Where
// credentials cannot be used it does without, as Docker's own tools do: most images need none.
func (c *Containers) pull(ctx context.Context, ref string, onProgress func(docker.PullProgress), warn func(string)) (*docker.Image, error) {
	before, err := c.listImages(ctx)
	if err != nil {
		return nil, err
	}
	_, nameErr := c.inspectImage(ctx, ref) // nil where the name was here already
	creds, authErr := c.auth.credentials(ctx, ref)
	if authErr != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("an image is pulled without credentials", imageAttrs(ref, authErr)...)
		warn(fmt.Sprintf("pulled %s without credentials: %v", familiarRef(ref), authErr))
	}
	for attempt := 0; ; attempt++ {
		err = c.pullOnce(ctx, ref, creds, onProgress)
		if err == nil || ctx.Err() != nil || attempt == len(c.timeouts.retryDelays) || !isRetryable(err) {
			break
		}
		c.cfg.Log.Warn("an image cannot be pulled, trying again", imageAttrs(ref, err)...)
		select {
		case <-time.After(c.timeouts.retryDelays[attempt]):
		case <-ctx.Done():
		}
	}
	if authErr != nil && (errors.Is(err, docker.ErrNotFound) || errors.Is(err, docker.ErrDenied)) {
		err = fmt.Errorf("%w; and %w", err, authErr)
	}
	if err != nil {
		return nil, err
	}
	img, err := c.inspectImage(ctx, ref)
	if err != nil {
		return nil, err
	}
	if isNew := !slices.Contains(before, img.ID); isNew || nameErr != nil {
		c.usage.add(img.ID, ref, muster.Size(img.Size), isNew)
		c.checkSoon() // it may be over the budget
	}
	return img, nil
}

// listImages lists the images that are here.
func (c *Containers) listImages(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, errTimeout)
	defer cancel()
	return c.cfg.Engine.Images(ctx)
}

// isRetryable says whether a pull that failed may do better.
func isRetryable(err error) bool {
	for _, final := range []error{docker.ErrNotFound, docker.ErrDenied, docker.ErrUnreachable, docker.ErrDiskFull} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

// errStalled is why a pull is given up that does not go on.
var (
	errStalled = errors.New("nothing came for too long")
	errTooSlow = errors.New("it would keep others waiting")
)

// rateWindow is how a pull goes on.
type rateWindow struct {
	since time.Time // since then only what is done has come; zero at the start
	done  int64
}

// tooSlow takes how far the pull has come, and says whether it brought less than it must in the time it had.
// Nothing counts while no bytes are awaited.
func (p *rateWindow) tooSlow(progress docker.PullProgress, now time.Time, t *timeouts) bool {
	counts := !p.since.IsZero() && progress.Total > 0 && !progress.Unpacking
	if counts && now.Sub(p.since) < t.slowWindow {
		return false
	}
	slow := counts && float64(progress.Done-p.done) < float64(t.minRate)*now.Sub(p.since).Seconds()
	*p = rateWindow{since: now, done: progress.Done}
	return slow
}

func (c *Containers) pullOnce(ctx context.Context, ref string, creds *docker.Credentials, onProgress func(docker.PullProgress)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(c.timeouts.stall, func() { cancel(errStalled) })
	defer stalled.Stop()
	var window rateWindow
	err := c.cfg.Engine.Pull(ctx, ref, creds, func(progress docker.PullProgress) {
		if window.tooSlow(progress, time.Now(), &c.timeouts) {
			cancel(errTooSlow)
		}
		timeout := c.timeouts.stall
		if progress.Unpacking {
			timeout = c.timeouts.unpack
		}
		stalled.Reset(timeout)
		onProgress(progress)
	})
	if errors.Is(err, errStalled) {
		return fmt.Errorf("the image %s cannot be pulled: nothing came for %s: %w", ref, c.timeouts.stall, errStalled)
	}
	if errors.Is(err, errTooSlow) {
		return fmt.Errorf("the image %s cannot be pulled: less than %s a second came for %s: %w", ref, muster.Size(c.timeouts.minRate), c.timeouts.slowWindow, errTooSlow)
	}
	return err
}

// taskError tells why an image is not here, as a TaskError.
func (c *Containers) taskError(ctx context.Context, err error) error {
	if t, ok := errors.AsType[*run.TaskError](err); ok {
		return t
	}
	if ctx.Err() != nil {
		return run.Failf(muster.WorkerInternal, "the task was stopped: %w", context.Cause(ctx))
	}
	msg := strings.TrimSuffix(err.Error(), ".")
	switch {
	case errors.Is(err, docker.ErrUnreachable):
		c.checkSoon()
		return run.Failf(muster.EngineFailed, "the worker's container engine failed: %w", err)
	case errors.Is(err, docker.ErrDiskFull):
		return run.Failf(muster.DiskFull, "%s: make space on the disk of the worker's container engine, or give the worker a smaller --image-disk", msg)
	case errors.Is(err, docker.ErrDenied):
		return run.Failf(muster.ImageMissing, "%s: if the name is right, log in on the worker (docker login), or give it --registry-config", msg)
	case errors.Is(err, docker.ErrNotFound):
		return run.Failf(muster.ImageMissing, "%s: check its name and tag, and if it is private log in on the worker (docker login)", msg)
	case errors.Is(err, docker.ErrRegistryUnreachable):
		return run.Failf(muster.ImagePull, "%s: check that the worker reaches the registry, and by https unless its engine lists it as insecure", msg)
	}
	return run.Failf(muster.ImagePull, "%w", err)
}
