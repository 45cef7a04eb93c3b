package builtin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
)

type computeInput struct {
	Iterations    int      `json:"iterations"`
	KeepGoing     bool     `json:"keep_going"`
	ComputeNeeded *float64 `json:"computeNeeded"` // of older systems: ignored
}

// iteration is a line of iterations.jsonl, here and in the checkpoint.
type iteration struct {
	Iteration int             `json:"iteration"`
	ExitCode  int             `json:"exit_code"` // -1 for a signal
	Seconds   float64         `json:"seconds"`
	Value     json.RawMessage `json:"value,omitempty"` // the last line of its output, if that is JSON
	Error     string          `json:"error,omitempty"`
}

type computeResult struct {
	Iterations int                    `json:"iterations"`
	Finished   int                    `json:"finished"` // successfully
	Failed     int                    `json:"failed"`
	Resumed    int                    `json:"resumed,omitempty"` // of finished, by earlier attempts
	Wall       *durationStats         `json:"wall_ms,omitempty"`
	Values     []json.RawMessage      `json:"values,omitempty"`  // in order, of iterations that have one; absent if they are too large: iterations.jsonl has all
	Summary    map[string]numberStats `json:"summary,omitempty"` // of the numbers in the values, by name
}

// numberStats summarises a number over all iterations.
type numberStats struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
}

const (
	maxValue  = 16 << 10  // bytes of a value
	maxValues = 128 << 10 // bytes of all values in the result
	maxNames  = 100       // numbers in the summary
)

func compute(ctx context.Context, t *task) (any, error) {
	in := computeInput{Iterations: 1}
	if err := t.decodeInput(&in); err != nil {
		return nil, err
	}
	if len(t.command) == 0 {
		return nil, failf(muster.BadInput, "the task has no command: set run, or use muster run … -- CMD")
	}
	c := &computeRun{t: t, in: &in, iterations: make([]*iteration, in.Iterations), result: computeResult{Iterations: in.Iterations}}
	if err := c.open(); err != nil {
		return nil, err
	}
	defer c.close()
	err := c.run(ctx)
	c.summarize()
	return &c.result, err
}

type computeRun struct {
	t          *task
	in         *computeInput
	iterations []*iteration // nil if not done yet
	doneCount  int
	lines      *jsonlWriter // the artifact
	checkpoint *os.File     // may be nil
	result     computeResult
}

// open reads the checkpoint of earlier attempts.
func (c *computeRun) open() (err error) {
	if c.lines, err = c.t.createJSONL("iterations.jsonl"); err != nil {
		return err
	}
	if c.t.checkpointDir == "" {
		return nil
	}
	path := filepath.Join(c.t.checkpointDir, "iterations.jsonl")
	prior, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot read the checkpoint: %w", err)
	}
	validLen := 0
	for line := range bytes.Lines(prior) {
		it := new(iteration)
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, it) != nil {
			break // the write was interrupted
		}
		validLen += len(line)
		if it.ExitCode != 0 || it.Iteration < 0 || it.Iteration >= len(c.iterations) || c.iterations[it.Iteration] != nil {
			continue // a failed iteration is repeated
		}
		c.iterations[it.Iteration] = it
		c.doneCount++
		if err := c.lines.write(it); err != nil {
			return err
		}
	}
	if c.result.Resumed = c.doneCount; c.doneCount > 0 {
		_, _ = fmt.Fprintf(c.t.stdout, "%d of %d iterations were done by earlier attempts\n", c.doneCount, c.in.Iterations)
	}
	if c.checkpoint, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
		if err = c.checkpoint.Truncate(int64(validLen)); err == nil {
			_, err = c.checkpoint.Seek(int64(validLen), io.SeekStart)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write the checkpoint: %w", err)
	}
	return nil
}

func (c *computeRun) close() {
	_ = c.lines.close() // record reports errors
	if c.checkpoint != nil {
		_ = c.checkpoint.Close()
	}
}

