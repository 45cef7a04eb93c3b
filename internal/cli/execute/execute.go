// Package execute has the commands that work inside running tasks: exec, shell and cp.
package execute

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/urfave/cli/v3"
	xterm "golang.org/x/term"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/execwire"
)

type runner struct{ *app.App }

// Commands returns the commands.
func Commands(a *app.App) []*cli.Command {
	r := &runner{a}
	return []*cli.Command{r.execCommand(), r.shellCommand(), r.copyCommand()}
}

const access = "It may be used with the key that submitted the job, and by administrators."

type execConfig struct {
	remote.ServerOptions
	env         []string
	workdir     string
	interactive *bool // nil: on a terminal
	tty         *bool // nil: on a terminal
	shell       bool  // the command is the default shell
}

// or returns the value of an option that is decided by the terminal unless it is set.
func or(o *bool, v bool) bool {
	if o != nil {
		return *o
	}
	return v
}

func (r *runner) execCommand() *cli.Command {
	c := &execConfig{}
	cmd := r.NewCommand(app.Command{
		Name: "exec", Usage: "Run a command in a running task", Args: "TASK [--] CMD [ARG…]", Complete: c.CompleteRunning("").Once(), Category: app.CategoryWatch, StopAtFirstArg: true,
		Flags: append([]cli.Flag{
			app.Option{Name: "env", Short: "e", Value: "NAME=VALUE", Usage: "Environment variable of the command; may be repeated"}.RepeatedVar(&c.env),
			app.Option{Name: "interactive", Short: "i", Usage: "Pass standard input to the command (default: on a terminal)"}.OptionalBoolVar(&c.interactive),
			app.Option{Name: "tty", Short: "t", Usage: "Give the command a terminal (default: on a terminal)"}.OptionalBoolVar(&c.tty),
			app.Option{Name: "workdir", Short: "w", Value: "path", Usage: "Working directory (default: that of the task)"}.StringVar(&c.workdir),
		}, c.Flags()...),
		Description: "The command runs in the task's sandbox or container, as its user, within its limits, and ends with the task. " + access +
			" The exit status is the command's, 126 or 127 if it cannot be executed, 137 if the task ended, or 125 if the connection was lost.",
		Examples: []app.HelpRow{
			{Name: "muster exec 17.3 -- nvidia-smi", Usage: "Run a program in task 3 of job 17"},
			{Name: "muster exec last -- ps aux", Usage: "Run one in the only running task of the newest job"},
			{Name: "muster exec -i 17 -- sh -c 'cat > more.txt' < more.txt", Usage: "Pass standard input"},
		},
		ForeignOptions: map[string]string{
			"u": "commands run as the task's user, omit it", "user": "commands run as the task's user, omit it",
			"privileged": "commands have the rights of the task, omit it", "c": "a task has one container, omit it", "container": "a task has one container, omit it",
			"n": "use --project of the job's key, omit it", "d": "commands end with the client; start a daemon from a shell instead",
		},
		Run: func(ctx context.Context, args []string) error {
			if len(args) > 1 && args[1] == "--" {
				args = slices.Delete(args, 1, 2)
			}
			if len(args) < 2 {
				return muster.Errorf(muster.Invalid, "missing task or command: use muster exec TASK -- CMD, or muster shell TASK")
			}
			interactive := or(c.interactive, r.onTerminal())
			return r.execute(ctx, c, args[0], interactive, func(bool) []string { return args[1:] })
		},
	})
	cmd.UseShortOptionHandling = true // -it
	return cmd
}

func (r *runner) shellCommand() *cli.Command {
	c := &execConfig{}
	shell := ""
	return r.NewCommand(app.Command{
		Name: "shell", Usage: "Open a shell in a running task", Args: "TASK", Complete: c.CompleteRunning("").Once(), Category: app.CategoryWatch,
		Flags: append([]cli.Flag{
			app.Option{Name: "shell", Value: "program", Usage: "Program to start (default: bash if the task has it, else sh)"}.StringVar(&shell),
		}, c.Flags()...),
		Description: "The shell runs in the task's sandbox or container, as its user, within its limits, and ends with the task. " + access +
			" Its standard input may also be a script.",
		Examples: []app.HelpRow{{Name: "muster shell 17.3", Usage: "Look around in task 3 of job 17"}},
		Run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return muster.Errorf(muster.Invalid, "use muster shell TASK; to run a command, muster exec TASK -- CMD")
			}
			c.shell = shell == ""
			return r.execute(ctx, c, args[0], true, func(tty bool) []string {
				if shell != "" {
					return []string{shell}
				}
				return []string{"/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh"}
			})
		},
	})
}

