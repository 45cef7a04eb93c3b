package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

// Config says how a worker's processes are stood by.
type Config struct {
	Dir     string   // the worker's data dir: shim/ and logs/ lie in it
	Command []string // what starts a shim, to which Main's arguments are added; nil: it is a part of this process
	Helper  []string // what is netns.Helped, for a shim in this process; nil: without privileges its tasks have no allowlist
	Build   string   // names this program's build; "" for the file that runs
	Logs    run.Logs // of a shim in this process; nil for those of Dir
	Log     *slog.Logger
}

// Client is a worker's side: a run.Supervisor over the shims of all its lives.
type Client struct {
	cfg Config
	kin *kin.Kin // nil if shims are a part of this process, which have their own

	wg       sync.WaitGroup // of lines
	starting chan struct{}  // held while a shim is started
	ending   chan struct{}  // closed by Close

	mu      sync.Mutex
	lines   []*line
	current *line // for new tasks, nil until there is one
	held    []run.Held
	contact time.Duration
	closed  bool
}

var _ run.Supervisor = (*Client)(nil)

// Open finds the shims of the worker's earlier lives and what they hold. What a shim
// held that is gone is ended before Open returns. Only one process at a time may use a data
// dir.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, starting: make(chan struct{}, 1), ending: make(chan struct{})}
	if cfg.Build == "" {
		c.cfg.Build = executable()
	}
	if outlives && cfg.Command != nil {
		c.kin = kin.New(cfg.Log)
	}
	homes, err := homesIn(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, h := range homes {
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), c.Close())
		}
		if err := c.revisit(ctx, h); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// revisit takes up a shim of an earlier life, or cleans up after one that is gone.
func (c *Client) revisit(ctx context.Context, h *home) error {
	log := c.cfg.Log
	for try := 1; ; try++ {
		conn, err := h.dial()
		if nobody(err) {
			if err := h.checkCopy(ctx); err != nil {
				return err
			}
			h.raze(run.Pid{}, log)
			return nil
		}
		if err != nil { // such as too many open files: what it holds goes on, and has its lease
			return muster.Errorf(muster.Unavailable, "the shim that stands by the tasks of this worker cannot be reached in %s: %w", h.dir, err)
		}
		l, held, err := call(conn, h, 0, log)
		if err == nil {
			c.takeUp(l, held)
			return nil
		}
		if try == callTries || errors.Is(err, errProtocol) {
			// What cannot be talked to cannot be kept: its tasks would run twice.
			log.Error("a shim of an earlier life cannot be talked to; ending it and its tasks", slog.String("folder", h.dir), slog.Any("error", err))
			h.raze(run.Pid{}, log)
			return nil
		}
	}
}

// callTries is how often a shim is called that has something to lose: either side may have
// stood still meanwhile.
const callTries = 2

func (c *Client) takeUp(l *line, held []run.Held) {
	c.mu.Lock() // another one's line may be ending
	defer c.mu.Unlock()
	c.contact = max(c.contact, l.contact)
	c.held = append(c.held, held...)
	c.join(l)
	if l.build == c.cfg.Build {
		c.current = l
	} else if len(held) == 0 {
		l.close()
	}
}

// join begins to hear a shim. The lock is held.
func (c *Client) join(l *line) {
	c.lines = append(c.lines, l)
	c.wg.Go(func() {
		l.run()
		c.leave(l)
		c.reap()
	})
}

// reap buries the shim that has just ended, if it is a child of this process, and what
// it left: the kernel gives that to the worker.
func (c *Client) reap() {
	if c.kin == nil {
		return
	}
	for range 2 * idleLooks { // one that was let go takes that long
		c.kin.Reap()
		select {
		case <-time.After(lookEvery):
		case <-c.ending:
			return
		}
	}
}

// Outlives reports whether tasks go on after this process has ended.
func (c *Client) Outlives() bool { return outlives && c.cfg.Command != nil }

// Close lets go of the shims. They and what they hold go on, unless they are a part of
// this process: then everything is killed.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.closed {
		close(c.ending)
	}
	c.closed = true
	for _, l := range c.lines {
		l.close()
	}
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}

