// Package taskexec is the worker's side of commands in running tasks and of copies from and to their folders: it connects to the server when
// that asks for it (link.Exec), reads what to do (package execwire), and does it through the attempt's run.Access.
package taskexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/link"
)

const (
	maxCommands   = 32              // at a time: more than a server allows
	drainTimeout  = 2 * time.Second // for output after the command has ended, of what it left in the background
	goodbyeWindow = 5 * time.Second // for the server to read the last frame
)

// Config configures a Server.
type Config struct {
	Dial func(ctx context.Context, id string) (link.FrameConn, error) // opens the connection of a link.Exec
	Log  *slog.Logger
}

// Server serves the commands of one worker. It is its run.AccessRegistry. Its methods may be called concurrently.
type Server struct {
	cfg   Config
	group link.SessionGroup
	count atomic.Int32

	mu       sync.Mutex
	attempts map[muster.AttemptID]*run.Access
}

var _ run.AccessRegistry = (*Server)(nil)

// New returns a Server that serves nothing until Run.
func New(cfg Config) *Server { return &Server{cfg: cfg, attempts: map[muster.AttemptID]*run.Access{}} }

// Run serves commands until ctx ends, then hangs up all of them and returns when they have ended.
func (s *Server) Run(ctx context.Context) error { return s.group.Run(ctx) }

// Add implements run.AccessRegistry.
func (s *Server) Add(id muster.AttemptID, a *run.Access) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[id] = a
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.attempts[id] == a {
			delete(s.attempts, id)
		}
	}
}

func (s *Server) find(id muster.AttemptID) *run.Access {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[id]
}

// Open serves a command of the server in the background. It does not block.
func (s *Server) Open(x link.Exec) {
	if s.count.Add(1) > maxCommands {
		s.count.Add(-1)
		s.cfg.Log.Warn("too many commands in tasks: ignoring one", slog.String("attempt", x.Attempt.String()))
		return
	}
	err := s.group.Go(context.Background(), func(ctx context.Context) {
		defer s.count.Add(-1)
		if err := s.serve(ctx, x); err != nil {
			s.cfg.Log.Info("command in a task ended", slog.String("attempt", x.Attempt.String()), slog.Any("error", err))
		}
	})
	if err != nil {
		s.count.Add(-1)
	}
}

// serve serves one connection.
func (s *Server) serve(ctx context.Context, x link.Exec) error {
	dialCtx, cancel := context.WithTimeout(ctx, execwire.OpenTimeout)
	defer cancel()
	t, err := s.cfg.Dial(dialCtx, x.ID)
	if err != nil {
		return err
	}
	conn := execwire.NewConn(t)
	first, err := conn.First(ctx, execwire.OpenTimeout)
	if err != nil {
		_ = t.Close()
		return err
	}
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	c := &command{conn: conn, attempt: x.Attempt, sizes: make(chan execwire.Size, 1), signals: make(chan string, 8)}
	var reading sync.WaitGroup
	closed := make(chan struct{})
	readCtx, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReading()
	reading.Go(func() {
		defer close(closed)
		defer hangUp()
		_ = conn.Run(readCtx, c.handle) // whatever ends the connection ends the command
	})
	defer reading.Wait()
	err = c.serve(ctx, first, s.find(x.Attempt))
	if err != nil {
		_ = conn.Send(readCtx, &execwire.Frame{Error: toError(err)})
	}
	select {
	case <-closed:
	case <-time.After(goodbyeWindow):
		stopReading()
	}
	return err
}

// toError converts an error for the client.
func toError(err error) *execwire.Error {
	code := muster.CodeOf(err)
	if _, ok := errors.AsType[*run.ExecError](err); ok {
		code = muster.Conflict
	}
	return &execwire.Error{Code: code, Message: err.Error()}
}

// command is one connection's work.
type command struct {
	conn    *execwire.Conn
	attempt muster.AttemptID
	sizes   chan execwire.Size // the latest one
	signals chan string
}

// handle handles a frame of the client. It does not block.
func (c *command) handle(f *execwire.Frame) error {
	switch {
	case f.Resize != nil:
		if err := f.Resize.Check(); err != nil {
			return err
		}
		select {
		case <-c.sizes:
		default:
		}
		c.sizes <- *f.Resize
	case f.Signal != "":
		if !slices.Contains(muster.TaskSignals, f.Signal) {
			return muster.Errorf(muster.Invalid, "unknown signal %q", f.Signal)
		}
		select {
		case c.signals <- f.Signal:
		default: // as many as that are waiting
		}
	default:
		return muster.Errorf(muster.Invalid, "the client sent a frame that only a worker sends")
	}
	return nil
}

// serve does what the client asks for. Its error is for the client.
func (c *command) serve(ctx context.Context, first *execwire.Frame, a *run.Access) error {
	if first.Start == nil {
		return muster.Errorf(muster.Invalid, "the first frame must be a start")
	}
	if err := first.Start.Check(); err != nil {
		return err
	}
	if a == nil {
		return muster.Errorf(muster.Conflict, "task %s is not running on this worker any more", c.attempt.Task)
	}
	who := first.Start.Requester
	switch s := first.Start; {
	case s.Get != nil:
		a.LogLine(fmt.Sprintf("%s copies %q from the task", who, s.Get.Path))
		return c.get(ctx, s.Get, a)
	case s.Put != nil:
		a.LogLine(fmt.Sprintf("%s copies %q to the task", who, s.Put.Path))
		return c.put(ctx, s.Put, a)
	default:
		text := strings.Join(s.Command.Argv, " ")
		a.LogLine(fmt.Sprintf("%s executes %q", who, text[:min(len(text), maxLogged)]))
		return c.execute(ctx, s.Command, a)
	}
}

