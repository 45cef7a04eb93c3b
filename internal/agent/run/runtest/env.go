package runtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/shim"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Env is the environment of executors under test: it implements the dependencies of process.Deps in memory. Its methods may be called
// concurrently.
type Env struct {
	Deps *process.Deps

	logs    *tasklog.Dir
	command []string // starts a shim; nil: the shim is part of this process

	mu        sync.Mutex
	appendErr error // what Append returns, if not nil
	blobs     map[string][]byte
	trees     map[string]map[string]string
}

// NewEnv returns an environment in a new folder. command starts the shim; without one, the shim is part of this process.
func NewEnv(tb testing.TB, command ...string) *Env {
	tb.Helper()
	w := &Env{
		command: command, blobs: map[string][]byte{}, trees: map[string]map[string]string{},
	}
	dir := filepath.Join(tb.TempDir(), "data")
	w.Deps = &process.Deps{Deps: run.Deps{Worker: "rig", Dir: dir, Log: slog.New(slog.DiscardHandler)}, Transfer: w, Logs: w}
	for _, d := range []string{dir, SharedDir(w.Deps)} {
		if err := os.Mkdir(d, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	var err error
	if w.logs, err = tasklog.OpenDir(filepath.Join(dir, "logs")); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := w.logs.Close(); err != nil {
			tb.Error(err)
		}
	})
	w.Deps.Supervisor = w.supervisor(tb)
	tb.Cleanup(func() { w.stopShims(tb) }) // before the supervisor is closed
	return w
}

// SharedDir returns a folder outside the worker's data dir that tasks must be able to read.
func SharedDir(deps *process.Deps) string { return filepath.Join(filepath.Dir(deps.Dir), "aside") }

// Restart replaces the supervisor like a restart of the worker. Earlier executors must be detached; new ones must be opened.
func (w *Env) Restart(tb testing.TB) {
	tb.Helper()
	deps := *w.Deps
	deps.Supervisor = w.supervisor(tb)
	w.Deps = &deps
}

func (w *Env) supervisor(tb testing.TB) run.Supervisor {
	tb.Helper()
	sup, err := shim.Open(tb.Context(), shim.Config{Dir: w.Deps.Dir, Command: w.command, Logs: w, Log: w.Deps.Log})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := sup.Close(); err != nil {
			tb.Error(err)
		}
	})
	return sup
}

// Append implements run.Logs.
func (w *Env) Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	w.mu.Lock()
	appendErr := w.appendErr
	w.mu.Unlock()
	if appendErr != nil {
		return 0, appendErr
	}
	return w.logs.Append(ctx, a, offset, data)
}

// StartSegment implements run.Logs.
func (w *Env) StartSegment(ctx context.Context, a muster.AttemptID, offset int64) (int64, error) {
	return w.logs.StartSegment(ctx, a, offset)
}

// Drop implements run.Logs.
func (w *Env) Drop(ctx context.Context, a muster.AttemptID, before int64) error {
	return w.logs.Drop(ctx, a, before)
}

// Open implements process.Logs.
func (w *Env) Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error) {
	return w.logs.Open(ctx, a, offset)
}

// RecordBefore implements process.Logs.
func (w *Env) RecordBefore(ctx context.Context, a muster.AttemptID, offset int64) (int64, error) {
	return w.logs.RecordBefore(ctx, a, offset)
}

// FillDisk makes every later Append fail.
func (w *Env) FillDisk(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.appendErr = err
}

// Blob makes bytes available to Fetch and returns their hash.
func (w *Env) Blob(data string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := sha256.Sum256([]byte(data))
	hash := hex.EncodeToString(sum[:])
	w.blobs[hash] = []byte(data)
	return hash
}

