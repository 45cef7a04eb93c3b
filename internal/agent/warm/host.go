package warm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/kin"
)

// Names of a host's log, in its folder, and of the note beside that.
const (
	logFile    = "log"
	noteSuffix = ".json"
)

// maxLog is how large a host's log may become.
const maxLog = 1 << 20

// killWait is how long a killed host may take to be gone.
const killWait = 5 * time.Second

// oomScore makes the kernel, short of memory, choose hosts before tasks.
const oomScore = "900"

// record is what the next life of the worker needs to know of a host.
type record struct {
	Key     string       `json:"key"`
	Sock    string       `json:"sock"` // the name of its socket
	Argv    []string     `json:"argv"`
	Env     []string     `json:"env"`
	Read    []string     `json:"read,omitempty"`
	Write   []string     `json:"write,omitempty"`
	Memory  muster.Size  `json:"memory,omitempty"`
	GPUs    []string     `json:"gpus,omitempty"`
	Proc    run.Pid      `json:"proc"`
	Confine *run.Confine `json:"confine,omitempty"`
}

// host is one process that keeps a model loaded.
type host struct {
	record
	id      muster.AttemptID // under which devices and control groups know it: of job 0, which no job is
	dir     string
	ready   chan struct{} // closed when it answers, or will not
	ended   chan struct{} // closed when a child of this process was reaped
	cleared chan struct{} // closed when nothing is left of it
	cpus    float64       // cores that it has; 0 for all
	child   bool          // of this process
	taken   bool          // its devices are noted as its

	users int       // the keeper's lock is held for both
	used  time.Time // when the last one left
}

func newHost(data string, number int, want *run.Host) *host {
	h := &host{
		record: record{Key: want.Key, Sock: rand.Text(), Argv: want.Argv, Env: want.Env, Read: want.Read, Write: want.Write, Memory: want.Memory, GPUs: want.GPUs},
		cpus:   want.CPUs,
		used:   time.Now(),
	}
	h.number(data, number)
	return h
}

func (h *host) number(data string, number int) {
	h.id = muster.AttemptID{Task: muster.TaskID{Num: number}, N: 1}
	h.dir = filepath.Join(folder(data), strconv.Itoa(number))
	h.Proc = run.Pid{BootID: kin.BootID(), Mark: h.mark()} // whatever process it is
	h.ready, h.ended, h.cleared = make(chan struct{}), make(chan struct{}), make(chan struct{})
}

// socket is a path that cannot be guessed: a task that has no host, such as one without a network, would get out by it. Its sandbox does
// not let it look into the folder.
func (h *host) socket() string { return filepath.Join(h.dir, h.Sock) }

// matches reports whether a host that is there can do what one would that was started as wanted.
func (h *host) matches(want *run.Host) bool {
	return slices.Equal(h.Argv, want.Argv) && slices.Equal(h.Env, want.Env) && slices.Equal(h.Read, want.Read) && slices.Equal(h.Write, want.Write) &&
		(h.Memory == 0 || want.Memory > 0 && h.Memory >= want.Memory) && slices.Equal(h.GPUs, want.GPUs)
}

// mark is an environment entry that only its processes have.
func (h *host) mark() string { return markOf(h.dir) }

func markOf(dir string) string { return "MUSTER_WARM_HOST=" + dir }

func (h *host) grant() *muster.Grant { return &muster.Grant{GPUs: h.GPUs} }

// start starts the process and waits until it answers.
func (h *host) start(ctx context.Context, cfg *Config, want *run.Host, w waits) error {
	tmp := filepath.Join(h.dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return run.Failf(muster.WorkerInternal, "the folder of a warm host cannot be made: %w", err)
	}
	if cfg.Limits != nil {
		task := &run.Task{Attempt: h.id, Group: "warm", Spec: &muster.TaskSpec{}, Grant: muster.Grant{CPUs: want.CPUs, Memory: want.Memory, GPUs: want.GPUs}}
		confine, err := cfg.Limits.Confine(task, run.Folders{Base: h.dir, Work: h.dir, Tmp: tmp, Read: want.Read, Write: want.Write})
		if err != nil {
			return err
		}
		h.Confine = confine
	}
	if cfg.GPUs != nil {
		cfg.GPUs.Take(ctx, h.id, h.grant())
		h.taken = true
	}
	if err := h.save(); err != nil { // before there is a process: the next life finds it by its mark
		return run.Failf(muster.WorkerInternal, "a warm host cannot be noted: %w", err)
	}
	if err := h.spawn(cfg, tmp, w.grace); err != nil {
		return err
	}
	if err := h.save(); err != nil {
		return run.Failf(muster.WorkerInternal, "a warm host cannot be noted: %w", err)
	}
	return h.await(ctx, w.answer)
}

