package do

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
	"github.com/muster-dev/muster/internal/agent/run"
)

type computeInput struct {
	Iterations    int      `json:"iterations"`
	KeepGoing     bool     `json:"keep_going"`
	ComputeNeeded *float64 `json:"computeNeeded"` // of older systems: taken, not used
}

// iteration is a line of iterations.jsonl, here and in the checkpoint.
type iteration struct {
	Iteration int             `json:"iteration"`
	ExitCode  int             `json:"exit_code"` // -1 for a signal
	Seconds   float64         `json:"seconds"`
	Value     json.RawMessage `json:"value,omitempty"` // the last line that it printed, if that is JSON
	Error     string          `json:"error,omitempty"`
}

// computeResult is the result.
type computeResult struct {
	Iterations int               `json:"iterations"`
	Finished   int               `json:"finished"` // well
	Failed     int               `json:"failed"`
	Resumed    int               `json:"resumed,omitempty"` // of these, by earlier attempts
	Wall       *spread           `json:"wall_ms,omitempty"`
	Values     []json.RawMessage `json:"values,omitempty"`  // in order, of those that have one; absent if they are too large: iterations.jsonl has all
	Summary    map[string]stat   `json:"summary,omitempty"` // of the numbers among the values, by name
}

// stat sums up a number over all iterations.
type stat struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
}

const (
	maxValue  = 16 << 10  // bytes of a value
	maxValues = 128 << 10 // bytes of all in the result
	maxNames  = 100       // in the summary
)

// compute executes the stage's command again and again.
func compute(ctx context.Context, t *task) (any, error) {
	in := computeInput{Iterations: 1}
	if err := t.given(&in); err != nil {
		return nil, err
	}
	if len(t.words) == 0 {
		return nil, failf(muster.BadInput, "there is no command: write run: a command, or muster run … -- CMD")
	}
	c := &computing{t: t, in: &in, done: make([]*iteration, in.Iterations), result: computeResult{Iterations: in.Iterations}}
	if err := c.open(); err != nil {
		return nil, err
	}
	defer c.close()
	err := c.all(ctx)
	c.sumUp()
	return &c.result, err
}

// computing is one compute task on its way.
type computing struct {
	t      *task
	in     *computeInput
	done   []*iteration // nil for those that are still to be done
	count  int          // of those that are done
	lines  *lines       // the artifact
	saved  *os.File     // the checkpoint; nil for none
	result computeResult
}

// open reads what earlier attempts have done.
func (c *computing) open() (err error) {
	if c.lines, err = c.t.lines("iterations.jsonl"); err != nil {
		return err
	}
	if c.t.checkpoint == "" {
		return nil
	}
	path := filepath.Join(c.t.checkpoint, "iterations.jsonl")
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the checkpoint cannot be read: %w", err)
	}
	whole := 0
	for rest := before; ; {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		it := new(iteration)
		if !found || json.Unmarshal(line, it) != nil {
			break // what was being written when it ended
		}
		whole, rest = whole+len(line)+1, after
		if it.ExitCode != 0 || it.Iteration < 0 || it.Iteration >= len(c.done) || c.done[it.Iteration] != nil {
			continue // what failed is done again
		}
		c.done[it.Iteration] = it
		c.count++
		if err := c.lines.add(it); err != nil {
			return err
		}
	}
	if c.result.Resumed = c.count; c.count > 0 {
		_, _ = fmt.Fprintf(c.t.stdout, "%d of %d iterations were done before\n", c.count, c.in.Iterations)
	}
	if c.saved, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
		if err = c.saved.Truncate(int64(whole)); err == nil {
			_, err = c.saved.Seek(int64(whole), io.SeekStart)
		}
	}
	if err != nil {
		return fmt.Errorf("the checkpoint cannot be written: %w", err)
	}
	return nil
}

func (c *computing) close() {
	_ = c.lines.close() // add tells what cannot be written
	if c.saved != nil {
		_ = c.saved.Close()
	}
}

