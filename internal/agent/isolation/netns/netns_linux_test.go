package netns

import (
	"errors"
	"testing"

	"github.com/muster-dev/muster/internal/agent/shim/fault"
)

// A panic on the thread is the caller's, who can catch it.
func TestPanicOnTheThreadIsPropagated(t *testing.T) {
	t.Parallel()
	ran := false
	OnThread(func() { ran = true })
	err := fault.Run(func() { OnThread(func() { panic("a bug") }) })
	if p, ok := errors.AsType[*fault.PanicError](err); !ok || p.Value != "a bug" || !ran {
		t.Errorf("%v", err)
	}
}
