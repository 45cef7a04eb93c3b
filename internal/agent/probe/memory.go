package probe

import (
	"context"
	"fmt"

	"github.com/shirou/gopsutil/v4/mem"

	"github.com/muster-dev/muster"
)

// Memory is the machine's memory, in bytes.
type Memory struct {
	Usable    muster.Size `json:"usable,omitempty"` // by processes here; less than Total in a limited container
	Total     muster.Size `json:"total,omitempty"`
	Available muster.Size `json:"available,omitempty"` // without swapping
	SwapTotal muster.Size `json:"swap_total"`
	SwapFree  muster.Size `json:"swap_free"`
}

func (h *host) memory(ctx context.Context) (Memory, error) {
	v, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return Memory{}, fmt.Errorf("cannot read the size of the memory: %w", err)
	}
	m := Memory{Usable: muster.Size(v.Total), Total: muster.Size(v.Total), Available: muster.Size(v.Available)}
	if limit, ok := h.cgroupMemory(); ok {
		m.Usable = min(m.Usable, limit)
	}
	if swap, err := mem.SwapMemoryWithContext(ctx); err == nil {
		m.SwapTotal, m.SwapFree = muster.Size(swap.Total), muster.Size(swap.Free)
	}
	return m, nil
}

// FreeMemory returns the memory that is available now without swapping, and false if it is unknown.
func FreeMemory() (muster.Size, bool) {
	v, err := mem.VirtualMemory()
	if err != nil {
		return 0, false
	}
	return muster.Size(v.Available), true
}
