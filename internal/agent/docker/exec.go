package docker

import (
	"bufio"
	"context"
	"net"

	"github.com/moby/moby/client"
)

// ExecOptions is a command for a running container.
type ExecOptions struct {
	Argv          []string
	Env           []string // in addition to the container's
	Dir           string   // "" means the container's
	TTY           bool
	Stdin         bool
	Rows, Columns int // of the terminal; 0 for the engine's default
}

// Exec is a command that an engine started in a container, as the container's user. It is not ended with the connection.
type Exec struct {
	engine *Engine
	id     string
	conn   net.Conn
	reader *bufio.Reader
	close  func() error // of the standard input
}

// Exec starts a command in a running container. An engine may report at the end only that the program does not exist.
func (e *Engine) Exec(ctx context.Context, id string, o *ExecOptions) (*Exec, error) {
	const doing = "the command cannot be started"
	var size client.ConsoleSize
	if o.TTY && o.Rows > 0 && o.Columns > 0 {
		size = client.ConsoleSize{Height: uint(o.Rows), Width: uint(o.Columns)}
	}
	created, err := e.api.Load().ExecCreate(ctx, id, client.ExecCreateOptions{
		TTY: o.TTY, ConsoleSize: size, AttachStdin: o.Stdin || o.TTY, AttachStdout: true, AttachStderr: true, Env: o.Env, WorkingDir: o.Dir, Cmd: o.Argv,
	})
	if err != nil {
		return nil, e.wrapError(ctx, doing, err)
	}
	res, err := e.api.Load().ExecAttach(ctx, created.ID, client.ExecAttachOptions{TTY: o.TTY, ConsoleSize: size})
	if err != nil {
		return nil, e.wrapError(ctx, doing, err)
	}
	return &Exec{engine: e, id: created.ID, conn: res.Conn, reader: res.Reader, close: res.CloseWrite}, nil
}

// Write writes to the standard input.
func (x *Exec) Write(b []byte) (int, error) { return x.conn.Write(b) }

// CloseInput ends the standard input.
func (x *Exec) CloseInput() error { return x.close() }

// Output returns the output in frames, without a terminal.
func (x *Exec) Output() *Output { return newOutput(x.reader, x.conn) }

// Read reads the output of a terminal.
func (x *Exec) Read(b []byte) (int, error) { return x.reader.Read(b) }

// Close closes the connection.
func (x *Exec) Close() error { return x.conn.Close() }

// Resize sets the size of the terminal.
func (x *Exec) Resize(ctx context.Context, rows, columns int) error {
	_, err := x.engine.api.Load().ExecResize(ctx, x.id, client.ExecResizeOptions{Height: uint(rows), Width: uint(columns)})
	return x.engine.wrapError(ctx, "the terminal cannot be resized", err)
}

// ExecState is the state of a command.
type ExecState struct {
	Running  bool
	ExitCode int
	PID      int // on the engine's machine
}

// State returns the state of the command.
func (x *Exec) State(ctx context.Context) (ExecState, error) {
	s, err := x.engine.api.Load().ExecInspect(ctx, x.id, client.ExecInspectOptions{})
	return ExecState{Running: s.Running, ExitCode: s.ExitCode, PID: s.PID}, x.engine.wrapError(ctx, "the command cannot be inspected", err)
}
