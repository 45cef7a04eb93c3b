package workerd

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/muster-dev/muster/internal/agent/probe"
)

// errProbe is why failingProbe finds out nothing.
var errProbe = errors.New("the machine cannot be probed")

// failingProbe finds out nothing, and runs stop first.
type failingProbe struct {
	prober

	stop func()
}

func (p failingProbe) Run(context.Context) (probe.Facts, error) {
	p.stop()
	return probe.Facts{}, errProbe
}

// TestRunReturnsProbeErrors checks that a worker which cannot find out what its machine has does not end as if it
// had been stopped, unless it was.
func TestRunReturnsProbeErrors(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"not stopped": false, "stopped": true} {
		w, err := New(Config{Server: "http://127.0.0.1:1", Data: t.TempDir()}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.newProbe = func(probe.Config) prober {
			if stopped {
				return failingProbe{stop: cancel}
			}
			return failingProbe{stop: func() {}}
		}
		if err := w.Run(ctx); stopped && err != nil || !stopped && !errors.Is(err, errProbe) {
			t.Errorf("%s: the worker ended with %v", name, err)
		}
	}
}
