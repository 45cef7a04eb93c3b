package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/pty"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

// fileConn keeps the descriptors that arrive with the first frame of a connection.
type fileConn struct {
	net.Conn

	files []*os.File
	taken bool
}

// maxFiles is the maximum of descriptors in a message: the standard streams.
const maxFiles = 3

// Read implements net.Conn.
func (c *fileConn) Read(b []byte) (int, error) {
	u, ok := c.Conn.(*net.UnixConn)
	if !ok || c.taken || len(c.files) > 0 {
		return c.Conn.Read(b) // the kernel closes descriptors that are not received
	}
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, _, _, err := u.ReadMsgUnix(b, oob)
	if oobn > 0 {
		messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			for _, fd := range fds {
				c.files = append(c.files, os.NewFile(uintptr(fd), "stream"))
			}
		}
	}
	if n == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// SyscallConn implements syscall.Conn, so that a frame can be written without waiting.
func (c *fileConn) SyscallConn() (syscall.RawConn, error) {
	s, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return s.SyscallConn()
}

// take returns the descriptors, which belong to the caller.
func (c *fileConn) take() []*os.File {
	files := c.files
	c.files, c.taken = nil, true
	return files
}

func (c *fileConn) close() {
	for _, f := range c.take() {
		_ = f.Close()
	}
}

// execProc is the worker's side of a command.
type execProc struct {
	conn   net.Conn
	tty    bool
	stdin  *os.File // with a terminal, all three are its master
	stdout *os.File
	stderr *os.File

	done chan struct{}
	exit run.ExecExit // set before done is closed

	sending sync.Mutex
	closing sync.Once
}

var _ run.ExecProc = (*execProc)(nil)

// exec starts a command through a connection of its own.
func (c *Client) exec(ctx context.Context, sc *shimConn, id muster.AttemptID, x *run.ExecSpec) (_ run.ExecProc, err error) {
	p := &execProc{tty: x.TTY, done: make(chan struct{})}
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			p.closeStreams()
		}
	}()
	if files, err = p.openStreams(x); err != nil {
		what := "the streams of the command"
		if x.TTY {
			what = "a terminal for the command"
		}
		return nil, &run.ExecError{Message: fmt.Sprintf("cannot create %s: %v", what, err)}
	}
	frame := &wire.ExecFrame{Attempt: id, Argv: x.Argv, Env: x.Env, Dir: x.Dir, TTY: x.TTY}
	if err := c.sendExec(sc, p, frame, files); err != nil {
		return nil, &run.ExecError{Message: fmt.Sprintf("cannot reach the supervisor (shim) of task %s: %v", id.Task, err)}
	}
	stop := context.AfterFunc(ctx, func() { _ = p.conn.Close() })
	defer stop()
	in := wire.NewFrameReader(p.conn)
	_ = p.conn.SetReadDeadline(time.Now().Add(execReplyTimeout))
	var f wire.ToWorker
	if err := in.Next(&f); err != nil || f.Exec == nil {
		_ = p.conn.Close()
		return nil, &run.ExecError{Message: fmt.Sprintf("the supervisor (shim) of task %s does not respond: %v", id.Task, err)}
	}
	if !f.Exec.Started {
		_ = p.conn.Close()
		return nil, &run.ExecError{Code: f.Exec.Code, Message: f.Exec.Error}
	}
	_ = p.conn.SetReadDeadline(time.Time{})
	c.wg.Go(func() { p.awaitExit(in) })
	return p, nil
}

// openStreams creates the streams and returns the command's ends.
func (p *execProc) openStreams(x *run.ExecSpec) ([]*os.File, error) {
	if x.TTY {
		master, slave, err := pty.Open()
		if err != nil {
			return nil, err
		}
		p.stdin, p.stdout = master, master
		files := []*os.File{slave}
		for range 2 {
			fd, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return files, err
			}
			files = append(files, os.NewFile(uintptr(fd), "terminal"))
		}
		return files, pty.Resize(master, x.Rows, x.Columns)
	}
	var files []*os.File
	if x.Stdin {
		r, w, err := newInputPipe()
		if err != nil {
			return files, err
		}
		p.stdin, files = w, append(files, r)
	} else {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return files, err
		}
		files = append(files, null)
	}
	for _, end := range []**os.File{&p.stdout, &p.stderr} {
		r, w, err := newPipe()
		if err != nil {
			return files, err
		}
		*end, files = r, append(files, w)
	}
	return files, nil
}

