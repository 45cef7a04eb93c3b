package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
)

// maxPulls is the number of concurrent pulls.
const maxPulls = 3

// ensureImage returns a task's image and pulls it if the policy requires it, or if it is private and the task has not shown that it may have
// it: see privateImages. Its errors are TaskErrors.
func (c *Containers) ensureImage(ctx context.Context, ref, policy string, from *access, logLine, step func(string)) (*docker.Image, error) {
	if policy != muster.PullAlways {
		img, err := c.inspectImage(ctx, ref)
		switch {
		case err == nil && c.private.allows(img, from):
			return img, nil
		case err == nil && policy == muster.PullNever:
			return nil, run.Failf(muster.ImageMissing, "the image %s on this worker was pulled with credentials of a task, and container.pull: never does not let the registry say whether this task may have it: set container.pull: missing", familiarRef(ref))
		case err == nil: // the registry decides
		case !errors.Is(err, docker.ErrNotFound):
			return nil, c.taskError(ctx, err, from)
		case policy == muster.PullNever:
			return nil, run.Failf(muster.ImageMissing, "this worker does not have the image %s, and container.pull is never: pull it there, or set container.pull: missing", familiarRef(ref))
		}
	}
	begun := time.Now()
	img, err := c.puller.wait(ctx, ref, from, logLine, step)
	if err != nil {
		return nil, c.taskError(ctx, err, from)
	}
	if took := time.Since(begun); took > 100*time.Millisecond {
		logLine(fmt.Sprintf("pulled the image %s (%s) in %s", familiarRef(ref), muster.Size(img.Size), took.Round(100*time.Millisecond)))
	}
	return img, nil
}

func (c *Containers) inspectImage(ctx context.Context, ref string) (*docker.Image, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, errTimeout)
	defer cancel()
	return c.cfg.Engine.Image(ctx, ref)
}

var errTimeout = fmt.Errorf("the container engine did not answer in time: %w", docker.ErrUnreachable)

// pullFunc pulls an image. It calls onProgress at each progress, and warn at most once, for the logs of all waiting tasks.
type pullFunc func(ctx context.Context, ref string, from *access, onProgress func(docker.PullProgress), warn func(string)) (*docker.Image, error)

// pullKey identifies a pull: tasks with other credentials do not share it, nor its failure.
type pullKey struct{ ref, access string }

// puller shares each pull among all tasks that wait for the image with the same credentials.
type puller struct {
	pull     pullFunc
	timeouts *timeouts
	slots    chan struct{}

	mu       sync.Mutex
	inFlight map[pullKey]*pullCall
	absent   map[pullKey]missingImage
}

type pullCall struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at the end, when img, err and warning are set

	waiters  int
	progress docker.PullProgress
	started  bool // it has a slot

	img     *docker.Image
	err     error
	warning string // for the logs of all waiting tasks
}

type missingImage struct {
	err   error
	until time.Time
}

func newPuller(w *timeouts, pull pullFunc) *puller {
	return &puller{pull: pull, timeouts: w, slots: make(chan struct{}, maxPulls), inFlight: map[pullKey]*pullCall{}, absent: map[pullKey]missingImage{}}
}

// errAbandoned is the cause that cancels a pull when the last waiting task leaves.
var errAbandoned = errors.New("no task waits for it any more")

// wait pulls an image or joins a running pull. It calls step with the progress, at most once a second, and logLine with a warning.
func (p *puller) wait(ctx context.Context, ref string, from *access, logLine, step func(string)) (*docker.Image, error) {
	key := pullKey{ref, from.id}
	f, err := p.join(ctx, key, from)
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
			p.leave(key, f)
			return nil, context.Cause(ctx)
		}
	}
}

// join returns the running pull of an image, or starts one.
func (p *puller) join(ctx context.Context, key pullKey, from *access) (*pullCall, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.absent[key]; ok {
		if time.Now().Before(known.until) {
			return nil, known.err
		}
		delete(p.absent, key)
	}
	f := p.inFlight[key]
	if f == nil {
		f = &pullCall{done: make(chan struct{})}
		var pullCtx context.Context
		pullCtx, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx)) // independent of the task that started it
		p.inFlight[key] = f
		go p.run(pullCtx, key, from, f) // joined by the last waiter, in leave
	}
	f.waiters++
	return f, nil
}

