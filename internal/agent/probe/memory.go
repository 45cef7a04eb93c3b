package probe

import (
	"context"
	"fmt"

	"github.com/shirou/gopsutil/v4/mem"

	"github.com/muster-dev/muster"
)

func memory(ctx context.Context) (muster.Size, error) {
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("the size of the memory is unknown: %w", err)
	}
	total := muster.Size(m.Total)
	if limit, ok := cgroupMemory(); ok {
		total = min(total, limit)
	}
	return total, nil
}