func (h *host) spawn(cfg *Config, tmp string, grace time.Duration) error {
	log, err := os.OpenFile(filepath.Join(h.dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the log of a warm host cannot be opened: %w", err)
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return run.Failf(muster.WorkerInternal, "%w", err)
	}
	defer null.Close()
	ttl := cmp.Or(cfg.TTL, 24*time.Hour) + grace
	env := []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	if h.cpus > 0 {
		env = append(env, "OMP_NUM_THREADS="+strconv.Itoa(int(math.Ceil(h.cpus))))
	}
	env = append(env, h.Env...)
	env = append(env, "HOME="+tmp, "TMPDIR="+tmp, "PYTHONUNBUFFERED=1",
		"MUSTER_WARM="+h.socket(), "MUSTER_WARM_TTL="+strconv.Itoa(int(ttl.Seconds())), h.mark())
	if cfg.GPUs != nil {
		env = append(env, cfg.GPUs.Environ(h.grant())...)
	}
	path, err := exec.LookPath(h.Argv[0])
	if err != nil {
		return run.Failf(muster.Dependency, "the host that keeps models loaded cannot be started: %w", err)
	}
	pid, handle, err := limit.Spawn(h.Confine, limit.Program{Path: path, Argv: h.Argv, Env: env, Dir: h.dir, Stdin: null, Stdout: log, Stderr: log})
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the host that keeps models loaded cannot be started: %w", err)
	}
	if handle >= 0 {
		_ = os.NewFile(uintptr(handle), "pidfd").Close()
	}
	h.Proc = kin.Name(pid)
	h.Proc.Mark = h.mark()
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(oomScore), 0) // the kernel's own choice will do, too
	proc, err := os.FindProcess(pid)                                                   // not reaped yet
	if err != nil {
		return run.Failf(muster.WorkerInternal, "%w", err)
	}
	h.child = true
	go func() { // ends with the process, which may outlive this one
		_, _ = proc.Wait()
		close(h.ended)
	}()
	return nil
}

// await waits until the host answers.
func (h *host) await(ctx context.Context, atMost time.Duration) error {
	deadline := time.NewTimer(atMost)
	defer deadline.Stop()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		if h.answers() {
			return h.open()
		}
		select {
		case <-time.After(pause):
		case <-h.ended:
			return run.Failf(muster.WorkerInternal, "the host that keeps models loaded does not work here: %w%s", errOver, h.lastWords())
		case <-deadline.C:
			return run.Failf(muster.WorkerInternal, "the host that keeps models loaded does not answer within %s%s", atMost, h.lastWords())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// open lets tasks, which are other users than the host, come to its socket, if they know its name.
func (h *host) open() error {
	if h.Confine == nil || h.Confine.User == nil || !h.Confine.User.Dynamic {
		return nil
	}
	dir, err := os.OpenRoot(h.dir) // what is in it is the host's: a link must not lead out
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the folder of a warm host cannot be opened to tasks: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := errors.Join(dir.Chmod(".", 0o711), dir.Chmod(h.Sock, 0o666)); err != nil {
		return run.Failf(muster.WorkerInternal, "the folder of a warm host cannot be opened to tasks: %w", err)
	}
	return nil
}

// lastWords are the last line of the host's log, after a colon.
func (h *host) lastWords() string {
	dir, err := os.OpenRoot(h.dir) // what is in it is the host's: a link must not lead out
	if err != nil {
		return ""
	}
	defer func() { _ = dir.Close() }()
	f, err := run.OpenIn(dir, logFile)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const most = 64 << 10
	if st, err := f.Stat(); err == nil && st.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd) // else the first bytes are shown
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(b, []byte("?")))), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last[:min(len(last), 500)]
	}
	return ""
}

