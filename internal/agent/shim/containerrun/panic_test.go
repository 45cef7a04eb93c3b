//go:build unix

package containerrun

import (
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/muster-dev/muster/internal/agent/shim/fault"
)

// panickingHandler panics.
type panickingHandler struct{}

func (panickingHandler) LogLine(string)   {}
func (panickingHandler) OnWaiting(string) {}
func (panickingHandler) OnExit()          { panic("a bug") }

// A panic in a container's event handler ends the wait for it, and the container can still be killed.
func TestPanicEndsTheWait(t *testing.T) {
	p := sharedEngine(t)
	c := p.create(nil, "sh", "-c", "exit 0")
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Start(c, "MUSTER_MARK=x", null, other, DefaultTimeouts, panickingHandler{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	err = fault.Run(func() { v.Wait() })
	if caught, ok := errors.AsType[*fault.PanicError](err); !ok || caught.Value != "a bug" {
		t.Errorf("the wait ended with %v", err)
	}
	if err := v.Abort(); err != nil {
		t.Errorf("abort: %v", err)
	}
}
