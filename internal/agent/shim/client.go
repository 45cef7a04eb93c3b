package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Config configures how a worker's processes are supervised.
type Config struct {
	Dir     string   // the worker's data dir: it has shim/ and logs/
	Command []string // the command of a shim, to which the arguments of Main are added; nil: it is part of this process
	Helper  []string // the command that runs netns.Init, for a shim in this process; nil: without privileges tasks have no allowlist
	Build   string   // of this program; "" derives it from the executable
	Logs    run.Logs // for a shim in this process; nil for those of Dir
	Log     *slog.Logger
}

// Client is the worker's side: a run.Supervisor for all shims of a data dir.
type Client struct {
	cfg     Config
	tracker *proctree.Tracker // nil if the shim is part of this process and has its own

	wg       sync.WaitGroup // of connections
	starting chan struct{}  // held while a shim is started
	closing  chan struct{}  // closed by Close

	mu        sync.Mutex
	conns     []*shimConn
	inProcess *server   // of this process, nil for none
	current   *shimConn // for new tasks, nil for none
	recovered []run.Recovered
	contact   time.Duration
	closed    bool
}

var _ run.Supervisor = (*Client)(nil)

// Open connects to the shims of the worker's data dir and recovers their attempts. What an exited shim left is ended before Open returns.
// Only one process at a time may use a data dir.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, starting: make(chan struct{}, 1), closing: make(chan struct{})}
	if cfg.Build == "" {
		c.cfg.Build = buildID()
	}
	if outlives && cfg.Command != nil {
		c.tracker = proctree.New(cfg.Log)
	}
	dirs, err := listStateDirs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, d := range dirs {
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), c.Close())
		}
		if err := c.reconnect(ctx, d); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// reconnect connects to an existing shim, or cleans up after one that has exited.
func (c *Client) reconnect(ctx context.Context, d *stateDir) error {
	log := c.cfg.Log
	for try := 1; ; try++ {
		conn, err := d.dial()
		if noListener(err) {
			if err := d.checkCopy(ctx); err != nil {
				return err
			}
			d.killAndRemove(run.Pid{}, log)
			return nil
		}
		if err != nil { // such as too many open files: its tasks keep running, with their leases
			return muster.Errorf(muster.Unavailable, "cannot reach the supervisor (shim) of this worker's tasks in %s: %w", d.path, err)
		}
		sc, recovered, err := handshake(conn, d, 0, log)
		if err == nil {
			c.attach(sc, recovered)
			return nil
		}
		if try == handshakeTries || errors.Is(err, errProtocol) {
			// Its tasks would run twice.
			log.Error("shim does not respond, ending it and its tasks", slog.String("folder", d.path), slog.Any("error", err))
			d.killAndRemove(run.Pid{}, log)
			return nil
		}
	}
}

// handshakeTries is how often an existing shim is tried: either process may have been stopped meanwhile.
const handshakeTries = 2

func (c *Client) attach(sc *shimConn, recovered []run.Recovered) {
	c.mu.Lock() // another connection may be ending
	defer c.mu.Unlock()
	c.contact = max(c.contact, sc.contact)
	c.recovered = append(c.recovered, recovered...)
	c.addConn(sc)
	if sc.build == c.cfg.Build {
		c.current = sc
	} else if len(recovered) == 0 {
		sc.close()
	}
}

// addConn begins to serve a connection. The lock is held.
func (c *Client) addConn(sc *shimConn) {
	c.conns = append(c.conns, sc)
	c.wg.Go(func() {
		sc.run()
		c.removeConn(sc)
		c.reap()
	})
}

// reap reaps a shim that has just exited, if it is a child of this process, and the orphans that it left to the worker.
func (c *Client) reap() {
	if c.tracker == nil {
		return
	}
	for range 2 * idleExitTicks { // an unused shim exits within this time
		c.tracker.Sweep()
		select {
		case <-time.After(tickInterval):
		case <-c.closing:
			return
		}
	}
}

// Close closes the connections to the shims. Their tasks keep running, unless the shim is part of this process: then they are killed.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.closed {
		close(c.closing)
	}
	c.closed = true
	for _, sc := range c.conns {
		sc.close()
	}
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}

// acquireConn returns a shim for new tasks, and starts one if there is none.
func (c *Client) acquireConn(ctx context.Context) (*shimConn, error) {
	find := func() (*shimConn, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return nil, run.Failf(muster.WorkerInternal, "the worker is shutting down")
		}
		return c.current, nil
	}
	if sc, err := find(); sc != nil || err != nil {
		return sc, err
	}
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if sc, err := find(); sc != nil || err != nil {
		return sc, err
	}
	return c.launch() //nolint:contextcheck // a shim outlives the request that starts it
}

