package script

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/mustertest"
)

var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, \S+ ms clock, (\d+) bytes, (\d+) allocs$`)

// TestStart limits what the initialization of packages allocates, which, unlike its duration, does not depend on the load of the machine. Each
// command, shim and entrypoint is a process that does it. BenchmarkVersion of test/load measures the duration.
func TestStart(t *testing.T) {
	const maxBytes, maxAllocs, maxOwn = 1_700_000, 12_500, 50_000 // see ADR 54
	cmd := exec.CommandContext(t.Context(), mustertest.Program(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	type initialization struct {
		pkg           string
		bytes, allocs int
	}
	var all []initialization
	bytes, allocs := 0, 0
	for _, m := range initLine.FindAllStringSubmatch(trace.String(), -1) {
		b, errB := strconv.Atoi(m[2])
		n, errN := strconv.Atoi(m[3])
		if errB != nil || errN != nil {
			t.Fatal(m[0])
		}
		all = append(all, initialization{m[1], b, n})
		bytes, allocs = bytes+b, allocs+n
		if strings.HasPrefix(m[1], "github.com/muster-dev/") && b > maxOwn {
			t.Errorf("the initialization of %s allocates %d bytes, more than %d: make what it needs later with sync.OnceValue", m[1], b, maxOwn)
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d packages are initialized: the trace is not read: %.200s", len(all), trace.String())
	}
	slices.SortFunc(all, func(a, b initialization) int { return cmp.Compare(b.bytes, a.bytes) })
	if bytes > maxBytes || allocs > maxAllocs {
		t.Errorf("the initialization of packages allocates %d bytes in %d parts, more than %d in %d; the most: %s", bytes, allocs, maxBytes, maxAllocs, fmt.Sprint(all[:5]))
	}
}
