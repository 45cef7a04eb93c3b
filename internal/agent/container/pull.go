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

// mostPulls is how many images are pulled at the same time.
const mostPulls = 3

// bring has the image that a task is to run in here, as its policy says, and returns it. Its errors
// are TaskErrors.
func (c *Containers) bring(ctx context.Context, ref, policy string, say, step func(string)) (*docker.Image, error) {
	if policy != muster.PullAlways {
		img, err := c.look(ctx, ref)
		switch {
		case err == nil:
			return img, nil
		case !errors.Is(err, docker.ErrMissing):
			return nil, c.failure(ctx, err)
		case policy == muster.PullNever:
			return nil, run.Failf(muster.ImageMissing, "this worker does not have the image %s, and container.pull is never: pull it there, or write container.pull: missing", short(ref))
		}
	}
	begun := time.Now()
	img, err := c.pulls.wait(ctx, ref, say, step)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	if took := time.Since(begun); took > 100*time.Millisecond {
		say(fmt.Sprintf("pulled the image %s (%s) in %s", short(ref), muster.Size(img.Size), took.Round(100*time.Millisecond)))
	}
	return img, nil
}

// look returns an image that is here.
func (c *Containers) look(ctx context.Context, ref string) (*docker.Image, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.work, errSlow)
	defer cancel()
	return c.cfg.Engine.Image(ctx, ref)
}

// errSlow is why what takes moments was given up.
var errSlow = fmt.Errorf("the container engine did not answer in time: %w", docker.ErrDown)

// pull brings an image here. It calls moved as it goes on, and warn for what those who wait should know.
type pull func(ctx context.Context, ref string, moved func(docker.Pulled), warn func(string)) (*docker.Image, error)

// pulls brings each image once for all who wait for it.
type pulls struct {
	pull   pull
	waits  *waits
	places chan struct{}

	mu     sync.Mutex
	going  map[string]*flight
	absent map[string]absence
}

// flight is one pull.
type flight struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at the end, after which img, err and warned are set

	waiting int // who want it
	at      docker.Pulled
	began   bool // it has a place

	img    *docker.Image
	err    error
	warned string // what those who wait should know
}

// absence is what is known of an image that is nowhere.
type absence struct {
	err   error
	until time.Time
}

func newPulls(w *waits, pull pull) *pulls {
	return &pulls{pull: pull, waits: w, places: make(chan struct{}, mostPulls), going: map[string]*flight{}, absent: map[string]absence{}}
}

// errUnwanted is why a pull ends that nobody waits for any more.
var errUnwanted = errors.New("nobody waits for it any more")

// wait returns an image once it is pulled. step tells how far it is, about once a second, and say what is
// to be known of it at its end.
func (p *pulls) wait(ctx context.Context, ref string, say, step func(string)) (*docker.Image, error) {
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
			if f.warned != "" {
				say(f.warned)
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
func (p *pulls) join(ctx context.Context, ref string) (*flight, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.absent[ref]; ok {
		if time.Now().Before(known.until) {
			return nil, known.err
		}
		delete(p.absent, ref)
	}
	f := p.going[ref]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		var own context.Context
		own, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx)) // it is not of the first who wants it
		p.going[ref] = f
		go p.carry(own, ref, f) // joined by the last who waits
	}
	f.waiting++
	return f, nil
}

// leave says that one less waits for a pull. The last one stays until it has ended.
func (p *pulls) leave(ref string, f *flight) {
	p.mu.Lock()
	f.waiting--
	last := f.waiting == 0
	if last && p.going[ref] == f {
		delete(p.going, ref) // who comes now wants another one
	}
	p.mu.Unlock()
	if last {
		f.cancel(errUnwanted)
		<-f.done
	}
}

// carry pulls an image and tells all who wait.
func (p *pulls) carry(ctx context.Context, ref string, f *flight) {
	defer close(f.done)
	defer f.cancel(nil)
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		f.err = context.Cause(ctx)
		return
	}
	p.heed(f, docker.Pulled{})
	f.img, f.err = p.pull(ctx, ref, func(at docker.Pulled) { p.heed(f, at) }, func(text string) { f.warned = text })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.going[ref] == f {
		delete(p.going, ref)
	}
	if errors.Is(f.err, docker.ErrMissing) || errors.Is(f.err, docker.ErrDenied) {
		p.absent[ref] = absence{err: f.err, until: time.Now().Add(p.waits.absent)}
	}
	for other, known := range p.absent {
		if time.Now().After(known.until) {
			delete(p.absent, other)
		}
	}
}

func (p *pulls) heed(f *flight, at docker.Pulled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.at, f.began = at, true
}

// describe is the step of who waits for a pull.
func (p *pulls) describe(ref string, f *flight) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !f.began:
		return "waiting for other pulls, then pulling " + short(ref)
	case f.at.Total == 0:
		return "pulling " + short(ref)
	case f.at.Busy:
		return fmt.Sprintf("unpacking %s, %s", short(ref), muster.Size(f.at.Total))
	}
	return fmt.Sprintf("pulling %s, %d%% of %s", short(ref), min(100, 100*f.at.Done/f.at.Total), muster.Size(f.at.Total))
}