func (c *Client) launch() (*shimConn, error) {
	d, err := newStateDir(c.cfg.Dir)
	if err != nil {
		return nil, err
	}
	conn, wait, err := c.spawn(d)
	if err != nil {
		d.killAndRemove(run.Pid{}, c.cfg.Log)
		return nil, err
	}
	c.mu.Lock()
	contact := c.contact
	c.mu.Unlock()
	sc, _, err := handshake(conn, d, contact, c.cfg.Log)
	if err != nil {
		d.killAndRemove(run.Pid{}, c.cfg.Log)
		c.reap()
		return nil, run.Failf(muster.WorkerInternal, "the task's supervisor (shim) does not respond: see %s: %w", d.logPath(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait != nil {
		c.wg.Go(wait)
	}
	c.addConn(sc)
	if c.closed {
		sc.close()
		return nil, run.Failf(muster.WorkerInternal, "the worker is shutting down")
	}
	c.current = sc
	return sc, nil
}

// Start implements run.Supervisor.
func (c *Client) Start(ctx context.Context, s *run.StartSpec, reporter run.Reporter) (run.Proc, error) {
	for {
		sc, err := c.acquireConn(ctx)
		if err != nil {
			return nil, err
		}
		p, err := sc.start(s, reporter)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, errExitedBefore) {
			return nil, err
		}
		c.retire(sc)
	}
}

// retire starts no new tasks on a shim. It keeps its attempts.
func (c *Client) retire(sc *shimConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == sc {
		c.current = nil
	}
	if sc.idle() {
		sc.close()
	}
}

func (c *Client) removeConn(sc *shimConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = slices.DeleteFunc(c.conns, func(o *shimConn) bool { return o == sc })
	if c.current == sc {
		c.current = nil
	}
}

// Adopt implements run.Supervisor.
func (c *Client) Adopt(h *run.Recovered, reporter run.Reporter) (run.Proc, error) {
	if _, p := c.find(h.Start.Attempt); p != nil {
		p.setReporter(reporter)
		return p, nil
	}
	return nil, run.Failf(muster.WorkerInternal, "the supervisor (shim) of %s has exited", h.Start.Attempt)
}

// find returns an attempt and its shim, nil if no shim holds it.
func (c *Client) find(id muster.AttemptID) (*shimConn, *proc) {
	c.mu.Lock()
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	for _, sc := range conns {
		if p := sc.find(id); p != nil {
			return sc, p
		}
	}
	return nil, nil
}

// Recovered implements run.Supervisor.
func (c *Client) Recovered() []run.Recovered {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.recovered)
}

// SetLastContact implements run.Supervisor.
func (c *Client) SetLastContact(at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contact = max(c.contact, at)
	for _, sc := range c.conns {
		sc.setContact(at)
	}
}

// LastContact implements run.Supervisor.
func (c *Client) LastContact() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.contact
}

// Freeze implements run.Supervisor.
func (c *Client) Freeze(id muster.AttemptID, on bool) error {
	if sc, p := c.find(id); p != nil {
		_, err := sc.call(&wire.ToShim{Freeze: &wire.FreezeFrame{Attempt: id, On: on}})
		return err
	}
	return fmt.Errorf("attempt %s has no process on this worker", id)
}

// Forget implements run.Supervisor. It disconnects from a shim of another build that holds no attempts.
func (c *Client) Forget(ids ...muster.AttemptID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recovered = slices.DeleteFunc(c.recovered, func(h run.Recovered) bool { return slices.Contains(ids, h.Start.Attempt) })
	for _, sc := range c.conns {
		var matching []muster.AttemptID
		for _, id := range ids {
			if sc.find(id) != nil {
				matching = append(matching, id)
			}
		}
		if len(matching) > 0 {
			sc.forget(matching...)
		}
		if sc != c.current && sc.idle() {
			sc.close()
		}
	}
}

// startInProcess starts a shim in this process. It returns a connection, and a function that waits for its end after the connection is
// closed.
func (c *Client) startInProcess(d *stateDir) (net.Conn, func(), error) {
	var ownLogs *tasklog.Dir
	logs := c.cfg.Logs
	if logs == nil {
		var err error
		if ownLogs, err = tasklog.OpenDir(filepath.Join(c.cfg.Dir, "logs")); err != nil {
			return nil, nil, err
		}
		logs = ownLogs
	}
	record, err := proctree.CreatePIDFile(d.path)
	if err != nil {
		return nil, nil, err
	}
	s, err := newServer(logs, record, c.cfg.Build, d.key, c.cfg.Log)
	if err != nil {
		_ = record.Close()
		return nil, nil, err
	}
	s.helper = c.cfg.Helper
	c.mu.Lock()
	c.inProcess = s
	c.mu.Unlock()
	local, remote := net.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { s.run(ctx, false); return nil })
	g.Go(func() error {
		s.serve(remote)
		s.killAll()
		stop()
		return nil
	})
	return local, func() {
		_ = g.Wait()
		_ = record.Close()
		if ownLogs != nil {
			_ = ownLogs.Close()
		}
		d.remove(c.cfg.Log)
	}, nil
}