// newInputPipe creates a pipe with a writing end for the runtime's poller, and a blocking reading end, as programs expect.
func newInputPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "input"), os.NewFile(uintptr(fds[1]), "input"), nil
}

// sendExec opens the connection and sends the first frame with the descriptors.
func (c *Client) sendExec(sc *shimConn, p *execProc, f *wire.ExecFrame, files []*os.File) error {
	c.mu.Lock()
	s := c.inProcess
	c.mu.Unlock()
	if s != nil && c.cfg.Command == nil {
		local, remote := net.Pipe()
		p.conn = local
		dups := make([]*os.File, len(files))
		for i, file := range files {
			fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return err
			}
			dups[i] = os.NewFile(uintptr(fd), file.Name())
		}
		s.wg.Go(func() { s.serveExec(remote, wire.NewFrameReader(remote), dups, f) })
		return nil
	}
	conn, err := sc.dir.dial()
	if err != nil {
		return err
	}
	p.conn = conn
	b, err := wire.AppendFrame(nil, &wire.ToShim{Hello: &wire.Hello{Protocol: wire.Protocol, Key: sc.dir.key}, Exec: f})
	if err != nil {
		return err
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.ErrUnsupported
	}
	fds := make([]int, len(files))
	for i, file := range files {
		fds[i] = int(file.Fd())
	}
	_ = conn.SetWriteDeadline(time.Now().Add(execReplyTimeout))
	n, _, err := u.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err == nil && n < len(b) {
		_, err = conn.Write(b[n:])
	}
	if err != nil {
		_ = conn.Close()
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return err
}

func (p *execProc) awaitExit(in *wire.FrameReader) {
	defer close(p.done)
	var f wire.ToWorker
	if err := in.Next(&f); err != nil || f.Exec == nil || f.Exec.Exit == nil {
		p.exit = run.ExecExit{Code: -1, Error: "the connection to the task's supervisor (shim) ended"}
		return
	}
	p.exit = *f.Exec.Exit
	_ = p.conn.Close()
}

// Stdin implements run.ExecProc.
func (p *execProc) Stdin() io.WriteCloser {
	switch {
	case p.tty:
		return terminalInput{p.stdin}
	case p.stdin == nil:
		return discard{}
	}
	return p.stdin
}

// terminalInput is the input of a terminal, which ends with its character for that.
type terminalInput struct{ *os.File }

// Close implements io.Closer.
func (t terminalInput) Close() error {
	_, err := t.Write([]byte{4})
	return err
}

// discard is the input of a command without one.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// Stdout implements run.ExecProc.
func (p *execProc) Stdout() io.Reader {
	if p.tty {
		return terminalOutput{p.stdout}
	}
	return p.stdout
}

// Stderr implements run.ExecProc.
func (p *execProc) Stderr() io.Reader {
	if p.tty {
		return nil
	}
	return p.stderr
}

// terminalOutput is the output of a terminal, which ends with an error when no process has it open any more.
type terminalOutput struct{ *os.File }

// Read implements io.Reader.
func (t terminalOutput) Read(b []byte) (int, error) {
	n, err := t.File.Read(b)
	if errors.Is(err, unix.EIO) {
		err = io.EOF
	}
	return n, err
}

// WriteTo would copy with File's own error at the end.
func (t terminalOutput) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{t})
}

// Resize implements run.ExecProc.
func (p *execProc) Resize(rows, columns int) error {
	if !p.tty {
		return nil
	}
	return pty.Resize(p.stdout, rows, columns)
}

// Signal implements run.ExecProc.
func (p *execProc) Signal(name string) error {
	b, err := wire.AppendFrame(nil, &wire.ToShim{Signal: name})
	if err != nil {
		return err
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(execReplyTimeout))
	_, err = io.Copy(p.conn, bytes.NewReader(b))
	return err
}

// Wait implements run.ExecProc.
func (p *execProc) Wait() run.ExecExit {
	<-p.done
	return p.exit
}

// Close implements run.ExecProc.
func (p *execProc) Close() error {
	p.closing.Do(func() {
		_ = p.conn.Close()
		p.closeStreams()
	})
	return nil
}

func (p *execProc) closeStreams() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close() // with a terminal, more than once
		}
	}
}