// Tree makes a folder available to FetchTree. Names that end in ".sh" are
// executable.
func (w *Env) Tree(files map[string]string) string {
	hash := w.Blob(strings.Repeat("tree", len(files)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trees[hash] = files
	return "sha256:" + hash
}

// Fetch implements process.Transfer.
func (w *Env) Fetch(_ context.Context, hash string, size int64, path string) error {
	w.mu.Lock()
	data, ok := w.blobs[hash]
	w.mu.Unlock()
	if !ok || int64(len(data)) != size {
		return muster.Errorf(muster.NotFound, "no blob %s of %d bytes", hash, size)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// FetchTree implements process.Transfer.
func (w *Env) FetchTree(_ context.Context, hash, dir string) error {
	w.mu.Lock()
	files, ok := w.trees[hash]
	w.mu.Unlock()
	if !ok {
		return muster.Errorf(muster.NotFound, "no tree %s", hash)
	}
	for name, data := range files {
		path, mode := filepath.Join(dir, name), os.FileMode(0o600)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o700
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(data), mode)); err != nil {
			return err
		}
	}
	return nil
}

// UploadFile implements process.Transfer.
func (*Env) UploadFile(ctx context.Context, f *os.File) (string, int64, error) {
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), size, err
}

func (w *Env) stopShims(tb testing.TB) {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(w.Deps.Dir, "shim", "*", "pid"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		var p run.Pid
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &p)
		}
		if err == nil {
			var shim *os.Process
			if shim, err = os.FindProcess(p.PID); err == nil {
				err = shim.Signal(os.Interrupt)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, os.ErrProcessDone) { // it may exit by itself
			tb.Errorf("stop a shim: %v", err)
		}
	}
}

// runningProcs returns how many processes are recorded as running.
func (w *Env) runningProcs(tb testing.TB) int {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(w.Deps.Dir, "shim", "*", "pids"))
	if err != nil {
		tb.Fatal(err)
	}
	n := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // its shim may be exiting
			tb.Fatal(err)
		}
		n += strings.Count(string(b), `"attempt"`)
	}
	return n
}

// Records returns the records of an attempt's log.
func (w *Env) Records(tb testing.TB, a muster.AttemptID) []tasklog.Record {
	tb.Helper()
	out, _ := w.readLog(tb, a)
	return out
}

// LogEnd returns where the last record of an attempt's log ends.
func (w *Env) LogEnd(tb testing.TB, a muster.AttemptID) int64 {
	tb.Helper()
	_, end := w.readLog(tb, a)
	return end
}

func (w *Env) readLog(tb testing.TB, a muster.AttemptID) (out []tasklog.Record, end int64) {
	tb.Helper()
	log, err := w.logs.Open(tb.Context(), a, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer log.Close()
	for d := tasklog.NewDecoder(log); ; {
		r, err := d.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // a record is being written
			return out, d.Offset()
		}
		if err != nil {
			tb.Fatalf("read the log of %s at %d: %v", a, d.Offset(), err)
		}
		r.Data = bytes.Clone(r.Data)
		out = append(out, r)
	}
}

// Output returns what an attempt printed to one stream.
func (w *Env) Output(tb testing.TB, a muster.AttemptID, stream tasklog.Stream) string {
	tb.Helper()
	var b strings.Builder
	for _, r := range w.Records(tb, a) {
		if r.Stream == stream {
			b.Write(r.Data)
		}
	}
	return b.String()
}

// Recorder implements run.Reporter and records the progress.
type Recorder struct {
	mu       sync.Mutex
	progress []muster.Progress
}

// Started implements run.Reporter.
func (*Recorder) Started(muster.Time) {}

// Process implements run.Reporter.
func (*Recorder) Process(run.Pid) {}

// LogGrew implements run.Reporter.
func (*Recorder) LogGrew(int64) {}

// Progress implements run.Reporter.
func (s *Recorder) Progress(p muster.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = append(s.progress, p)
}

// Updates returns the progress so far.
func (s *Recorder) Updates() []muster.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.progress)
}

// Timeout limits each wait of a test.
const Timeout = time.Minute
