package serverd

import (
	"testing"

	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/dialect"
)

// The server's port and those of all gateways leave a third of the descriptors, and the server has at least its minimum of connections.
func TestConnections(t *testing.T) {
	t.Parallel()
	systems := len(Dialects())
	for _, descriptors := range []uint64{256, 1024, 4096, 1 << 16, 1 << 20} {
		own := maxConnections(descriptors, systems)
		if all := own + systems*dialect.MaxConnections(descriptors); uint64(all) > descriptors/3*2 || own < 32 {
			t.Errorf("%d descriptors: %d connections, of which the server has %d", descriptors, all, own)
		}
		if got, want := maxConnections(descriptors, 0), connlimit.ConnsFor(descriptors); got != want {
			t.Errorf("%d descriptors without gateways: %d connections, want %d", descriptors, got, want)
		}
	}
}
