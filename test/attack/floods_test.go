//go:build linux

package attack

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/link"
)

// TestReadinessCostsNothing asks whether the server is ready, without a key, again and again, with workers
// that said as much of themselves as they may.
func TestReadinessCostsNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const kind = `{"name":"x","description":"`
	kinds, err := json.Marshal([]json.RawMessage{json.RawMessage(kind + strings.Repeat("x", link.MaxOwnKinds-100) + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		worker := e.join("big")
		conn := e.dial(worker)
		h := hello(worker, "big")
		h.OwnKinds = kinds
		e.send(conn, &link.ToServer{Hello: h})
		e.receive(conn, "a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
	}
	before := e.cost()
	const askers, questions = 8, 100
	var asking sync.WaitGroup
	for range askers {
		asking.Go(func() {
			for range questions {
				resp, err := e.http.Do(e.request(http.MethodGet, "/readyz", "", nil))
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
			}
		})
	}
	asking.Wait()
	after := e.cost()
	t.Logf("%d questions: %s, %d MB", askers*questions, after.cpu-before.cpu, (after.memory-before.memory)>>20)
	if spent := after.cpu - before.cpu; spent > 3*time.Second {
		t.Errorf("%d questions whether the server is ready cost it %s of CPU time", askers*questions, spent)
	}
}