// onTerminal reports whether a person sits at both ends.
func (r *runner) onTerminal() bool {
	return xterm.IsTerminal(int(os.Stdin.Fd())) && xterm.IsTerminal(int(os.Stdout.Fd()))
}

// findTask returns the task that an argument selects: one that runs, unless it is named.
func findTask(ctx context.Context, server *client.Client, arg string) (muster.TaskID, error) {
	sels, err := remote.ResolveSelectors(ctx, server, []string{arg})
	if err != nil {
		return muster.TaskID{}, err
	}
	if id, ok := sels[0].Task(); ok {
		return id, nil
	}
	const enough = 2
	running, err := remote.Collect(remote.TasksPage(ctx, server, sels, []muster.TaskState{muster.Running}, enough), enough)
	switch {
	case err != nil:
		return muster.TaskID{}, err
	case len(running) == 0:
		return muster.TaskID{}, muster.Errorf(muster.Conflict, "job %s has no running task: commands run only in running tasks (muster tasks %s)", sels[0], sels[0])
	case len(running) > 1:
		return muster.TaskID{}, muster.Errorf(muster.Invalid, "job %s has several running tasks: choose one, such as %s (muster tasks %s --state running)", sels[0], running[0].ID, sels[0])
	}
	return running[0].ID, nil
}

// execute runs a command. argv returns it, given whether it has a terminal.
func (r *runner) execute(ctx context.Context, c *execConfig, task string, interactive bool, argv func(tty bool) []string) error {
	tty := or(c.tty, interactive && r.onTerminal())
	if tty && !xterm.IsTerminal(int(os.Stdin.Fd())) {
		return muster.Errorf(muster.Invalid, "--tty needs a terminal as standard input: omit it")
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	id, err := findTask(ctx, server, task)
	if err != nil {
		return err
	}
	start := &execwire.Start{Command: &execwire.Command{Argv: argv(tty), Env: c.env, Dir: c.workdir, TTY: tty, Stdin: interactive || tty}}
	if tty {
		start.Command.Size, start.Command.Term = terminalSize(), cmp.Or(os.Getenv("TERM"), "xterm")
	}
	if err := start.Check(); err != nil {
		return err
	}
	conn, err := server.Exec(ctx, id, start)
	if err != nil {
		return err
	}
	s := &session{runner: r, id: id, conn: conn, shell: c.shell, ready: make(chan struct{})}
	return s.run(ctx, start.Command)
}

// session is one connection.
type session struct {
	*runner
	id    muster.TaskID
	conn  *execwire.Conn
	shell bool
	once  sync.Once
	ready chan struct{} // closed when the command runs

	exit *execwire.Exit // set by handle
	fail error          // set by handle
}

// handle handles a frame of the worker.
func (s *session) handle(f *execwire.Frame) error {
	switch {
	case f.Ready:
		s.once.Do(func() { close(s.ready) })
	case f.Note != "":
		s.Warnf("%s", f.Note)
	case f.Error != nil:
		s.fail = f.Error.Err()
		return io.EOF
	case f.Exit != nil:
		s.exit = f.Exit
		return io.EOF
	}
	return nil
}

// run runs a command until it or the connection has ended, and returns its exit status as an error.
func (s *session) run(ctx context.Context, x *execwire.Command) error {
	restore := func() {}
	if x.TTY {
		state, err := xterm.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return muster.Errorf(muster.Internal, "cannot switch the terminal to raw mode: %w", err)
		}
		restore = func() { _ = xterm.Restore(int(os.Stdin.Fd()), state) }
	}
	defer restore()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.forwardSignals(ctx, cancel, x.TTY)()
	var outputs sync.WaitGroup
	outputs.Go(func() { copyOutput(s.Out, s.conn.Reader(ctx, execwire.Stdout), x.TTY) })
	outputs.Go(func() { copyOutput(s.Err, s.conn.Reader(ctx, execwire.Stderr), x.TTY) })
	if x.Stdin {
		go s.copyInput(ctx) // a read of a terminal cannot be interrupted; it ends with the process
	}
	err := s.conn.Run(ctx, s.handle)
	if s.exit == nil {
		cancel() // else the readers end after all data
	}
	outputs.Wait()
	restore()
	return s.result(err)
}