func (c *computing) all(ctx context.Context) error {
	var failed *iteration
	failures := 0
	for i, before := range c.done {
		if before != nil {
			continue
		}
		c.report(i)
		it, err := c.once(ctx, i)
		if err != nil {
			return err
		}
		if ctx.Err() != nil && it.ExitCode != 0 {
			return ctx.Err() // it was told to end, too
		}
		c.done[i] = it
		c.count++
		if err := c.note(it); err != nil {
			return err
		}
		if it.ExitCode != 0 {
			failures++
			if failed == nil {
				failed = it
			}
			if !c.in.KeepGoing {
				return failf(muster.ExitCode, "iteration %d of %d, counted from 0, failed with %s, and no more were begun: write keep_going: true to go on", i, c.in.Iterations, it.Error)
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
	return failf(muster.ExitCode, "%d of %d iterations failed, first number %d, counted from 0, with %s", failures, c.in.Iterations, failed.Iteration, failed.Error)
}

// note keeps an iteration where the next attempt and the user find it.
func (c *computing) note(it *iteration) error {
	if err := c.lines.add(it); err != nil {
		return err
	}
	if c.saved == nil {
		return nil
	}
	if err := (&lines{c.saved}).add(it); err != nil {
		return fmt.Errorf("the checkpoint: %w", err)
	}
	return nil
}

func (c *computing) report(i int) {
	c.t.progress.report(float64(c.count)/float64(c.in.Iterations), c.step(i), nil)
}

// step names an iteration as the command knows it, by $MUSTER_ITERATION.
func (c *computing) step(i int) string {
	return fmt.Sprintf("iteration %d, %d/%d done", i, c.count, c.in.Iterations)
}

// once executes the command once. An error is one of ours, or that there is no such command.
func (c *computing) once(ctx context.Context, i int) (*iteration, error) {
	it := &iteration{Iteration: i}
	cmd := exec.Command(c.t.words[0], c.t.words[1:]...) //nolint:noctx // who stops the task signals it too, and it may end in order
	cmd.Env = append(os.Environ(), "MUSTER_ITERATION="+strconv.Itoa(i), "MUSTER_ITERATIONS="+strconv.Itoa(c.in.Iterations))
	cmd.Stderr = c.t.stderr
	said := &saying{to: c.t.stdout, event: func(p *muster.Progress) { c.heard(i, p) }}
	cmd.Stdout = said
	cmd.WaitDelay = leftWait
	events, err := c.listen(cmd, i)
	if err != nil {
		return it, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		events()
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return it, failf(muster.BadInput, "%s: there is no such command on this worker, nor in the task's folder", c.t.words[0])
		}
		return it, fmt.Errorf("%s cannot be executed: %w", c.t.words[0], err)
	}
	stopping := context.AfterFunc(ctx, func() { terminate(cmd.Process) })
	err = cmd.Wait()
	stopping()
	events()
	it.Seconds = time.Since(began).Seconds()
	said.flush()
	it.Value = said.value()
	it.ExitCode = cmd.ProcessState.ExitCode()
	switch {
	case it.ExitCode < 0:
		it.Error = cmd.ProcessState.String()
	case it.ExitCode > 0:
		it.Error = fmt.Sprintf("exit code %d", it.ExitCode)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return it, fmt.Errorf("the output of iteration %d cannot be passed on: %w", i, err)
	}
	return it, nil
}

// heard passes on what an iteration reports, as a part of the whole.
func (c *computing) heard(i int, p *muster.Progress) {
	part, step := -1.0, ""
	if p.Progress != nil {
		part = (float64(c.count) + *p.Progress) / float64(c.in.Iterations)
	}
	if p.Step != nil {
		step = c.step(i) + ": " + *p.Step
	}
	c.t.progress.report(part, step, p.Metrics)
}

// listen gives the command an $MUSTER_EVENTS of its own, and follows it until the returned function is called.
func (c *computing) listen(cmd *exec.Cmd, i int) (func(), error) {
	f, err := os.CreateTemp("", "events-")
	if err != nil {
		return nil, fmt.Errorf("the events of iteration %d have no place: %w", i, err)
	}
	cmd.Env = append(cmd.Env, "MUSTER_EVENTS="+f.Name())
	stop := follow(f, func(line []byte) {
		if p, err := run.ParseEvent(line); err == nil {
			c.heard(i, &p)
		}
	})
	return func() {
		stop()
		_ = f.Close()
		_ = os.Remove(f.Name()) // it is in the task's own folder
	}, nil
}

func (c *computing) sumUp() {
	r := &c.result
	var wall []float64
	size, numbers := 0, map[string]stat{}
	for i := range c.done {
		it := c.done[i]
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
	r.Wall = spreadOf(wall)
	if size > maxValues {
		r.Values = nil
	}
	if len(numbers) > 0 && len(numbers) <= maxNames {
		r.Summary = numbers
	}
}

// addNumbers adds the numbers of a value: the value itself, or the fields of an object.
func addNumbers(all map[string]stat, raw json.RawMessage) {
	v, err := value(raw)
	if err != nil {
		return
	}
	fields, ok := v.(map[string]any)
	if !ok {
		fields = map[string]any{"value": v}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		n, ok := fields[name].(float64)
		s, known := all[name]
		if !ok || math.IsInf(n, 0) || !known && len(all) > maxNames {
			continue
		}
		if !known {
			s.Min, s.Max = n, n
		}
		s.Count++
		s.Mean += (n - s.Mean) / float64(s.Count)
		s.Min, s.Max = min(s.Min, n), max(s.Max, n)
		all[name] = s
	}
}

// saying passes on what a command prints, but for its events, and remembers the last line.
type saying struct {
	to    io.Writer
	event func(*muster.Progress)
	part  []byte // of a line
	last  []byte
}

// Write implements io.Writer. It takes lines; a very long one is passed on in parts.
func (s *saying) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		line, rest, found := bytes.Cut(b, []byte("\n"))
		s.part = append(s.part, line...)
		if b = rest; found {
			if err := s.line(); err != nil {
				return 0, err
			}
		} else if len(s.part) > bufio.MaxScanTokenSize {
			_, err := s.to.Write(s.part)
			if s.part, s.last = s.part[:0], nil; err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (s *saying) line() error {
	defer func() { s.part = s.part[:0] }()
	if run.IsEvent(s.part) {
		if p, err := run.ParseLine(s.part); err == nil {
			s.event(&p)
			return nil
		}
	}
	if text := bytes.TrimSpace(s.part); len(text) > 0 {
		s.last = append(s.last[:0], text...)
	}
	_, err := s.to.Write(append(s.part, '\n'))
	return err
}

// flush ends a last line that has no end.
func (s *saying) flush() {
	if len(s.part) > 0 {
		_ = s.line() // there is nobody left to tell
	}
}

// value returns the last line if it is JSON, and not a plain word of it.
func (s *saying) value() json.RawMessage {
	if len(s.last) == 0 || len(s.last) > maxValue || !json.Valid(s.last) {
		return nil
	}
	return slices.Clone(s.last)
}