func (c *computeRun) run(ctx context.Context) error {
	var failed *iteration
	failures := 0
	for i, prior := range c.iterations {
		if prior != nil {
			continue
		}
		c.report(i)
		it, err := c.runIteration(ctx, i)
		if err != nil {
			return err
		}
		if ctx.Err() != nil && it.ExitCode != 0 {
			return ctx.Err() // it was stopped too
		}
		c.iterations[i] = it
		c.doneCount++
		if err := c.record(it); err != nil {
			return err
		}
		if it.ExitCode != 0 {
			failures++
			if failed == nil {
				failed = it
			}
			if !c.in.KeepGoing {
				return failf(muster.ExitCode, "iteration %d of %d, counted from 0, failed with %s, and no more were started: set keep_going: true to continue", i, c.in.Iterations, it.Error)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	c.report(c.in.Iterations - 1)
	if failed == nil {
		return nil
	}
	return failf(muster.ExitCode, "%d of %d iterations failed, the first one is number %d, counted from 0, with %s", failures, c.in.Iterations, failed.Iteration, failed.Error)
}

// record writes an iteration to the artifact and to the checkpoint.
func (c *computeRun) record(it *iteration) error {
	if err := c.lines.write(it); err != nil {
		return err
	}
	if c.checkpoint == nil {
		return nil
	}
	if err := (&jsonlWriter{c.checkpoint}).write(it); err != nil {
		return fmt.Errorf("the checkpoint: %w", err)
	}
	return nil
}

func (c *computeRun) report(i int) {
	c.t.progress.report(float64(c.doneCount)/float64(c.in.Iterations), c.step(i), nil)
}

// step describes an iteration by its number, which the command gets as $MUSTER_ITERATION.
func (c *computeRun) step(i int) string {
	return fmt.Sprintf("iteration %d, %d/%d done", i, c.doneCount, c.in.Iterations)
}

// runIteration executes the command once. It returns an error if the command cannot be executed.
func (c *computeRun) runIteration(ctx context.Context, i int) (*iteration, error) {
	it := &iteration{Iteration: i}
	output := &outputFilter{w: c.t.stdout, onEvent: func(p *muster.Progress) { c.onProgress(i, p) }}
	cmd := newCommand(c.t.command, output, c.t.stderr)
	cmd.Env = append(os.Environ(), "MUSTER_ITERATION="+strconv.Itoa(i), "MUSTER_ITERATIONS="+strconv.Itoa(c.in.Iterations))
	stopEvents, err := c.followEvents(cmd, i)
	if err != nil {
		return it, err
	}
	start := time.Now()
	stopSignal, err := startCommand(ctx, cmd)
	if err != nil {
		stopEvents()
		return it, err
	}
	err = cmd.Wait()
	stopSignal()
	stopEvents()
	it.Seconds = time.Since(start).Seconds()
	output.flush()
	it.Value = output.lastValue()
	it.ExitCode = cmd.ProcessState.ExitCode()
	switch {
	case it.ExitCode < 0:
		it.Error = cmd.ProcessState.String()
	case it.ExitCode > 0:
		it.Error = fmt.Sprintf("exit code %d", it.ExitCode)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return it, fmt.Errorf("cannot copy the output of iteration %d: %w", i, err)
	}
	return it, nil
}

// onProgress reports the progress of an iteration as a part of the whole.
func (c *computeRun) onProgress(i int, p *muster.Progress) {
	fraction, step := -1.0, ""
	if p.Progress != nil {
		fraction = (float64(c.doneCount) + *p.Progress) / float64(c.in.Iterations)
	}
	if p.Step != nil {
		step = c.step(i) + ": " + *p.Step
	}
	c.t.progress.report(fraction, step, p.Metrics)
}

// followEvents gives the command an $MUSTER_EVENTS of its own, and reads it until the returned function is called.
func (c *computeRun) followEvents(cmd *exec.Cmd, i int) (func(), error) {
	f, err := os.CreateTemp("", "events-")
	if err != nil {
		return nil, fmt.Errorf("cannot create the events file of iteration %d: %w", i, err)
	}
	cmd.Env = append(cmd.Env, "MUSTER_EVENTS="+f.Name())
	stop := followLines(f, func(line []byte) {
		if p, err := progress.ParseEvent(line); err == nil {
			c.onProgress(i, &p)
		}
	})
	return func() {
		stop()
		_ = f.Close()
		_ = os.Remove(f.Name()) // it is in the task's own folder
	}, nil
}

func (c *computeRun) summarize() {
	r := &c.result
	var wall []float64
	size, numbers := 0, map[string]numberStats{}
	for i := range c.iterations {
		it := c.iterations[i]
		if it == nil {
			continue
		}
		if it.ExitCode != 0 {
			r.Failed++
			continue
		}
		r.Finished++
		wall = append(wall, it.Seconds*1000)
		if it.Value == nil {
			continue
		}
		size += len(it.Value) + 1
		r.Values = append(r.Values, it.Value)
		addNumbers(numbers, it.Value)
	}
	r.Wall = newDurationStats(wall)
	if size > maxValues {
		r.Values = nil
	}
	if len(numbers) > 0 && len(numbers) <= maxNames {
		r.Summary = numbers
	}
}

// addNumbers adds the numbers of a value to all: the value itself, or the fields of an object.
func addNumbers(all map[string]numberStats, raw json.RawMessage) {
	v, err := decodeJSON(raw)
	if err != nil {
		return
	}
	fields, ok := v.(map[string]any)
	if !ok {
		fields = map[string]any{"value": v}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		n, ok := fields[name].(float64)
		s, exists := all[name]
		if !ok || math.IsInf(n, 0) || !exists && len(all) > maxNames {
			continue
		}
		if !exists {
			s.Min, s.Max = n, n
		}
		s.Count++
		s.Mean += (n - s.Mean) / float64(s.Count)
		s.Min, s.Max = min(s.Min, n), max(s.Max, n)
		all[name] = s
	}
}

// outputFilter copies the output of a command except its events, and stores the last line.
type outputFilter struct {
	w        io.Writer
	onEvent  func(*muster.Progress)
	partial  []byte // an incomplete line
	lastLine []byte
}

// Write implements io.Writer. It copies whole lines; a very long one is copied in parts.
func (s *outputFilter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		line, rest, found := bytes.Cut(b, []byte("\n"))
		s.partial = append(s.partial, line...)
		if b = rest; found {
			if err := s.writeLine(); err != nil {
				return 0, err
			}
		} else if len(s.partial) > bufio.MaxScanTokenSize {
			_, err := s.w.Write(s.partial)
			if s.partial, s.lastLine = s.partial[:0], nil; err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (s *outputFilter) writeLine() error {
	defer func() { s.partial = s.partial[:0] }()
	if progress.IsEvent(s.partial) {
		if p, err := progress.ParseLine(s.partial); err == nil {
			s.onEvent(&p)
			return nil
		}
	}
	if text := bytes.TrimSpace(s.partial); len(text) > 0 {
		s.lastLine = append(s.lastLine[:0], text...)
	}
	_, err := s.w.Write(append(s.partial, '\n'))
	return err
}

// flush writes a last line without end.
func (s *outputFilter) flush() {
	if len(s.partial) > 0 {
		_ = s.writeLine() // the error cannot be reported any more
	}
}

func (s *outputFilter) lastValue() json.RawMessage {
	if len(s.lastLine) == 0 || len(s.lastLine) > maxValue || !json.Valid(s.lastLine) {
		return nil
	}
	return slices.Clone(s.lastLine)
}
