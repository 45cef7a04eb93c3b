package keyring

import (
	"testing"

	"github.com/muster-dev/muster/internal/auth"
)

// However many links to jobs ask, other keys have room.
func TestLinksLeaveRoom(t *testing.T) {
	b := NewBounds(1_000)
	link, viewer := auth.Principal{Role: auth.Viewer, Job: 17}, auth.Principal{Role: auth.Viewer}
	var leave []func()
	for range 10 {
		g := &Grant{}
		for range 1_000 {
			if l, err := b.Enter(link, g); err == nil {
				leave = append(leave, l)
			}
		}
		if n := g.requests.Load(); n > 93 {
			t.Errorf("one link has %d requests", n)
		}
	}
	if len(leave) != 375 || b.links.Load() != 375 || b.others.Load() != 375 {
		t.Errorf("%d requests of links, counted %d and %d", len(leave), b.links.Load(), b.others.Load())
	}
	g := &Grant{}
	if _, err := b.Enter(viewer, g); err != nil {
		t.Error(err)
	}
	for _, l := range leave {
		l()
	}
	if b.links.Load() != 0 || b.others.Load() != 1 {
		t.Errorf("left are %d and %d", b.links.Load(), b.others.Load())
	}
}
