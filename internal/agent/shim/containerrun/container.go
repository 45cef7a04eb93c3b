package containerrun

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

// Timeouts are the timeouts of engine calls.
type Timeouts struct {
	Start      time.Duration // for a container to start
	Call       time.Duration // for calls that are usually fast
	Outage     time.Duration // for an unreachable engine to return, or for a hung one to kill
	RetryDelay time.Duration // the first pause between retries; the longest is twenty times that
	Drain      time.Duration // for the rest of the output after the end
}

// DefaultTimeouts are the timeouts for real engines.
var DefaultTimeouts = Timeouts{Start: 2 * time.Minute, Call: 10 * time.Second, Outage: 2 * time.Minute, RetryDelay: 100 * time.Millisecond, Drain: 30 * time.Second} //nolint:gochecknoglobals // a constant

// EventHandler receives the events of a container, except for its end, on any goroutine.
type EventHandler interface {
	// LogLine has a line for the task's log.
	LogLine(line string)
	// OnWaiting says what the task waits for; "" that it continues.
	OnWaiting(what string)
	// OnExit says that the container has ended: its output must not be throttled any more.
	OnExit()
}

// Container is a started container.
type Container struct {
	spec     *run.Container
	timeouts Timeouts
	out      [2]*outputStream // stdout and stderr
	handler  EventHandler
	log      *slog.Logger
	pid      run.Pid

	initialOutput *outputSource // of output, for Wait

	ctx    context.Context //nolint:containedctx // it ends with the container, or when that is given up
	cancel context.CancelCauseFunc
	wake   chan struct{} // holds one token if there are commands

	mu       sync.Mutex
	engine   *docker.Engine
	commands commands
}

// Start starts a container and copies its output to stdout and stderr, which it closes, even if it fails. envTag becomes part of Pid. A failure
// is a run.TaskError; then the container does not run, if its engine responds.
func Start(spec *run.Container, envTag string, stdout, stderr *os.File, timeouts Timeouts, handler EventHandler, log *slog.Logger) (*Container, error) {
	c := &Container{
		spec: spec, timeouts: timeouts, handler: handler, log: log.With(slog.String("container", spec.ID)),
		out: [2]*outputStream{{w: stdout}, {w: stderr}}, wake: make(chan struct{}, 1),
	}
	if err := c.start(envTag); err != nil {
		c.close()
		return nil, err
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c, nil
}

func (c *Container) start(envTag string) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeouts.Start)
	defer cancel()
	e, err := docker.Open(c.spec.Engine)
	if err != nil {
		return run.Failf(muster.EngineFailed, "%w", err)
	}
	c.engine = e
	out, refused := e.Attach(ctx, c.spec.ID)
	c.initialOutput = &outputSource{Output: out}
	if errors.Is(refused, docker.ErrUnreachable) || ctx.Err() != nil {
		return startError(c.imageName(), refused)
	}
	// Podman prepares the whole start when it attaches: Start returns the reason of a refusal.
	if err := e.Start(ctx, c.spec.ID); err != nil {
		return startError(c.imageName(), err)
	}
	if refused != nil {
		if c.initialOutput.Output, err = e.Logs(context.Background(), c.spec.ID, true, c.timeouts.Call); err != nil {
			return run.Failf(muster.EngineFailed, "%w", errors.Join(err, e.Kill(ctx, c.spec.ID, "")))
		}
		c.initialOutput.replay = c.newReplay(time.Time{})
	}
	c.pid = c.findPid(ctx, envTag)
	return nil
}

// findPid identifies the container's main process on this machine.
func (c *Container) findPid(ctx context.Context, envTag string) run.Pid {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.Call)
	defer cancel()
	s, err := c.engine.State(ctx, c.spec.ID)
	if err != nil || !s.Running { // it may have ended already
		return run.Pid{EnvTag: envTag}
	}
	p := proctree.Identify(s.PID)
	if !inContainer(p.PID, c.spec.ID) {
		p = run.Pid{}
	}
	p.EnvTag = envTag
	return p
}