// line returns a shim for new tasks, and starts one if there is none.
func (c *Client) line(ctx context.Context) (*line, error) {
	find := func() (*line, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return nil, run.Failf(muster.WorkerInternal, "the worker is being stopped")
		}
		return c.current, nil
	}
	if l, err := find(); l != nil || err != nil {
		return l, err
	}
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l, err := find(); l != nil || err != nil {
		return l, err
	}
	return c.launch() //nolint:contextcheck // a shim outlives whoever asks for it first
}

// launch starts a shim.
func (c *Client) launch() (*line, error) {
	h, err := newHome(c.cfg.Dir)
	if err != nil {
		return nil, err
	}
	conn, end, err := c.bear(h)
	if err != nil {
		h.raze(run.Pid{}, c.cfg.Log)
		return nil, err
	}
	c.mu.Lock()
	contact := c.contact
	c.mu.Unlock()
	l, _, err := call(conn, h, contact, c.cfg.Log)
	if err != nil {
		h.raze(run.Pid{}, c.cfg.Log)
		c.reap()
		return nil, run.Failf(muster.WorkerInternal, "the shim that would stand by the task does not answer: see %s: %w", h.logPath(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if end != nil {
		c.wg.Go(end)
	}
	c.join(l)
	if c.closed {
		l.close()
		return nil, run.Failf(muster.WorkerInternal, "the worker is being stopped")
	}
	c.current = l
	return l, nil
}

// Start implements run.Supervisor.
func (c *Client) Start(ctx context.Context, s *run.Start, sink run.Sink) (run.Proc, error) {
	for {
		l, err := c.line(ctx)
		if err != nil {
			return nil, err
		}
		p, err := l.start(s, sink)
		if errors.Is(err, errBefore) {
			c.retire(l)
			continue
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// retire has no new task started over a line. What its shim holds it holds.
func (c *Client) retire(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == l {
		c.current = nil
	}
	if l.idle() {
		l.close()
	}
}

// leave forgets a line that has ended.
func (c *Client) leave(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = slices.DeleteFunc(c.lines, func(o *line) bool { return o == l })
	if c.current == l {
		c.current = nil
	}
}

// Adopt implements run.Supervisor.
func (c *Client) Adopt(h *run.Held, sink run.Sink) (run.Proc, error) {
	c.mu.Lock()
	lines := slices.Clone(c.lines)
	c.mu.Unlock()
	for _, l := range lines {
		if p := l.find(h.Start.Attempt); p != nil {
			p.follow(sink)
			return p, nil
		}
	}
	return nil, run.Failf(muster.WorkerInternal, "the shim that stood by %s is gone", h.Start.Attempt)
}

// Held implements run.Supervisor.
func (c *Client) Held() []run.Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.held)
}

// Contact implements run.Supervisor.
func (c *Client) Contact(at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contact = max(c.contact, at)
	for _, l := range c.lines {
		l.touch(at)
	}
}

// Contacted implements run.Supervisor.
func (c *Client) Contacted() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.contact
}

// Freeze implements run.Supervisor.
func (c *Client) Freeze(id muster.AttemptID, on bool) error {
	c.mu.Lock()
	lines := slices.Clone(c.lines)
	c.mu.Unlock()
	for _, l := range lines {
		if l.find(id) != nil {
			_, err := l.ask(&wire.ToShim{Freeze: &wire.FreezeFrame{Attempt: id, On: on}})
			return err
		}
	}
	return fmt.Errorf("%s has no process here", id)
}

// Forget implements run.Supervisor. A shim of another build that holds nothing any
// more is let go.
func (c *Client) Forget(ids ...muster.AttemptID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(h run.Held) bool { return slices.Contains(ids, h.Start.Attempt) })
	for _, l := range c.lines {
		var its []muster.AttemptID
		for _, id := range ids {
			if l.find(id) != nil {
				its = append(its, id)
			}
		}
		if len(its) > 0 {
			l.forget(its...)
		}
		if l != c.current && l.idle() {
			l.close()
		}
	}
}
