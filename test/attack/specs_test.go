//go:build linux

package attack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
)

// cost is what a process has used so far.
type cost struct {
	memory int64 // bytes, at most at a time
	cpu    time.Duration
}

func (e *env) cost() cost {
	e.t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(e.Server.PID()))
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		e.t.Fatal(err)
	}
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		e.t.Fatal(err)
	}
	var c cost
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(peak, &c.memory); err != nil {
		e.t.Fatal(err)
	}
	c.memory <<= 10
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	if errUser != nil || errSystem != nil {
		e.t.Fatal(errUser, errSystem)
	}
	c.cpu = time.Duration(user+system) * 10 * time.Millisecond
	return c
}

// TestSpecCostIsBoundedBySize sends specs of up to 1 MB which cost a YAML parser a thousand times their
// size or minutes, several at once. The server spends little on them.
func TestSpecCostIsBoundedBySize(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.key(string(auth.Submitter), "alpha", 0).Secret
	send := func(path, spec string) {
		ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
		defer cancel()
		r := e.request(http.MethodPost, path, token, strings.NewReader(spec)).WithContext(ctx)
		r.Header.Set("Content-Type", "application/yaml")
		resp, err := e.http.Do(r)
		if err != nil {
			t.Errorf("a spec was not answered: %v", err)
			return
		}
		_ = resp.Body.Close()
	}
	submit := func() {
		if _, err := e.Client.Submit(t.Context(), &muster.Spec{Name: "honest", Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, client.SubmitOptions{}); err != nil {
			t.Error(err)
		}
	}
	submit()
	for name, spec := range map[string]string{
		"list":   "run: [" + strings.Repeat("a,", 480_000) + "a]",
		"quotes": "run: " + strings.Repeat(`"`, 1_000_000),
		"tabs":   `run: "` + strings.Repeat("\t", 1_000_000) + `a"`,
		"empty":  "run: |\n  a" + strings.Repeat("\n", 1_000_000),
		"JSON":   `{"run":["a"` + strings.Repeat(`,"a"`, 250_000) + "]}",
		"script": "run: |\n" + strings.Repeat("  [ \"$a\" ] && b, c: {d} | e # f\n", 31_000),
		"name":   `{"run":"a","input":{"` + strings.Repeat("k", 400_000) + `":[1` + strings.Repeat(",1", 49_000) + "]}}",
		"fields": `{"run":"a"` + strings.Repeat(`,"unknown":1`, 40_000) + "}",
	} {
		before := e.cost()
		var senders sync.WaitGroup
		for i := range 5 {
			path := "/api/v1/plan"
			if i%2 == 1 {
				path = "/api/v1/jobs"
			}
			senders.Go(func() { send(path, spec) })
		}
		submit() // beside it
		senders.Wait()
		submit() // after it
		after := e.cost()
		t.Logf("%s: %d MB, %s", name, (after.memory-before.memory)>>20, after.cpu-before.cpu)
		if growth := after.memory - before.memory; growth > 100<<20 {
			t.Errorf("%s: five specs of 1 MB cost the server %d MB of memory", name, growth>>20)
		}
		if spent := after.cpu - before.cpu; spent > 4*time.Second {
			t.Errorf("%s: five specs of 1 MB cost the server %s of CPU time", name, spent)
		}
	}
}
