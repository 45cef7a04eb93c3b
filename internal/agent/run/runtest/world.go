package runtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// World is a worker's surroundings for executors under test: everything that a
// run.Env refers to, remembered. Its methods may be called at the same time.
type World struct {
	Env *run.Env

	mu       sync.Mutex
	logs     map[muster.AttemptID][]byte
	full     error // what Append returns, if not nil
	blobs    map[string][]byte
	trees    map[string]map[string]string
	uploaded map[string][]byte // by path's base
	pids     map[muster.AttemptID]run.Pid
	recorded int
}

// NewWorld returns a world in a folder of its own.
func NewWorld(tb testing.TB) *World {
	tb.Helper()
	w := &World{
		logs: map[muster.AttemptID][]byte{}, blobs: map[string][]byte{}, trees: map[string]map[string]string{},
		uploaded: map[string][]byte{}, pids: map[muster.AttemptID]run.Pid{},
	}
	w.Env = &run.Env{Dir: tb.TempDir(), Transfer: w, Logs: w, Pids: w, Log: slog.New(slog.DiscardHandler)}
	return w
}

// Append is run.Logs.
func (w *World) Append(_ context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full != nil {
		return 0, w.full
	}
	if offset != int64(len(w.logs[a])) {
		return int64(len(w.logs[a])), muster.Errorf(muster.Conflict, "append at %d of %d", offset, len(w.logs[a]))
	}
	w.logs[a] = append(w.logs[a], data...)
	return int64(len(w.logs[a])), nil
}

// FillDisk lets every later Append fail.
func (w *World) FillDisk(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = err
}

// Blob makes bytes available to Fetch and returns their hash.
func (w *World) Blob(data string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := sha256.Sum256([]byte(data))
	hash := hex.EncodeToString(sum[:])
	w.blobs[hash] = []byte(data)
	return hash
}

// Tree makes a folder available to FetchTree. Names that end in ".sh" are
// executable.
func (w *World) Tree(files map[string]string) string {
	hash := w.Blob(strings.Repeat("tree", len(files)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trees[hash] = files
	return "sha256:" + hash
}

// Fetch is run.Transfer.
func (w *World) Fetch(_ context.Context, hash string, size int64, path string) error {
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

// FetchTree is run.Transfer.
func (w *World) FetchTree(_ context.Context, hash, dir string) error {
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

// Upload is run.Transfer.
func (w *World) Upload(ctx context.Context, path string) (string, int64, error) {
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", 0, err
	}
	sum := sha256.Sum256(data)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uploaded[filepath.Base(path)] = data
	return hex.EncodeToString(sum[:]), int64(len(data)), nil
}

// Put is run.Pids.
func (w *World) Put(a muster.AttemptID, p run.Pid) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids[a] = p
	w.recorded++
	return nil
}

// Delete is run.Pids.
func (w *World) Delete(a muster.AttemptID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pids, a)
	return nil
}

// Records returns what an attempt's log holds.
func (w *World) Records(tb testing.TB, a muster.AttemptID) []tasklog.Record {
	tb.Helper()
	w.mu.Lock()
	log := w.logs[a]
	w.mu.Unlock()
	var out []tasklog.Record
	for d := tasklog.NewDecoder(bytes.NewReader(log)); ; {
		r, err := d.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatalf("the log of %s cannot be read at %d: %v", a, d.Offset(), err)
		}
		r.Data = bytes.Clone(r.Data)
		out = append(out, r)
	}
}

// Output returns what an attempt printed to one stream.
func (w *World) Output(tb testing.TB, a muster.AttemptID, stream tasklog.Stream) string {
	tb.Helper()
	var b strings.Builder
	for _, r := range w.Records(tb, a) {
		if r.Stream == stream {
			b.Write(r.Data)
		}
	}
	return b.String()
}

// Sink remembers what an executor says while a task runs.
type Sink struct {
	mu       sync.Mutex
	started  chan struct{}
	starts   int
	process  run.Pid
	progress []muster.Progress
	grew     chan int64
}

// NewSink returns an empty sink.
func NewSink() *Sink { return &Sink{started: make(chan struct{}), grew: make(chan int64, 1)} }

// Started is run.Sink.
func (s *Sink) Started(muster.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts++; s.starts == 1 {
		close(s.started)
	}
}

// Process is run.Sink.
func (s *Sink) Process(p run.Pid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
}

// Progress is run.Sink.
func (s *Sink) Progress(p muster.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = append(s.progress, p)
}

// LogGrew is run.Sink.
func (s *Sink) LogGrew(size int64) {
	select {
	case <-s.grew:
	default:
	}
	select {
	case s.grew <- size:
	default:
	}
}

// Seen returns the progress so far.
func (s *Sink) Seen() []muster.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]muster.Progress(nil), s.progress...)
}

// Patience is how long a test waits for something that must happen.
const Patience = 30 * time.Second

// Await waits until cond holds.
func Await(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(Patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited %s in vain: %s", Patience, what)
		}
	}
}