// Pid returns the main process if it is on this machine, else PID is 0.
func (c *Container) Pid() run.Pid { return c.pid }

// Wait returns when the container has ended and all of its output is written, or when it has to be given up. It is called once.
func (c *Container) Wait() proctree.ExitStatus {
	defer c.close()
	var commandLoop sync.WaitGroup
	commandLoop.Go(func() {
		if err := fault.Run(c.runCommands); err != nil {
			c.cancel(err)
		}
	})
	defer commandLoop.Wait()
	defer c.cancel(nil)
	src := c.initialOutput
	for {
		res := c.waitExit(src)
		if p, ok := errors.AsType[*fault.PanicError](context.Cause(c.ctx)); ok { // of a goroutine
			panic(p) // the caller of Wait catches it
		}
		if res.exited {
			x, err := c.exitStatus(res.code)
			if err == nil {
				return x
			}
			c.log.Warn("cannot inspect the exited container", slog.Any("error", err))
		}
		next, x := c.reconnect(res)
		if next == nil {
			return *x
		}
		src = next
	}
}

// Abort kills the container after Wait has panicked.
func (c *Container) Abort() error {
	e, err := docker.Open(c.spec.Engine)
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), c.timeouts.Call)
	defer cancel()
	if err := e.Kill(ctx, c.spec.ID, ""); err != nil && !errors.Is(err, docker.ErrNotFound) {
		return err
	}
	return nil
}

// waitResult is why waitExit returned.
type waitResult struct {
	at     time.Time
	exited bool // it ended with code; else the connection broke
	code   int
}

// waitExit copies output until the container has ended or the connection broke.
func (c *Container) waitExit(src *outputSource) (res waitResult) {
	ctx, cancel := context.WithCancel(c.ctx)
	copied, waited := make(chan error, 1), make(chan error, 1)
	var wg sync.WaitGroup
	caught := func(f func() error) error {
		err := fault.Catch(f)
		if _, ok := errors.AsType[*fault.PanicError](err); ok {
			c.cancel(err)
		}
		return err
	}
	wg.Go(func() { copied <- caught(func() error { return c.copyOutput(src) }) })
	code := 0
	wg.Go(func() {
		waited <- caught(func() (err error) {
			code, err = c.current().Wait(ctx, c.spec.ID)
			return err
		})
	})
	defer func() {
		cancel()
		_ = src.Close()
		wg.Wait()
	}()
	for {
		select {
		case err := <-copied:
			copied = nil
			if err != nil {
				return waitResult{at: time.Now()}
			}
			// Its output has ended; or the connection broke, and the other one will, too.
		case err := <-waited:
			res = waitResult{at: time.Now(), exited: err == nil}
			if res.exited {
				res.code = code
				c.handler.OnExit()
			}
			if copied != nil {
				c.waitOutput(copied, res.exited)
			}
			return res
		}
	}
}

// outputGrace is the maximum time between the ends of two connections to one engine.
const outputGrace = 2 * time.Second

// waitOutput waits for the end of the output, with a timeout.
func (c *Container) waitOutput(copied <-chan error, exited bool) {
	timeout := outputGrace
	if exited {
		timeout = c.timeouts.Drain
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	err := error(nil)
	select {
	case err = <-copied:
	case <-timer.C:
		err = context.DeadlineExceeded
	case <-c.ctx.Done():
	}
	if exited && err != nil {
		c.handler.LogLine("the container engine did not deliver all output of the task: its end may be missing")
	}
}

// close releases what Start created.
func (c *Container) close() {
	if c.initialOutput != nil && c.initialOutput.Output != nil {
		_ = c.initialOutput.Close()
	}
	if e := c.current(); e != nil {
		_ = e.Close()
	}
	for _, t := range c.out {
		_ = t.w.Close()
	}
}

// current returns the engine with its current connection.
func (c *Container) current() *docker.Engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine
}

// inContainer reports whether a process of this machine is in a container, whose ID is in the names of its control groups.
func inContainer(pid int, id string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && bytes.Contains(b, []byte(id))
}