// leave ends one wait. The last waiter cancels the pull and waits for its end.
func (p *puller) leave(key pullKey, f *pullCall) {
	p.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last && p.inFlight[key] == f {
		delete(p.inFlight, key) // a new waiter starts another pull
	}
	p.mu.Unlock()
	if last {
		f.cancel(errAbandoned)
		<-f.done
	}
}

func (p *puller) run(ctx context.Context, key pullKey, from *access, f *pullCall) {
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
	f.img, f.err = p.pull(ctx, key.ref, from, func(progress docker.PullProgress) { p.setProgress(f, progress) }, func(text string) { f.warning = text })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight[key] == f {
		delete(p.inFlight, key)
	}
	if errors.Is(f.err, docker.ErrNotFound) || errors.Is(f.err, docker.ErrDenied) {
		p.absent[key] = missingImage{err: f.err, until: time.Now().Add(p.timeouts.absentTTL)}
	}
	maps.DeleteFunc(p.absent, func(_ pullKey, known missingImage) bool { return time.Now().After(known.until) })
}

func (p *puller) setProgress(f *pullCall, progress docker.PullProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.progress, f.started = progress, true
}

// describe returns the step for tasks that wait for a pull.
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

// pull pulls an image, retries if it stalls or breaks, and records it if it is new. If the worker's credentials are unusable it pulls without
// them, like Docker's own tools: most images need none. It does not fall back from the credentials of a task.
func (c *Containers) pull(ctx context.Context, ref string, from *access, onProgress func(docker.PullProgress), warn func(string)) (img *docker.Image, err error) {
	before, err := c.listImages(ctx)
	if err != nil {
		return nil, err
	}
	_, nameErr := c.inspectImage(ctx, ref) // nil if the name existed already
	creds, authErr := from.creds, error(nil)
	if creds == nil {
		creds, authErr = c.auth.credentials(ctx, ref)
	} else {
		if err = c.private.begin(ref, before); err != nil {
			return nil, err
		}
		defer func() { c.private.end(ref, err) }()
	}
	if authErr != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("pulling an image without credentials", imageAttrs(ref, authErr)...)
		warn(fmt.Sprintf("pulled %s without credentials: %v", familiarRef(ref), authErr))
	}
	for attempt := 0; ; attempt++ {
		err = c.pullOnce(ctx, ref, creds, onProgress)
		if err == nil || ctx.Err() != nil || attempt == len(c.timeouts.retryDelays) || !isRetryable(err) {
			break
		}
		c.cfg.Log.Warn("pulling an image failed, retrying", imageAttrs(ref, err)...)
		_ = backoff.Sleep(ctx, c.timeouts.retryDelays[attempt])
	}
	if authErr != nil && (errors.Is(err, docker.ErrNotFound) || errors.Is(err, docker.ErrDenied)) {
		err = fmt.Errorf("%w; and %w", err, authErr)
	}
	if err != nil {
		return nil, err
	}
	if img, err = c.inspectImage(ctx, ref); err != nil {
		return nil, err
	}
	if !c.private.allows(img, from) {
		// Docker pulls a digest that it has without a request.
		if err = c.cfg.Engine.CheckAccess(ctx, ref, creds); err != nil {
			c.removeNewNames(context.WithoutCancel(ctx), ref, img.ID, before)
			return nil, err
		}
	}
	c.private.pulled(img, from)
	if isNew := !slices.ContainsFunc(before, func(old docker.ImageSummary) bool { return old.ID == img.ID }); isNew || nameErr != nil {
		c.usage.add(img.ID, ref, muster.Size(img.Size), isNew)
		c.checkSoon() // the images may exceed the budget
	}
	return img, nil
}

