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

// PIDFile remembers the processes of running tasks in a file of fixed-size slots, so
// that they can be ended when the shim itself was killed: one small write before a
// start, one after it and one for the end. It is not synced to disk, since
// processes do not survive what unsynced writes do not survive. It may be used by
// several goroutines.
type PIDFile struct {
	f *os.File

	mu    sync.Mutex
	slots map[muster.AttemptID]int64
	free  []int64
	end   int64 // slots in the file
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

// CreatePIDFile makes the record in a folder.
func CreatePIDFile(dir string) (*PIDFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, pidsFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the record of processes cannot be opened: %w", err)
	}
	return &PIDFile{f: f, slots: map[muster.AttemptID]int64{}}, nil
}

// ReadPIDFile reads the record that a shim left in a folder. A slot that was only half
// written names no process: its task had not been started yet.
func ReadPIDFile(dir string) []run.Pid {
	b, err := os.ReadFile(filepath.Join(dir, pidsFile))
	if err != nil {
		return nil // it had started nothing
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

// KillRecordedOrphans ends what a shim that is gone left running, so that nothing of it
// disturbs what comes.
func KillRecordedOrphans(dir string, log *slog.Logger) {
	procs := ReadPIDFile(dir)
	for _, proc := range procs {
		log.Info("ending what a shim that is gone left running", slog.Int("pid", proc.PID))
	}
	if err := KillOrphans(procs); err != nil {
		log.Warn("a process of an earlier attempt goes on", slog.Any("error", err))
	}
}

// Close ends the use of the record, which stays.
func (p *PIDFile) Close() error { return p.f.Close() }

// Put writes or rewrites the record of an attempt.
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

// Delete deletes it.
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
