package modelpool

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// Names of a server's log, in its folder, and of the record beside the folder.
const (
	logFile      = "log"
	recordSuffix = ".json"
)

// maxLog is the size in bytes at which a server's log is truncated.
const maxLog = 1 << 20

const killTimeout = 5 * time.Second

// oomScore makes a kernel short of memory kill model servers before tasks.
const oomScore = "900"

// record is what the next incarnation of the worker needs to recover a server.
type record struct {
	Request
	Sock      string             `json:"sock"` // the name of its socket
	Proc      run.Pid            `json:"proc"`
	Isolation *run.IsolationSpec `json:"confine,omitempty"`
}

type server struct {
	record
	id        muster.AttemptID // identifies it to devices and control groups: of job 0, which does not exist
	dir       string
	ready     chan struct{} // closed when it answers, or its start has failed
	exited    chan struct{} // closed when a child of this process was reaped
	released  chan struct{} // closed when all of its resources are released
	child     bool          // it is a child of this process
	holdsGPUs bool          // it has acquired its devices

	users int       // guarded by Pool.mu
	used  time.Time // end of the last use; guarded by Pool.mu
}

func newServer(data string, number int, want *Request) *server {
	s := &server{record: record{Request: *want, Sock: rand.Text()}, used: time.Now()}
	s.setNumber(data, number)
	return s
}

func (s *server) setNumber(data string, setNumber int) {
	s.id = muster.AttemptID{Task: muster.TaskID{Num: setNumber}, N: 1}
	s.dir = filepath.Join(poolDir(data), strconv.Itoa(setNumber))
	s.Proc = run.Pid{BootID: proctree.BootID(), EnvTag: s.envTag()} // until the process is known
	s.ready, s.exited, s.released = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// socket returns a path that cannot be guessed: other tasks, such as those without network, could escape through it. Sandboxes do not
// allow tasks to list the folder.
func (s *server) socket() string { return filepath.Join(s.dir, s.Sock) }

// matches reports whether a running server can be used for want.
func (s *server) matches(want *Request) bool {
	return slices.Equal(s.Argv, want.Argv) && slices.Equal(s.Env, want.Env) && slices.Equal(s.ReadDirs, want.ReadDirs) && slices.Equal(s.WriteDirs, want.WriteDirs) &&
		(s.Memory == 0 || want.Memory > 0 && s.Memory >= want.Memory) && slices.Equal(s.GPUs, want.GPUs)
}

func (s *server) envTag() string { return envTagOf(s.dir) }

// envTagOf returns the environment entry that identifies the processes of the server with this folder.
func envTagOf(dir string) string { return "MUSTER_WARM_HOST=" + dir }

func (s *server) grant() *muster.Grant { return &muster.Grant{GPUs: s.GPUs} }

// start starts the process and waits until it answers.
func (s *server) start(ctx context.Context, cfg *Config, w timeouts) error {
	tmp := filepath.Join(s.dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return run.Failf(muster.WorkerInternal, "create the folder of a model server: %w", err)
	}
	if cfg.Isolator != nil {
		task := &run.Task{Attempt: s.id, Group: "warm", Spec: &muster.TaskSpec{}, Grant: muster.Grant{CPUs: s.CPUs, Memory: s.Memory, GPUs: s.GPUs}}
		spec, err := cfg.Isolator.Prepare(task, run.Folders{Base: s.dir, Read: s.ReadDirs, Write: s.WriteDirs})
		if err != nil {
			return err
		}
		s.Isolation = spec
	}
	if cfg.GPUs != nil {
		cfg.GPUs.Acquire(ctx, s.id, s.grant())
		s.holdsGPUs = true
	}
	if err := s.saveRecord(); err != nil { // before the start, so that the next incarnation finds the process by its tag
		return run.Failf(muster.WorkerInternal, "save the record of a model server: %w", err)
	}
	if err := s.spawn(cfg, tmp, w.grace); err != nil {
		return err
	}
	if err := s.saveRecord(); err != nil {
		return run.Failf(muster.WorkerInternal, "save the record of a model server: %w", err)
	}
	return s.waitReady(ctx, w.answer)
}

func (s *server) spawn(cfg *Config, tmp string, grace time.Duration) error {
	log, err := os.OpenFile(filepath.Join(s.dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "open the log of a model server: %w", err)
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "%w", err)
	}
	defer null.Close()
	ttl := cmp.Or(cfg.TTL, 24*time.Hour) + grace
	env := []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	if s.CPUs > 0 {
		env = append(env, "OMP_NUM_THREADS="+strconv.Itoa(int(math.Ceil(s.CPUs))))
	}
	env = append(env, s.Env...)
	env = append(env, "HOME="+tmp, "TMPDIR="+tmp, "PYTHONUNBUFFERED=1",
		"MUSTER_WARM="+s.socket(), "MUSTER_WARM_TTL="+strconv.Itoa(int(ttl.Seconds())), s.envTag())
	if cfg.GPUs != nil {
		env = append(env, cfg.GPUs.Environ(s.grant())...)
	}
	path, err := exec.LookPath(s.Argv[0])
	if err != nil {
		return run.Failf(muster.Dependency, "start the model server: %w", err)
	}
	pid, handle, err := isolation.Spawn(s.Isolation, isolation.Program{Path: path, Argv: s.Argv, Env: env, Dir: s.dir, Stdin: null, Stdout: log, Stderr: log})
	if err != nil {
		return run.Failf(muster.WorkerInternal, "start the model server: %w", err)
	}
	if handle >= 0 {
		_ = os.NewFile(uintptr(handle), "pidfd").Close()
	}
	s.Proc = proctree.Identify(pid)
	s.Proc.EnvTag = s.envTag()
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(oomScore), 0) // best effort
	proc, err := os.FindProcess(pid)                                                   // not reaped yet
	if err != nil {
		return run.Failf(muster.WorkerInternal, "%w", err)
	}
	s.child = true
	go func() { // ends with the process, which may outlive this one
		_, _ = proc.Wait()
		close(s.exited)
	}()
	return nil
}

