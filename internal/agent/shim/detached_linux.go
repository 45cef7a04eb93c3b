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

// outlives is whether shims outlive the worker on this system.
const outlives = true

// selfPath returns the path of the executable, even if the file was replaced.
func selfPath(string) string { return "/proc/self/exe" }

// listenerFD is the descriptor of a shim's listener.
const listenerFD = 3

// maxShimLog is the size of shim.log in bytes after which it is rotated.
const maxShimLog = 1 << 20

// spawn starts a shim. It returns a connection, and a function that waits for the end of a shim in this process. A shim process inherits a
// listening socket, so that it is always reachable.
func (c *Client) spawn(d *stateDir) (net.Conn, func(), error) {
	if c.cfg.Command == nil {
		return c.startInProcess(d)
	}
	listener, err := d.listen()
	if err != nil {
		return nil, nil, run.Failf(muster.WorkerInternal, "cannot listen for the shim: %w", err)
	}
	defer listener.Close()
	log, err := d.openLog()
	if err != nil {
		return nil, nil, run.Failf(muster.WorkerInternal, "cannot open the log of shims: %w", err)
	}
	defer log.Close()
	args := append(append([]string(nil), c.cfg.Command[1:]...), d.path, d.data, c.cfg.Build)
	cmd := exec.Command(c.cfg.Command[0], args...) //nolint:noctx // it outlives this process
	cmd.Args[0] = "muster"
	cmd.Dir = "/"
	cmd.Env = environ()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, run.Failf(muster.WorkerInternal, "cannot start the task's supervisor (shim): %w", err)
	}
	conn, err := d.dial()
	if err != nil {
		return nil, nil, errors.Join(run.Failf(muster.WorkerInternal, "cannot reach the shim: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	go func() { _ = cmd.Wait() }() // it may outlive this process; its exit closes the connection
	return conn, func() {}, nil
}

// environ returns the part of the worker's environment that a shim gets: tasks may be able to read it, so it has no secrets.
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
		_ = os.Rename(d.logPath(), d.logPath()+".1") // else it keeps growing
	}
	return os.OpenFile(d.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// socket creates a socket and calls do with it and the address of the shim's socket. The path goes through an open directory, since paths of
// sockets are limited to about 100 bytes.
func (d *stateDir) socket(do func(fd int, addr *unix.SockaddrUnix) error) (*os.File, error) {
	dir, err := unix.Open(d.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := do(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(dir) + "/" + sockFile}); err != nil {
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

// dial connects to the shim; it fails if none runs.
func (d *stateDir) dial() (net.Conn, error) {
	f, err := d.socket(func(fd int, addr *unix.SockaddrUnix) error { return unix.Connect(fd, addr) })
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// Main is the program of a shim. args are its state directory, the worker's data dir, and the build. It returns when the shim is not needed
// any more.
func Main(args []string) error {
	if len(args) != 3 {
		return muster.Errorf(muster.Invalid, "internal command: the worker starts it")
	}
	d := &stateDir{path: args[0], data: args[1]}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With(slog.Int("shim", os.Getpid()))
	if err := runShim(d, args[2], log, nil); err != nil {
		log.Error("shim failed", slog.Any("error", err))
		return err
	}
	return nil
}

// runShim runs a shim until its end. tune may change the server, for tests; it may be nil.
func runShim(d *stateDir, build string, log *slog.Logger, tune func(*server)) error {
	_ = os.WriteFile("/proc/self/comm", []byte("muster-shim"), 0) // the process name; else it is "exe"
	f := os.NewFile(listenerFD, "listener")
	listener, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("no listener: %w", err)
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
	signals := make(chan os.Signal, 1) // before the PID is published
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := d.writePID(s.self); err != nil {
		return err
	}
	handle, err := d.openHandle()
	if err != nil {
		return err
	}
	defer func() { _ = handle.dir.Close() }()
	s.dirDeleted = handle.deleted
	var wg sync.WaitGroup
	wg.Go(func() { accept(listener, s, &wg) })
	wg.Go(func() {
		for sig := range signals {
			if sig == syscall.SIGHUP {
				continue // a closed terminal does not concern the tasks
			}
			log.Warn("received a signal, stopping all tasks")
			s.stopAll()
		}
	})
	s.run(context.Background(), true)
	signal.Stop(signals)
	close(signals)
	// A worker that connects now finds no state directory, and nothing is lost.
	if !handle.deleted() { // else its path may belong to another shim
		d.remove(log)
	}
	_ = listener.Close()
	return errors.Join(record.Close(), logs.Close())
}

// rejectLogInterval is the minimum time between log messages about rejected connections: a task could fill the disk with them.
const rejectLogInterval = time.Minute

// accept serves all connections; the last one displaces the others.
func accept(l net.Listener, s *server, wg *sync.WaitGroup) {
	var lastLogged time.Time
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			time.Sleep(tickInterval)
			continue
		}
		if !trusted(conn) {
			if time.Since(lastLogged) > rejectLogInterval {
				lastLogged = time.Now()
				s.log.Warn("connection of a task or another user rejected")
			}
			_ = conn.Close()
			continue
		}
		wg.Go(func() { s.protect("serving the worker", func() { s.serve(conn) }) })
	}
}

// trusted reports whether the connected process belongs to the shim's user or root, and not to a task: a sandbox does not block the socket.
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

// noListener reports whether an error of dial means that no shim is running.
func noListener(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}

func fileIDOf(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, err
	}
	return fileID{Dev: st.Dev, Ino: st.Ino}, nil
}

// dirHandle keeps a shim's directory open, even if it is moved, to notice when workers can no longer connect.
type dirHandle struct {
	dir    *os.Root
	socket os.FileInfo
}

func (d *stateDir) openHandle() (*dirHandle, error) {
	dir, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, err
	}
	a := &dirHandle{dir: dir}
	if a.socket, err = dir.Lstat(sockFile); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return a, nil
}

// deleted reports whether the directory or its socket was deleted. It is false if the disk is temporarily unreadable.
func (a *dirHandle) deleted() bool {
	now, err := a.dir.Lstat(sockFile)
	return errors.Is(err, unix.ENOENT) || err == nil && !os.SameFile(now, a.socket)
}

// newPipe creates a pipe with a reading end for the runtime's poller, and a blocking writing end, as programs expect.
func newPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output"), nil
}
