package proctree

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// PIDFile records the processes of running tasks in a file of fixed-size slots, so that they can be ended if the shim is killed: one small write
// before a start, one after it and one for the end. It is not synced to disk: a crash that loses the writes ends the processes, too. Its methods
// may be called concurrently.
type PIDFile struct {
	f *os.File

	mu    sync.Mutex
	slots map[muster.AttemptID]int64
	free  []int64
	end   int64 // number of slots in the file
}

const (
	pidsFile = "pids"
	slotSize = 512
)

// slot is a record as JSON, padded with spaces.
type slot struct {
	Attempt muster.AttemptID `json:"attempt"`
	Proc    run.Pid          `json:"proc"`
}

// CreatePIDFile creates the record in a directory.
func CreatePIDFile(dir string) (*PIDFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, pidsFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot create the record of processes: %w", err)
	}
	return &PIDFile{f: f, slots: map[muster.AttemptID]int64{}}, nil
}

// ReadPIDFile reads the record of a shim. It skips a slot that is half written: its task had not been started.
func ReadPIDFile(dir string) []run.Pid {
	b, err := os.ReadFile(filepath.Join(dir, pidsFile))
	if err != nil {
		return nil // no task was started
	}
	var procs []run.Pid
	for len(b) > 0 {
		record := b[:min(slotSize, len(b))]
		b = b[len(record):]
		var s slot
		if record = bytes.TrimRight(record, " \x00"); len(record) > 0 && json.Unmarshal(record, &s) == nil {
			procs = append(procs, s.Proc)
		}
	}
	return procs
}

// KillRecordedOrphans ends the recorded processes of an exited shim.
func KillRecordedOrphans(dir string, log *slog.Logger) {
	procs := ReadPIDFile(dir)
	for _, proc := range procs {
		log.Info("ending a process of an exited shim", slog.Int("pid", proc.PID))
	}
	if err := KillOrphans(procs...); err != nil {
		log.Warn("a process of an earlier attempt survives", slog.Any("error", err))
	}
}

// Close closes the record, which is kept.
func (p *PIDFile) Close() error { return p.f.Close() }

// Put writes the record of an attempt.
func (p *PIDFile) Put(a muster.AttemptID, proc run.Pid) error {
	b, err := json.Marshal(slot{a, proc})
	if err != nil {
		return err
	}
	if len(b) > slotSize {
		return muster.Errorf(muster.Internal, "the record of process %d takes %d bytes, more than %d", proc.PID, len(b), slotSize)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.slots[a]
	if !ok {
		if last := len(p.free) - 1; last >= 0 {
			n, p.free = p.free[last], p.free[:last]
		} else {
			n = p.end
			p.end++
		}
		p.slots[a] = n
	}
	return p.write(n, b)
}

// Delete deletes the record of an attempt.
func (p *PIDFile) Delete(a muster.AttemptID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.slots[a]
	if !ok {
		return nil
	}
	delete(p.slots, a)
	p.free = append(p.free, n)
	return p.write(n, nil)
}

func (p *PIDFile) write(n int64, b []byte) error {
	var padded [slotSize]byte
	for i := copy(padded[:], b); i < slotSize; i++ {
		padded[i] = ' '
	}
	_, err := p.f.WriteAt(padded[:], n*slotSize)
	return err
}

// KillTagged kills all processes that were started with envTag in their environment: tools of a previous worker process that was killed. It
// returns an error if some of them still run after 5 seconds.
func KillTagged(envTag string) error { return KillOrphans(run.Pid{BootID: BootID(), EnvTag: envTag}) }
