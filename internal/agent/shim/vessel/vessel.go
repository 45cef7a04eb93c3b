package vessel

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/kin"
)

// Patience is how long is waited for engines.
type Patience struct {
	Start time.Duration // for a container to start
	Call  time.Duration // for what takes an engine that is well a moment
	Away  time.Duration // for an engine that went away to come back, or for one that hangs to kill
	Pause time.Duration // the first one between two tries; the longest is twenty times that
	Drain time.Duration // for the rest of the output after the end
}

// Usual is the patience with real engines.
var Usual = Patience{Start: 2 * time.Minute, Call: 10 * time.Second, Away: 2 * time.Minute, Pause: 100 * time.Millisecond, Drain: 30 * time.Second} //nolint:gochecknoglobals // a constant

// Hears is told what happens to a container besides its end, on any goroutine.
type Hears interface {
	// Say has a line for the task's log.
	Say(line string)
	// Waits says what the task waits for; "" that it goes on.
	Waits(what string)
	// Hurry says that the container has ended: nothing is to slow its output any more.
	Hurry()
}

// Vessel is a started container.
type Vessel struct {
	c     *run.Container
	p     Patience
	out   [2]*tap // stdout and stderr
	hears Hears
	log   *slog.Logger
	pid   run.Pid

	first *source // of output, for Wait

	ctx  context.Context //nolint:containedctx // it is the vessel's life: it ends with that, or when it is given up
	done context.CancelCauseFunc
	poke chan struct{} // holds one token if there is an order

	mu     sync.Mutex
	engine *docker.Engine
	orders orders
}

// Start starts a container and has its output written to stdout and stderr, which it
// closes, also when it fails. mark is noted as that of its process. A failure is a
// run.TaskError, and the container does not run then if its engine answers.
func Start(c *run.Container, mark string, stdout, stderr *os.File, p Patience, hears Hears, log *slog.Logger) (*Vessel, error) {
	v := &Vessel{
		c: c, p: p, hears: hears, log: log.With(slog.String("container", c.ID)),
		out: [2]*tap{{w: stdout}, {w: stderr}}, poke: make(chan struct{}, 1),
	}
	if err := v.start(mark); err != nil {
		v.close()
		return nil, err
	}
	v.ctx, v.done = context.WithCancelCause(context.Background())
	return v, nil
}

func (v *Vessel) start(mark string) error {
	ctx, cancel := context.WithTimeout(context.Background(), v.p.Start)
	defer cancel()
	e, err := docker.Open(v.c.Engine)
	if err != nil {
		return run.Failf(muster.EngineFailed, "%w", err)
	}
	v.engine = e
	out, refused := e.Attach(ctx, v.c.ID)
	v.first = &source{Output: out}
	if errors.Is(refused, docker.ErrDown) || ctx.Err() != nil {
		return startError(v.called(), refused)
	}
	// Podman prepares all of the start to attach: why it cannot be is told by the start itself.
	if err := e.Start(ctx, v.c.ID); err != nil {
		return startError(v.called(), err)
	}
	if refused != nil {
		if v.first.Output, err = e.Logs(context.Background(), v.c.ID, true, v.p.Call); err != nil {
			return run.Failf(muster.EngineFailed, "%w", errors.Join(err, e.Kill(ctx, v.c.ID, "")))
		}
		v.first.gap = v.gap(time.Time{})
	}
	v.pid = v.name(ctx, mark)
	return nil
}

// name finds the container's main process on this machine.
func (v *Vessel) name(ctx context.Context, mark string) run.Pid {
	ctx, cancel := context.WithTimeout(ctx, v.p.Call)
	defer cancel()
	s, err := v.engine.State(ctx, v.c.ID)
	if err != nil || !s.Running { // it may have ended already
		return run.Pid{Mark: mark}
	}
	p := kin.Name(s.PID)
	if !of(p.PID, v.c.ID) {
		p = run.Pid{}
	}
	p.Mark = mark
	return p
}