// pull brings an image here, again where it stalls or breaks, and notes it in the ledger if it was not here before. Where
// credentials cannot be used it does without, as Docker's own tools do: most images need none.
func (c *Containers) pull(ctx context.Context, ref string, moved func(docker.Pulled), warn func(string)) (*docker.Image, error) {
	before, err := c.have(ctx)
	if err != nil {
		return nil, err
	}
	_, named := c.look(ctx, ref) // nil where the name was here already
	as, bare := c.keys.of(ctx, ref)
	if bare != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("an image is pulled without credentials", attrs(ref, bare)...)
		warn(fmt.Sprintf("pulled %s without credentials: %v", short(ref), bare))
	}
	for try := 0; ; try++ {
		err = c.pullOnce(ctx, ref, as, moved)
		if err == nil || ctx.Err() != nil || try == len(c.waits.pauses) || !again(err) {
			break
		}
		c.cfg.Log.Warn("an image cannot be pulled, trying again", attrs(ref, err)...)
		select {
		case <-time.After(c.waits.pauses[try]):
		case <-ctx.Done():
		}
	}
	if bare != nil && (errors.Is(err, docker.ErrMissing) || errors.Is(err, docker.ErrDenied)) {
		err = fmt.Errorf("%w; and %w", err, bare)
	}
	if err != nil {
		return nil, err
	}
	img, err := c.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	if isNew := !slices.Contains(before, img.ID); isNew || named != nil {
		c.ledger.add(img.ID, ref, muster.Size(img.Size), isNew)
		c.suspect() // it may be over the budget
	}
	return img, nil
}

// have lists the images that are here.
func (c *Containers) have(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.work, errSlow)
	defer cancel()
	return c.cfg.Engine.Images(ctx)
}

// again says whether a pull that failed may do better.
func again(err error) bool {
	for _, kind := range []error{docker.ErrMissing, docker.ErrDenied, docker.ErrDown, docker.ErrFull} {
		if errors.Is(err, kind) {
			return false
		}
	}
	return true
}

// errStalled is why a pull is given up that does not go on.
var (
	errStalled = errors.New("nothing came for too long")
	errTrickle = errors.New("it would keep others waiting")
)

// pace is how a pull goes on.
type pace struct {
	since time.Time // since then only what is done has come; zero at the start
	done  int64
}

// tooSlow takes how far the pull has come, and says whether it brought less than it must in the time it had.
// Nothing counts while no bytes are awaited.
func (p *pace) tooSlow(at docker.Pulled, now time.Time, w *waits) bool {
	counts := !p.since.IsZero() && at.Total > 0 && !at.Busy
	if counts && now.Sub(p.since) < w.slow {
		return false
	}
	slow := counts && float64(at.Done-p.done) < float64(w.rate)*now.Sub(p.since).Seconds()
	*p = pace{since: now, done: at.Done}
	return slow
}

func (c *Containers) pullOnce(ctx context.Context, ref string, as *docker.Credentials, moved func(docker.Pulled)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(c.waits.stall, func() { cancel(errStalled) })
	defer stalled.Stop()
	var going pace
	err := c.cfg.Engine.Pull(ctx, ref, as, func(at docker.Pulled) {
		if going.tooSlow(at, time.Now(), &c.waits) {
			cancel(errTrickle)
		}
		patience := c.waits.stall
		if at.Busy {
			patience = c.waits.unpack
		}
		stalled.Reset(patience)
		moved(at)
	})
	if errors.Is(err, errStalled) {
		return fmt.Errorf("the image %s cannot be pulled: nothing came for %s: %w", ref, c.waits.stall, errStalled)
	}
	if errors.Is(err, errTrickle) {
		return fmt.Errorf("the image %s cannot be pulled: less than %s a second came for %s: %w", ref, muster.Size(c.waits.rate), c.waits.slow, errTrickle)
	}
	return err
}

// failure tells why an image is not here, as a TaskError.
func (c *Containers) failure(ctx context.Context, err error) error {
	if t, ok := errors.AsType[*run.TaskError](err); ok {
		return t
	}
	if ctx.Err() != nil {
		return run.Failf(muster.WorkerInternal, "the task was stopped: %w", context.Cause(ctx))
	}
	said := strings.TrimSuffix(err.Error(), ".")
	switch {
	case errors.Is(err, docker.ErrDown):
		c.suspect()
		return run.Failf(muster.EngineFailed, "the worker's container engine failed: %w", err)
	case errors.Is(err, docker.ErrFull):
		return run.Failf(muster.DiskFull, "%s: make space on the disk of the worker's container engine, or give the worker a smaller --image-disk", said)
	case errors.Is(err, docker.ErrDenied):
		return run.Failf(muster.ImageMissing, "%s: if the name is right, log in on the worker (docker login), or give it --registry-config", said)
	case errors.Is(err, docker.ErrMissing):
		return run.Failf(muster.ImageMissing, "%s: check its name and tag, and if it is private log in on the worker (docker login)", said)
	case errors.Is(err, docker.ErrReach):
		return run.Failf(muster.ImagePull, "%s: check that the worker reaches the registry, and by https unless its engine lists it as insecure", said)
	}
	return run.Failf(muster.ImagePull, "%w", err)
}
