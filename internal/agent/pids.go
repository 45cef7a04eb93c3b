package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Pids remembers the processes of running tasks in a file of fixed-size slots:
// one small write for a start and one for an end. It is not synced to disk, since
// processes do not survive what unsynced writes do not survive. It implements
// run.Pids, and may be used by several goroutines.
type Pids struct {
	f    *os.File
	left []run.Pid // of an earlier life

	mu   sync.Mutex
	slot map[muster.AttemptID]int64
	free []int64
	end  int64 // slots in the file
}

const slotSize = 512

// slot is a record as JSON, padded with spaces.
type slot struct {
	Attempt muster.AttemptID `json:"attempt"`
	Proc    run.Pid          `json:"proc"`
}

// OpenPids opens the record in dir. KillLeftovers must precede the first Put.
func OpenPids(dir string) (*Pids, error) {
	f, err := os.OpenFile(filepath.Join(dir, "pids"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the record of processes cannot be opened: %w", err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, errors.Join(muster.Errorf(muster.Internal, "the record of processes cannot be read: %w", err), f.Close())
	}
	return &Pids{f: f, left: parseSlots(b), slot: map[muster.AttemptID]int64{}}, nil
}

// parseSlots reads the records of a file. A slot that a crash left half written
// names no process: its task had not been started yet.
func parseSlots(b []byte) []run.Pid {
	var procs []run.Pid
	for len(b) > 0 {
		one := b[:min(slotSize, len(b))]
		b = b[len(one):]
		var s slot
		if one = bytes.TrimRight(one, " \x00"); len(one) > 0 && json.Unmarshal(one, &s) == nil {
			procs = append(procs, s.Proc)
		}
	}
	return procs
}

// KillLeftovers ends what an earlier life of the worker left running, so that
// nothing of it disturbs what comes.
func (p *Pids) KillLeftovers(log *slog.Logger) error {
	var g errgroup.Group
	g.SetLimit(killAtOnce)
	for _, proc := range p.left {
		g.Go(func() error {
			log.Info("ending what an earlier life of this worker left running", slog.Int("pid", proc.PID))
			if err := run.KillLeftover(proc); err != nil {
				log.Warn("a process of an earlier life of this worker goes on", slog.Int("pid", proc.PID), slog.Any("error", err))
			}
			return nil
		})
	}
	err := g.Wait()
	p.left = nil
	return errors.Join(err, p.f.Truncate(0))
}

// killAtOnce is how many leftovers are awaited at the same time.
const killAtOnce = 16

// Close closes the file.
func (p *Pids) Close() error { return p.f.Close() }

// Put implements run.Pids.
func (p *Pids) Put(a muster.AttemptID, proc run.Pid) error {
	b, err := json.Marshal(slot{a, proc})
	if err != nil {
		return err
	}
	if len(b) > slotSize {
		return muster.Errorf(muster.Internal, "the record of process %d takes %d bytes, more than %d", proc.PID, len(b), slotSize)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.slot[a]
	if !ok {
		if last := len(p.free) - 1; last >= 0 {
			n, p.free = p.free[last], p.free[:last]
		} else {
			n = p.end
			p.end++
		}
		p.slot[a] = n
	}
	return p.write(n, b)
}

// Delete implements run.Pids.
func (p *Pids) Delete(a muster.AttemptID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.slot[a]
	if !ok {
		return nil
	}
	delete(p.slot, a)
	p.free = append(p.free, n)
	return p.write(n, nil)
}

func (p *Pids) write(n int64, b []byte) error {
	padded := bytes.Repeat([]byte{' '}, slotSize)
	copy(padded, b)
	_, err := p.f.WriteAt(padded, n*slotSize)
	return err
}
