package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// Command is the command of Main on the program's command line.
const Command = "builtin"

type task struct {
	input         []byte
	command       []string // the stage's command
	outDir        string   // directory of artifacts
	checkpointDir string   // directory of the checkpoint, "" for none
	allowPrivate  bool     // calls may go to private addresses
	server        string   // URL of the worker's server, whose signed URLs may be of private addresses
	stdout        io.Writer
	stderr        io.Writer
	progress      progressWriter
}

// handlers returns the implementations by kind. A result that is not nil is stored, even with an error. ctx ends when the task must stop.
func handlers() map[string]func(ctx context.Context, t *task) (any, error) {
	echo := func(_ context.Context, t *task) (any, error) { return json.RawMessage(t.input), nil }
	return map[string]func(ctx context.Context, t *task) (any, error){
		"echo": echo, "hash": hashText, "api": api, "compute": compute, "test": test, Image: image,
	}
}

// Main executes the task that the environment describes; args are its kind and its command. It returns the exit status.
func Main(args []string) int {
	// A stop signals all processes of the task: this one continues in order to store what was done.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := &task{
		outDir: os.Getenv("MUSTER_OUT"), checkpointDir: os.Getenv("MUSTER_CHECKPOINT"), allowPrivate: os.Getenv("MUSTER_ALLOW_PRIVATE") == "1", server: os.Getenv("MUSTER_SERVER_URL"),
		stdout: os.Stdout, stderr: os.Stderr,
	}
	if len(args) == 0 || t.outDir == "" {
		_, _ = fmt.Fprintln(os.Stderr, "muster: builtin is an internal command: workers run it for tasks")
		return 2
	}
	t.command = args[1:]
	handler := handlers()[args[0]]
	if handler == nil {
		_, _ = fmt.Fprintf(os.Stderr, "muster: unknown kind %q: the worker has another version\n", args[0])
		return 2
	}
	return t.run(ctx, handler)
}

func (t *task) run(ctx context.Context, handler func(context.Context, *task) (any, error)) int {
	if path := os.Getenv("MUSTER_EVENTS"); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // the worker sets it
		if err != nil {
			_, _ = fmt.Fprintln(t.stderr, "cannot report progress:", err)
		} else {
			t.progress.file = f
		}
	}
	defer t.progress.close()
	var result any
	var err error
	if t.input, err = readInput(); err == nil {
		result, err = handler(ctx, t)
	}
	t.progress.flush()
	if result != nil {
		err = errors.Join(err, t.writeResult(result))
	}
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		_, _ = fmt.Fprintln(t.stderr, "stopped: the results so far are stored")
		return 128 + int(syscall.SIGTERM)
	}
	return t.reportFailure(err)
}

func readInput() ([]byte, error) {
	path := os.Getenv("MUSTER_INPUT")
	if path == "" {
		return []byte("{}"), nil
	}
	b, err := os.ReadFile(path) //nolint:gosec // the worker sets it
	if err != nil {
		return nil, fmt.Errorf("cannot read the input: %w", err)
	}
	return b, nil
}

// decodeInput decodes the input over the defaults in v. The worker has validated it with the kind's schema.
func (t *task) decodeInput(v any) error {
	d := json.NewDecoder(bytes.NewReader(t.input))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return failf(muster.BadInput, "input: %w", err)
	}
	return nil
}

// failure is the error of a task with its reason, for failure.json.
type failure struct {
	reason muster.Reason
	err    error
}

func failf(reason muster.Reason, format string, args ...any) *failure {
	return &failure{reason, fmt.Errorf(format, args...)}
}

// Error returns the message for the user.
func (f *failure) Error() string { return f.err.Error() }

// Unwrap returns the wrapped error.
func (f *failure) Unwrap() error { return f.err }

// reportFailure writes the error to the log and to failure.json, and returns the exit status.
func (t *task) reportFailure(err error) int {
	message := strings.ToValidUTF8(err.Error(), "\uFFFD")
	_, _ = fmt.Fprintln(t.stderr, message)
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{reason: muster.ExitCode}
		if errors.Is(err, syscall.ENOSPC) {
			f.reason = muster.DiskFull
		}
	}
	b, jsonErr := json.Marshal(map[string]string{"reason": string(f.reason), "message": message})
	if jsonErr == nil {
		jsonErr = t.writeFile("failure.json", b)
	}
	if jsonErr != nil {
		_, _ = fmt.Fprintln(t.stderr, jsonErr)
	}
	return 1
}

func (t *task) writeResult(value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot encode the result: %w", err)
	}
	if len(b) > muster.MaxResultSize {
		return failf(muster.ExitCode, "the result has %s, which exceeds the limit of %s", muster.Size(len(b)), muster.Size(muster.MaxResultSize))
	}
	return t.writeFile("result.json", b)
}

func (t *task) writeFile(name string, data []byte) error {
	if err := atomicfile.Write(filepath.Join(t.outDir, name), data, 0o600); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}

// progressWriter reports to the worker, at most ten times a second.
type progressWriter struct {
	file *os.File // nil: no reports

	mu      sync.Mutex
	last    time.Time
	pending map[string]any // not reported yet
}

const reportInterval = 100 * time.Millisecond

// report reports the progress from 0 to 1 (a negative value is ignored), the step and metrics.
func (p *progressWriter) report(fraction float64, step string, metrics map[string]float64) {
	if p.file == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending == nil {
		p.pending = map[string]any{}
	}
	if fraction >= 0 {
		p.pending["progress"] = min(fraction, 1)
	}
	if step != "" {
		p.pending["step"] = shorten(step, 200)
	}
	for name, v := range metrics {
		p.pending[name] = v
	}
	if time.Since(p.last) >= reportInterval {
		p.send()
	}
}

func (p *progressWriter) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send()
}

// send sends pending. The caller holds mu.
func (p *progressWriter) send() {
	if len(p.pending) == 0 {
		return
	}
	b, err := json.Marshal(p.pending)
	if err != nil {
		return // a metric is not a number
	}
	_, _ = p.file.Write(append(b, '\n')) // the task does not fail because of its progress
	p.last, p.pending = time.Now(), nil
}

func (p *progressWriter) close() {
	if p.file != nil {
		_ = p.file.Close()
	}
}

// shorten cuts a text to n bytes at a character boundary.
func shorten(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}

// durationStats summarises durations in milliseconds.
type durationStats struct {
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// newDurationStats returns nil without durations. Percentiles use the nearest rank: each is a measured duration.
func newDurationStats(ms []float64) *durationStats {
	if len(ms) == 0 {
		return nil
	}
	ms = slices.Sorted(slices.Values(ms))
	percentile := func(p int) float64 { return ms[(p*len(ms)+99)/100-1] }
	sum := 0.0
	for _, v := range ms {
		sum += v
	}
	return &durationStats{Mean: sum / float64(len(ms)), Min: ms[0], P50: percentile(50), P90: percentile(90), P95: percentile(95), P99: percentile(99), Max: ms[len(ms)-1]}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// jsonlWriter appends JSON lines to an artifact while the task runs, so that they exist whatever happens.
type jsonlWriter struct{ f *os.File }

func (t *task) createJSONL(name string) (*jsonlWriter, error) {
	f, err := os.OpenFile(filepath.Join(t.outDir, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", name, err)
	}
	return &jsonlWriter{f}, nil
}

func (l *jsonlWriter) write(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = l.f.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", filepath.Base(l.f.Name()), err)
	}
	return nil
}

func (l *jsonlWriter) close() error { return l.f.Close() }
