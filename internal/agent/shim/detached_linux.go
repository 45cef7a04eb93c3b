package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/tasklog"
)

// outlives says whether there are shims that outlive the worker on this system.
const outlives = true

// selfPath is the file that this process executes, whatever has taken its place.
func selfPath(string) string { return "/proc/self/exe" }

// listenerFD is the number under which a shim finds what it listens on.
const listenerFD = 3

// maxShimLog is how large the file may be in which shims complain before a new one is
// begun.
const maxShimLog = 1 << 20

// spawn starts a shim and returns a connection with it, and what waits for the end of
// one that is a part of this process. The shim gets a socket that listens already, so that there is no moment in which it lives
// and cannot be reached.
func (c *Client) spawn(d *stateDir) (net.Conn, func(), error) {
	if c.cfg.Command == nil {
		return c.startInProcess(d)
	}
	listener, err := d.listen()
	if err != nil {
		return nil, nil, run.Failf(muster.WorkerInternal, "the shim cannot listen: %w", err)
	}
	defer listener.Close()
	log, err := d.openLog()
	if err != nil {
		return nil, nil, run.Failf(muster.WorkerInternal, "the log of shims cannot be opened: %w", err)
	}
	defer log.Close()
	args := append(append([]string(nil), c.cfg.Command[1:]...), d.path, d.data, c.cfg.Build)
	cmd := exec.Command(c.cfg.Command[0], args...) //nolint:noctx // it is to outlive whoever starts it
	cmd.Args[0] = "muster"
	cmd.Dir = "/"
	cmd.Env = environ()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, run.Failf(muster.WorkerInternal, "the shim that would stand by the task cannot be started: %w", err)
	}
	conn, err := d.dial()
	if err != nil {
		return nil, nil, errors.Join(run.Failf(muster.WorkerInternal, "the shim cannot be reached: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	go func() { _ = cmd.Wait() }() // that it ended is seen on the line; it may outlive this process, so nobody waits for this
	return conn, func() {}, nil
}

// environ is what a shim sees of the worker's environment: nothing that a task which
// can read it should not know.
func environ() []string {
	var env []string
	for _, name := range []string{"PATH", "TZ", "LANG", "LC_ALL", "TMPDIR", "GODEBUG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func (d *stateDir) openLog() (*os.File, error) {
	if info, err := os.Stat(d.logPath()); err == nil && info.Size() > maxShimLog {
		_ = os.Rename(d.logPath(), d.logPath()+".1") // else it grows on
	}
	return os.OpenFile(d.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// withSocketAddr calls f with an address of the home's socket. The paths of sockets are short,
// those of data dirs need not be: the folder is named by an open file.
func (d *stateDir) withSocketAddr(f func(addr *unix.SockaddrUnix) error) error {
	dir, err := unix.Open(d.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	return f(&unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(dir) + "/" + sockFile})
}

// socket makes one and does something with it.
func (d *stateDir) socket(do func(fd int, addr *unix.SockaddrUnix) error) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := d.withSocketAddr(func(addr *unix.SockaddrUnix) error { return do(fd, addr) }); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.path, sockFile)), nil
}

func (d *stateDir) listen() (*os.File, error) {
	return d.socket(func(fd int, addr *unix.SockaddrUnix) error {
		if err := unix.Bind(fd, addr); err != nil {
			return err
		}
		return unix.Listen(fd, 8)
	})
}

// dial connects with the shim; it fails if none lives here.
func (d *stateDir) dial() (net.Conn, error) {
	f, err := d.socket(func(fd int, addr *unix.SockaddrUnix) error { return unix.Connect(fd, addr) })
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// Main is the program of a shim: args are the folder of its own, the worker's data dir
// and the build. It returns when it is of no use any more.
func Main(args []string) error {
	if len(args) != 3 {
		return muster.Errorf(muster.Invalid, "this command is for the worker itself, which starts it when it needs it")
	}
	d := &stateDir{path: args[0], data: args[1]}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With(slog.Int("shim", os.Getpid()))
	if err := runShim(d, args[2], log, nil); err != nil {
		log.Error("the shim ends", slog.Any("error", err))
		return err
	}
	return nil
}

// runShim is a shim's life. tune, if it is not nil, changes the server, as tests do.
func runShim(d *stateDir, build string, log *slog.Logger, tune func(*server)) error {
	_ = os.WriteFile("/proc/self/comm", []byte("muster-shim"), 0) // for those who look at the list of processes; else it is "exe"
	f := os.NewFile(listenerFD, "listener")
	listener, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("there is nothing to listen on: %w", err)
	}
	_ = f.Close()
	key, err := os.ReadFile(filepath.Join(d.path, keyFile))
	if err != nil {
		return err
	}
	logs, err := tasklog.OpenDir(filepath.Join(d.data, "logs"))
	if err != nil {
		return err
	}
	record, err := proctree.CreatePIDFile(d.path)
	if err != nil {
		return err
	}
	s, err := newServer(logs, record, build, string(key), log)
	if err != nil {
		return err
	}
	if tune != nil {
		tune(s)
	}
	s.reapsOrphans = true
	s.helper = []string{selfPath(""), NSInitCommand}
	signals := make(chan os.Signal, 1) // from when anybody can know whom to tell
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := d.writePID(s.self); err != nil {
		return err
	}
	handle, err := d.openHandle()
	if err != nil {
		return err
	}
	defer handle.close()
	s.dirDeleted = handle.deleted
	var wg sync.WaitGroup
	wg.Go(func() { accept(listener, s, &wg) })
	wg.Go(func() {
		for sig := range signals {
			if sig == syscall.SIGHUP {
				continue // whoever hung up is none of a task's business
			}
			log.Warn("told to end: stopping all tasks")
			s.stopAll()
		}
	})
	s.run(context.Background(), true)
	signal.Stop(signals)
	close(signals)
	// Who comes now finds no home, and nothing is lost with it.
	if !handle.deleted() { // else another one may be at its path
		d.remove(log)
	}
	_ = listener.Close()
	return errors.Join(record.Close(), logs.Close())
}

// rejectLogInterval is how often it is said that somebody is refused: a task could fill the
// disk with it.
const rejectLogInterval = time.Minute

// accept serves whoever comes; the last one counts.
func accept(l net.Listener, s *server, wg *sync.WaitGroup) {
	var lastLogged time.Time
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: it is tried again
			time.Sleep(tickInterval)
			continue
		}
		if !trusted(conn) {
			if time.Since(lastLogged) > rejectLogInterval {
				lastLogged = time.Now()
				s.log.Warn("a connection of a task, or of another user, is refused")
			}
			_ = conn.Close()
			continue
		}
		wg.Go(func() { s.protect("it talked to the worker", func() { s.serve(conn) }) })
	}
}

// trusted reports whether the process that connected is of the shim's own user, or of root,
// and no task's: a sandbox does not keep those from the socket.
func trusted(conn net.Conn) bool {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return false
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return false
	}
	return !proctree.IsDescendant(int(cred.Pid), os.Getpid())
}

// noListener reports whether an error of dial says that no shim is there.
func noListener(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}
