package runtest

import (
	"context"
	"strings"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Board hands devices of NVIDIA out and remembers who has them.
type Board struct {
	mu    sync.Mutex
	taken map[muster.AttemptID]bool
	marks map[muster.AttemptID]string // of those that gave them back
	fault error
}

var _ run.Devices = (*Board)(nil)

// NewBoard returns a board whose devices nobody has.
func NewBoard() *Board {
	return &Board{taken: map[muster.AttemptID]bool{}, marks: map[muster.AttemptID]string{}}
}

// Fail lets the devices fail under all attempts from now on.
func (b *Board) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = err
}

// Gave returns the mark of an attempt that has given its devices back, "" for others.
func (b *Board) Gave(a muster.AttemptID) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.marks[a]
}

// Environ is run.Devices.
func (*Board) Environ(g *muster.Grant) []string {
	list := strings.Join(g.GPUs, ",")
	return []string{"CUDA_VISIBLE_DEVICES=" + list, "NVIDIA_VISIBLE_DEVICES=" + list}
}

// Take is run.Devices.
func (b *Board) Take(_ context.Context, a muster.AttemptID, _ *muster.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken[a] = true
}

// Give is run.Devices.
func (b *Board) Give(_ context.Context, a muster.AttemptID, _ *muster.Grant, mark string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken[a] {
		delete(b.taken, a)
		b.marks[a] = mark
	}
	return b.fault
}