// copyOutput copies the output of a command. On a terminal, one with a terminal of its own controls the screen, and no other part of it. It
// ignores errors: Run notices the end of the connection.
func copyOutput(out term.Screen, in io.Reader, tty bool) {
	mode := term.Text
	if tty {
		mode = term.Interactive
	}
	filter := out.NewFilter(mode)
	if filter == nil {
		_, _ = io.Copy(out.Writer, in)
		return
	}
	_, _ = io.Copy(filter, in)
	_ = filter.Close()
}

func (s *session) copyInput(ctx context.Context) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return
	}
	w := s.conn.Writer(ctx, execwire.Stdin)
	if _, err := io.Copy(struct{ io.Writer }{w}, os.Stdin); err == nil {
		_ = w.Close() // Run notices the end of the connection
	}
}

// result converts the end of a connection.
func (s *session) result(err error) error {
	switch {
	case s.exit != nil && s.exit.TaskEnded:
		return &app.StatusError{Status: exitTaskEnded, Err: muster.Errorf(muster.Conflict, "task %s has ended", s.id)}
	case s.exit != nil && s.exit.Code == 0:
		return nil
	case s.exit != nil && s.shell && !s.running() && s.exit.Code == exitNotFound:
		return &app.StatusError{Status: s.exit.Code, Err: muster.Errorf(muster.NotFound, "task %s has no shell: run one of its programs with muster exec, or use --shell", s.id)}
	case s.exit != nil:
		return &app.StatusError{Status: s.exit.Code}
	case s.fail != nil && !s.running():
		return s.fail
	case s.fail != nil:
		err = s.fail
	case errors.Is(err, context.Canceled):
		return &app.StatusError{Status: app.ExitCancelled}
	}
	return &app.StatusError{Status: app.ExitFleetFault, Err: muster.Errorf(muster.Unavailable, "the connection to task %s was lost: %w", s.id, err)}
}

// exitNotFound is the exit status of a program that does not exist, as a shell's.
const exitNotFound = 127

// exitTaskEnded is the exit status of a command that was killed with its task.
const exitTaskEnded = 128 + 9

func (s *session) running() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// forwardSignals passes signals to the command, with a terminal its size. Without one, a second Ctrl-C ends the connection.
func (s *session) forwardSignals(ctx context.Context, cancel context.CancelFunc, tty bool) (stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	ctx, end := context.WithCancel(ctx)
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		interrupts := 0
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-signals:
				name := signalNames[sig]
				if tty || sig != os.Interrupt && !s.running() {
					cancel() // the terminal itself sends Ctrl-C; others end this program
					return
				}
				if sig == os.Interrupt {
					if interrupts++; interrupts > 1 || !s.running() {
						cancel()
						return
					}
				}
				_ = s.conn.Send(ctx, &execwire.Frame{Signal: name}) // Run notices the end of the connection
			}
		}
	})
	if tty {
		forwarding.Go(func() {
			watchSize(ctx, func() {
				size := terminalSize()
				_ = s.conn.Send(ctx, &execwire.Frame{Resize: &size})
			})
		})
	}
	return func() {
		signal.Stop(signals)
		end()
		forwarding.Wait()
	}
}

var signalNames = map[os.Signal]string{
	os.Interrupt: "SIGINT", syscall.SIGTERM: "SIGTERM", syscall.SIGQUIT: "SIGQUIT", syscall.SIGHUP: "SIGHUP",
}

func terminalSize() execwire.Size {
	columns, rows, err := xterm.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return execwire.Size{}
	}
	return execwire.Size{Rows: rows, Columns: columns}
}

// splitRemote splits TASK:PATH. It is false for a local path, which contains a slash before the first colon, or none.
func splitRemote(arg string) (task, path string, ok bool) {
	task, path, ok = strings.Cut(arg, ":")
	if !ok || strings.Contains(task, "/") {
		return "", "", false
	}
	if _, err := remote.ParseSelector(task); err != nil {
		return "", "", false
	}
	return task, path, true
}