// Pid names the main process, if it is on this machine: its number is 0 if not.
func (v *Vessel) Pid() run.Pid { return v.pid }

// Wait returns when the container has ended, and all of its output is written, or when
// it has to be given up. Call it once.
func (v *Vessel) Wait() kin.Ended {
	defer v.close()
	var carrying sync.WaitGroup
	carrying.Go(func() {
		if err := fault.Run(v.carry); err != nil {
			v.done(err)
		}
	})
	defer carrying.Wait()
	defer v.done(nil)
	src := v.first
	for {
		end := v.stand(src)
		if p := v.failed(); p != nil {
			panic(p) // the caller of Wait catches it
		}
		if end.told {
			x, err := v.ended(end.code)
			if err == nil {
				return x
			}
			v.log.Warn("the container's end cannot be looked at", slog.Any("error", err))
		}
		next, x := v.resume(end)
		if next == nil {
			return *x
		}
		src = next
	}
}

// failed returns the *fault.PanicError of a goroutine of the vessel, nil if there was none.
func (v *Vessel) failed() *fault.PanicError {
	if p, ok := errors.AsType[*fault.PanicError](context.Cause(v.ctx)); ok {
		return p
	}
	return nil
}

// Abandon has the container killed after Wait has panicked.
func (v *Vessel) Abandon() error {
	e, err := docker.Open(v.c.Engine)
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), v.p.Call)
	defer cancel()
	if err := e.Kill(ctx, v.c.ID, ""); err != nil && !errors.Is(err, docker.ErrMissing) {
		return err
	}
	return nil
}

// turn is why nobody hears of the container any more.
type turn struct {
	at   time.Time
	told bool // it has ended, with code; else the connection broke
	code int
}

// stand passes output on until the container has ended or the connection broke.
func (v *Vessel) stand(src *source) (end turn) {
	ctx, cancel := context.WithCancel(v.ctx)
	passed, awaited := make(chan error, 1), make(chan error, 1)
	var wg sync.WaitGroup
	caught := func(f func() error) error {
		err := fault.Catch(f)
		if _, ok := errors.AsType[*fault.PanicError](err); ok {
			v.done(err)
		}
		return err
	}
	wg.Go(func() { passed <- caught(func() error { return v.pass(src) }) })
	code := 0
	wg.Go(func() {
		awaited <- caught(func() (err error) {
			code, err = v.current().Wait(ctx, v.c.ID)
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
		case err := <-passed:
			passed = nil
			if err != nil {
				return turn{at: time.Now()}
			}
			// It prints no more; or the connection ended, and the other one will.
		case err := <-awaited:
			end = turn{at: time.Now(), told: err == nil}
			if end.told {
				end.code = code
				v.hears.Hurry()
			}
			if passed != nil {
				v.drain(passed, end.told)
			}
			return end
		}
	}
}

// settle is how long two connections with one engine may take to end one after the other.
const settle = 2 * time.Second

// drain waits for the end of the output, but not for ever.
func (v *Vessel) drain(passed <-chan error, ended bool) {
	atMost := settle
	if ended {
		atMost = v.p.Drain
	}
	late := time.NewTimer(atMost)
	defer late.Stop()
	err := error(nil)
	select {
	case err = <-passed:
	case <-late.C:
		err = context.DeadlineExceeded
	case <-v.ctx.Done():
	}
	if ended && err != nil {
		v.hears.Say("the container engine did not hand out all of the task's output: the end of it may be missing")
	}
}

// close ends what Start made.
func (v *Vessel) close() {
	if v.first != nil && v.first.Output != nil {
		_ = v.first.Close()
	}
	if e := v.current(); e != nil {
		_ = e.Close()
	}
	for _, t := range v.out {
		_ = t.w.Close()
	}
}

// current is the engine as it is connected now.
func (v *Vessel) current() *docker.Engine {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.engine
}