func (s *server) waitReady(ctx context.Context, timeout time.Duration) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		if s.healthy() {
			return s.openSocket()
		}
		select {
		case <-time.After(pause):
		case <-s.exited:
			return run.Failf(muster.WorkerInternal, "the model server failed: it exited at once%s", s.lastLogLine())
		case <-deadline.C:
			return run.Failf(muster.WorkerInternal, "the model server did not answer within %s%s", timeout, s.lastLogLine())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// openSocket gives tasks, which run as other users, access to the socket if they know its name.
func (s *server) openSocket() error {
	if s.Isolation == nil || s.Isolation.User == nil || !s.Isolation.User.Dynamic {
		return nil
	}
	dir, err := os.OpenRoot(s.dir) // its content is not trusted
	if err != nil {
		return run.Failf(muster.WorkerInternal, "open the folder of a model server to tasks: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := errors.Join(dir.Chmod(".", 0o711), dir.Chmod(s.Sock, 0o666)); err != nil {
		return run.Failf(muster.WorkerInternal, "open the folder of a model server to tasks: %w", err)
	}
	return nil
}

// lastLogLine returns ": " and the last line of the server's log, "" if there is none.
func (s *server) lastLogLine() string {
	dir, err := os.OpenRoot(s.dir) // its content is not trusted
	if err != nil {
		return ""
	}
	defer func() { _ = dir.Close() }()
	f, err := run.OpenRegularIn(dir, logFile)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const maxBytes = 64 << 10
	if st, err := f.Stat(); err == nil && st.Size() > maxBytes {
		_, _ = f.Seek(-maxBytes, io.SeekEnd) // after an error the first bytes are read
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(b, []byte("?")))), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last[:min(len(last), 500)]
	}
	return ""
}

func (s *server) saveRecord() error {
	b, err := json.Marshal(&s.record)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.dir+recordSuffix, b, 0o600) // beside the folder, which belongs to its user
}

func (s *server) hasExited() bool {
	return isClosed(s.exited) || s.Proc.StartTicks != 0 && !proctree.Alive(s.Proc)
}

// isAlive reports whether a server of an earlier incarnation can be recovered.
func (s *server) isAlive() bool { return s.Proc.PID != 0 && proctree.Alive(s.Proc) && s.healthy() }

// stop asks the server to exit, and kills it after timeout.
func (s *server) stop(log *slog.Logger, timeout time.Duration) {
	if s.call(`{"op":"evict"}`) == nil {
		for waited := time.Duration(0); waited < timeout && !s.hasExited(); waited += 10 * time.Millisecond {
			time.Sleep(10 * time.Millisecond)
		}
	}
	s.kill(log)
}