// maxLogged is the maximum length of a command in a task's log, in bytes.
const maxLogged = 512

func (c *command) execute(ctx context.Context, x *execwire.Command, a *run.Access) error {
	env := x.Env
	if x.TTY && x.Term != "" {
		env = append([]string{"TERM=" + x.Term}, env...)
	}
	dir, err := taskDir(x.Dir, a)
	if err != nil {
		return err
	}
	p, err := a.Exec(ctx, &run.ExecSpec{
		Argv: x.Argv, Env: env, Dir: dir, TTY: x.TTY, Stdin: x.Stdin, Rows: x.Size.Rows, Columns: x.Size.Columns,
	})
	if err != nil {
		if e, ok := errors.AsType[*run.ExecError](err); ok && e.Code != 0 {
			return errors.Join(c.conn.Send(ctx, &execwire.Frame{Note: e.Message}), c.conn.Send(ctx, &execwire.Frame{Exit: &execwire.Exit{Code: e.Code}}))
		}
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer func() { _ = p.Close() }()
	if err := c.conn.Send(ctx, &execwire.Frame{Ready: true}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work.Go(func() { c.control(ctx, p) })
	work.Go(func() {
		in := p.Stdin()
		if _, err := io.Copy(in, c.conn.Reader(ctx, execwire.Stdin)); err == nil {
			_ = in.Close() // the program may have closed it
		}
	})
	outputs := c.copyOutput(ctx, &work, p)
	exited := make(chan run.ExecExit, 1)
	work.Go(func() { exited <- p.Wait() })
	var exit run.ExecExit
	select {
	case exit = <-exited:
	case <-ctx.Done():
		_ = p.Close()
		<-exited
		return context.Cause(ctx)
	}
	outputs.drain(ctx, p)
	if exit.Error != "" && !exit.TaskEnded {
		return muster.Errorf(muster.Unavailable, "the end of the command is unknown: %s", exit.Error)
	}
	return c.conn.Send(ctx, &execwire.Frame{Exit: &execwire.Exit{Code: exit.Code, Signal: exit.Signal, TaskEnded: exit.TaskEnded}})
}

// taskDir returns the working directory of a command as the task sees it.
func taskDir(text string, a *run.Access) (string, error) {
	if text == "" || strings.HasPrefix(text, "/") {
		return text, nil
	}
	f, rel, err := findFolder(text, a)
	if err != nil {
		return "", err
	}
	return path.Join(f.TaskPath, rel), nil
}

// control passes sizes and signals to the command.
func (c *command) control(ctx context.Context, p run.ExecProc) {
	for {
		select {
		case size := <-c.sizes:
			_ = p.Resize(size.Rows, size.Columns) // the command may have ended
		case name := <-c.signals:
			_ = p.Signal(name)
		case <-ctx.Done():
			return
		}
	}
}

// outputs are the streams of a command that are being copied.
type outputs struct {
	done    chan struct{} // closed when all have ended
	waiting []*waitingReader
}

// waitingReader notes since when a Read waits.
type waitingReader struct {
	io.Reader
	since atomic.Int64 // in nanoseconds since the epoch; 0 if none does
}

// Read implements io.Reader.
func (r *waitingReader) Read(b []byte) (int, error) {
	r.since.Store(time.Now().UnixNano())
	defer r.since.Store(0)
	return r.Reader.Read(b)
}

func (c *command) copyOutput(ctx context.Context, work *sync.WaitGroup, p run.ExecProc) *outputs {
	o := &outputs{done: make(chan struct{})}
	var all sync.WaitGroup
	for name, r := range map[string]io.Reader{execwire.Stdout: p.Stdout(), execwire.Stderr: p.Stderr()} {
		if r == nil {
			continue
		}
		waiting := &waitingReader{Reader: r}
		o.waiting = append(o.waiting, waiting)
		all.Go(func() {
			w := c.conn.Writer(ctx, name)
			_, _ = io.CopyBuffer(struct{ io.Writer }{w}, waiting, make([]byte, execwire.MaxChunk)) // the connection's end ends the command
			_ = w.Close()
		})
	}
	work.Go(func() {
		all.Wait()
		close(o.done)
	})
	return o
}

// drain waits until all output of an ended command is sent: however slow the client is, but at most drainTimeout for output of processes that
// the command left in the background.
func (o *outputs) drain(ctx context.Context, p run.ExecProc) {
	tick := time.NewTicker(drainTimeout / 4)
	defer tick.Stop()
	for {
		select {
		case <-o.done:
			return
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, r := range o.waiting {
				if since := r.since.Load(); since != 0 && now.Sub(time.Unix(0, since)) > drainTimeout {
					_ = p.Close()
				}
			}
		}
	}
}