// removeNewNames removes the names that a pull of ref gave an image and that no image had before, because the registry did not let the task have it:
// with such a name, the image could outlive those of the repository by which it is private. If one remains, its repository is private.
func (c *Containers) removeNewNames(ctx context.Context, ref, id string, before []docker.ImageSummary) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, errTimeout)
	defer cancel()
	after, err := c.listImages(ctx)
	for _, name := range newNames(ref, id, before, after) {
		if removeErr := c.cfg.Engine.RemoveImage(ctx, name); removeErr != nil && !errors.Is(removeErr, docker.ErrNotFound) {
			err = errors.Join(err, removeErr)
		}
	}
	if err == nil {
		return
	}
	c.cfg.Log.Warn("removing the name that a refused pull gave a private image failed: the images of its repository are private", imageAttrs(ref, err)...)
	if err := c.private.begin(ref, before); err != nil {
		c.cfg.Log.Warn("recording a private image failed", imageAttrs(ref, err)...)
		return
	}
	c.private.end(ref, nil)
}

// newNames returns the names of an image in the repository of ref that no image had before.
func newNames(ref, id string, before, after []docker.ImageSummary) (added []string) {
	repo, _, _ := muster.ParseImage(ref)
	for i := range after {
		if after[i].ID != id {
			continue
		}
		for _, name := range after[i].Names {
			had := func(s docker.ImageSummary) bool { return slices.Contains(s.Names, name) }
			if repositories([]string{name})[repo] && !slices.ContainsFunc(before, had) {
				added = append(added, name)
			}
		}
	}
	return added
}

func (c *Containers) listImages(ctx context.Context) ([]docker.ImageSummary, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeouts.operation, errTimeout)
	defer cancel()
	return c.cfg.Engine.Images(ctx)
}

// isRetryable reports whether a failed pull may succeed when it is repeated.
func isRetryable(err error) bool {
	final := []error{docker.ErrNotFound, docker.ErrDenied, docker.ErrUnreachable, docker.ErrDiskFull}
	return !slices.ContainsFunc(final, func(kind error) bool { return errors.Is(err, kind) })
}

// Causes that cancel a pull.
var (
	errStalled = errors.New("no data received for too long")
	errTooSlow = errors.New("too slow: other pulls wait")
)

type rateWindow struct {
	since time.Time // start of the window; zero before the first progress
	done  int64     // bytes at the start of the window
}

// tooSlow updates the window and reports whether the pull was slower than minRate in a complete one. Time without expected bytes does not
// count.
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
		return fmt.Errorf("the image %s cannot be pulled: no data received for %s: %w", ref, c.timeouts.stall, errStalled)
	}
	if errors.Is(err, errTooSlow) {
		return fmt.Errorf("the image %s cannot be pulled: less than %s per second for %s: %w", ref, muster.Size(c.timeouts.minRate), c.timeouts.slowWindow, errTooSlow)
	}
	return err
}

// taskError converts the error of a pull to a TaskError.
func (c *Containers) taskError(ctx context.Context, err error, from *access) error {
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
		return run.Failf(muster.DiskFull, "%s: free space on the disk of the worker's container engine, or set a smaller --image-disk on the worker", msg)
	case from.creds != nil && (errors.Is(err, docker.ErrDenied) || errors.Is(err, docker.ErrNotFound)):
		return run.Failf(muster.ImageMissing, "%s: check its name and tag, and whether the credentials in the secret %s may pull it", msg, from.secret)
	case errors.Is(err, docker.ErrDenied):
		return run.Failf(muster.ImageMissing, "%s: if the name is right, name a secret with the registry's credentials (registry: %s), log in on the worker (docker login), or set its --registry-config", msg, from.host)
	case errors.Is(err, docker.ErrNotFound):
		return run.Failf(muster.ImageMissing, "%s: check its name and tag; if it is private, name a secret with the registry's credentials (registry: %s), or log in on the worker (docker login)", msg, from.host)
	case errors.Is(err, docker.ErrRegistryUnreachable):
		return run.Failf(muster.ImagePull, "%s: check that the worker can reach the registry, with https unless its engine lists it as insecure", msg)
	}
	return run.Failf(muster.ImagePull, "%w", err)
}
