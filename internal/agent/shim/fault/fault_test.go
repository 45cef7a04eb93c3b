package fault_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/agent/shim/fault"
)

func explode() { panic("boom") }

func TestPanicBecomesAnError(t *testing.T) {
	t.Parallel()
	err := fault.Run(explode)
	p, ok := errors.AsType[*fault.PanicError](err)
	if !ok || p.Value != "boom" || err.Error() != "panic: boom" || !strings.Contains(string(p.Stack), "explode") {
		t.Fatalf("%v: %s", err, p.Stack)
	}
	again := fault.Run(func() { panic(p) }) // as when it is passed on from another goroutine
	if !errors.Is(again, p) {
		t.Errorf("%v is a different error", again)
	}
	if err := fault.Run(func() {}); err != nil {
		t.Error(err)
	}
	usual := errors.New("usual")
	if err := fault.Catch(func() error { return usual }); !errors.Is(err, usual) {
		t.Error(err)
	}
}