func (s *server) kill(log *slog.Logger) {
	if err := errors.Join(isolation.Kill(s.Isolation), proctree.KillOrphans(s.Proc)); err != nil {
		log.Warn("killing a model server failed", slog.Int("pid", s.Proc.PID), slog.Any("error", err))
	}
	if s.child {
		select {
		case <-s.exited:
		case <-time.After(killTimeout):
			log.Warn("killed model server has not exited", slog.Int("pid", s.Proc.PID))
		}
	}
}

func (s *server) release(cfg Config) {
	defer close(s.released)
	if cfg.GPUs != nil && (s.holdsGPUs || len(s.GPUs) > 0) {
		if err := cfg.GPUs.Release(context.Background(), s.id, s.grant(), s.envTag()); err != nil {
			cfg.Log.Warn("after a model server: "+err.Error(), slog.String("host", s.id.String()))
		}
	}
	if cfg.Isolator != nil && s.Isolation != nil {
		cfg.Isolator.Release(s.Isolation)
	}
	if err := errors.Join(run.RemoveAll(s.dir), run.RemoveAll(s.dir+recordSuffix)); err != nil {
		cfg.Log.Warn("removing the folder of a model server failed", slog.Any("error", err))
	}
}

// trimLog truncates a log over maxLog. The server opened it for appending.
func (s *server) trimLog() {
	path := filepath.Join(s.dir, logFile)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > maxLog {
		_ = os.Truncate(path, 0) // retried after the next use
	}
}

// Orphan is a model server of an earlier incarnation of the worker.
type Orphan struct {
	Attempt   muster.AttemptID
	Isolation *run.IsolationSpec
	server    *server
}

// Orphans lists the recorded model servers of earlier incarnations, running or not. Their control groups must not be swept before New or
// StopOrphans is called. It changes nothing.
func Orphans(data string) []Orphan {
	files, _ := filepath.Glob(filepath.Join(poolDir(data), "*"+recordSuffix))
	var list []Orphan
	for _, path := range files {
		number, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), recordSuffix))
		if err != nil {
			continue
		}
		s := &server{}
		if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &s.record) != nil {
			s.record = record{}
		}
		proc := s.Proc
		s.setNumber(data, number)
		if proc.EnvTag != "" {
			s.Proc = proc
		}
		close(s.ready)
		list = append(list, Orphan{Attempt: s.id, Isolation: s.Isolation, server: s})
	}
	return list
}

// StopOrphans stops the model servers of earlier incarnations, for a worker without a pool.
func StopOrphans(cfg Config) {
	orphans := Orphans(cfg.Data)
	for _, l := range orphans {
		l.server.stop(cfg.Log, defaultTimeouts.shutdown)
		l.server.release(cfg)
	}
	sweep(cfg, orphans)
}

// sweep kills and removes everything in the pool's folder except known servers.
func sweep(cfg Config, known []Orphan) {
	entries, _ := os.ReadDir(poolDir(cfg.Data)) // empty if it does not exist
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), recordSuffix)
		if slices.ContainsFunc(known, func(l Orphan) bool { return filepath.Base(l.server.dir) == name }) {
			continue
		}
		path := filepath.Join(poolDir(cfg.Data), e.Name())
		if err := errors.Join(proctree.KillTagged(envTagOf(path)), run.RemoveAll(path)); err != nil {
			cfg.Log.Warn("removing a leftover of a model server failed", slog.String("path", path), slog.Any("error", err))
		}
	}
}

// maxSocketPath is the longest path of a socket that all systems support, in bytes.
const maxSocketPath = 100

// callTimeout limits a request that a server answers at once.
const callTimeout = 5 * time.Second

func (s *server) healthy() bool { return s.call(`{"op":"ping"}`) == nil }

// call sends a request and returns nil if the response is ok.
func (s *server) call(line string) error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		return err
	}
	b, err := bufio.NewReaderSize(conn, 64<<10).ReadSlice('\n')
	if err != nil {
		return err
	}
	var answer struct {
		OK bool `json:"ok"`
	}
	if err := json.Unmarshal(b, &answer); err != nil || !answer.OK {
		return errors.Join(errors.New("invalid response"), err)
	}
	return nil
}

// dial connects to the server. On Linux, a socket path that is too long is replaced by one through an open folder.
func (s *server) dial() (net.Conn, error) {
	path := s.socket()
	if len(path) > maxSocketPath && runtime.GOOS == "linux" {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	return net.DialTimeout("unix", path, callTimeout) //nolint:noctx // callTimeout limits it
}