func (h *host) save() error {
	b, err := json.Marshal(&h.record)
	if err != nil {
		return err
	}
	path := filepath.Join(folder(filepath.Dir(filepath.Dir(h.dir))), filepath.Base(h.dir)+noteSuffix) // beside the folder, which is its user's
	part := path + ".part"
	if err := os.WriteFile(part, b, 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// isOver reports whether its process has ended.
func (h *host) isOver() bool {
	select {
	case <-h.ended:
		return true
	default:
		return h.Proc.StartTicks != 0 && !kin.Lives(h.Proc)
	}
}

// alive reports whether a host of an earlier life can be gone on with.
func (h *host) alive() bool { return h.Proc.PID != 0 && kin.Lives(h.Proc) && h.answers() }

// end ends the host, which is given time to do so by itself.
func (h *host) end(log *slog.Logger, atMost time.Duration) {
	if h.ask(`{"op":"evict"}`) == nil {
		for waited := time.Duration(0); waited < atMost && !h.isOver(); waited += 10 * time.Millisecond {
			time.Sleep(10 * time.Millisecond)
		}
	}
	h.kill(log)
}

// kill ends all that is left of the host.
func (h *host) kill(log *slog.Logger) {
	if err := errors.Join(limit.Kill(h.Confine), kin.KillLeftover(h.Proc)); err != nil {
		log.Warn("a warm host does not end", slog.Int("pid", h.Proc.PID), slog.Any("error", err))
	}
	if h.child {
		select {
		case <-h.ended:
		case <-time.After(killWait):
			log.Warn("a warm host does not end, even when killed", slog.Int("pid", h.Proc.PID))
		}
	}
}

// clear gives back what an ended host had, whoever waits for it meanwhile.
func (h *host) clear(cfg Config) {
	defer close(h.cleared)
	if cfg.GPUs != nil && (h.taken || len(h.GPUs) > 0) {
		if err := cfg.GPUs.Give(context.Background(), h.id, h.grant(), h.mark()); err != nil {
			cfg.Log.Warn("after a warm host: "+err.Error(), slog.String("host", h.id.String()))
		}
	}
	if cfg.Limits != nil && h.Confine != nil {
		cfg.Limits.Release(h.Confine)
	}
	if err := errors.Join(run.RemoveAll(h.dir), ifThere(os.Remove(h.dir+noteSuffix))); err != nil {
		cfg.Log.Warn("the folder of a warm host cannot be removed", slog.Any("error", err))
	}
}

func ifThere(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// trimLog keeps the log from filling the disk: the host appends to it.
func (h *host) trimLog() {
	path := filepath.Join(h.dir, logFile)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > maxLog {
		_ = os.Truncate(path, 0) // next time, then
	}
}

// Leftover is a host of an earlier life of the worker.
type Leftover struct {
	Key     string
	Attempt muster.AttemptID
	Confine *run.Confine
	host    *host
}

// Left lists the hosts that earlier lives of the worker with this data dir noted, whether they live or not: what holds them is not
// to be swept away before New was called, or End. It changes nothing.
func Left(data string) []Leftover {
	files, _ := filepath.Glob(filepath.Join(folder(data), "*"+noteSuffix))
	var list []Leftover
	for _, path := range files {
		number, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), noteSuffix))
		if err != nil {
			continue
		}
		h := &host{}
		if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &h.record) != nil {
			h.record = record{}
		}
		note := h.Proc
		h.number(data, number)
		if note.Mark != "" {
			h.Proc = note
		}
		close(h.ready)
		list = append(list, Leftover{Key: h.Key, Attempt: h.id, Confine: h.Confine, host: h})
	}
	return list
}

// End ends the hosts that earlier lives of the worker left, for one that keeps none.
func End(cfg Config) {
	left := Left(cfg.Data)
	for _, l := range left {
		l.host.end(cfg.Log, patience.leave)
		l.host.clear(cfg)
	}
	sweep(cfg, left)
}

// sweep ends and removes what there is in the folder of hosts besides these.
func sweep(cfg Config, known []Leftover) {
	entries, _ := os.ReadDir(folder(cfg.Data)) // none if it is not there
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), noteSuffix)
		if slices.ContainsFunc(known, func(l Leftover) bool { return filepath.Base(l.host.dir) == name }) {
			continue
		}
		path := filepath.Join(folder(cfg.Data), e.Name())
		if err := errors.Join(kin.KillMarked(markOf(path)), run.RemoveAll(path)); err != nil {
			cfg.Log.Warn("what an earlier life left of a warm host stays", slog.String("path", path), slog.Any("error", err))
		}
	}
}
