package doctor

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/doctor"
)

// bridgeFindings returns the findings about bridges, by status.
func bridgeFindings(t *testing.T) map[doctor.Status]string {
	t.Helper()
	list, err := bridges()
	if err != nil {
		t.Fatal(err)
	}
	by := map[doctor.Status]string{}
	for _, f := range list {
		if f.Group != doctor.System || f.Name != "bridge" {
			t.Errorf("%+v", f)
		}
		by[f.Status] += f.Found + "; " + f.Fix + "\n"
	}
	return by
}

func TestBridges(t *testing.T) {
	root := t.TempDir()
	t.Setenv("XDG_DATA_HOME", root)
	if got := bridgeFindings(t); len(got) > 0 {
		t.Errorf("without bridges: %v", got)
	}
	open := func(below string) *bridge.Bridge {
		b, err := bridge.New(bridge.Config{Dir: filepath.Join(root, "muster", filepath.FromSlash(below)), System: "qubix", Log: slog.New(slog.DiscardHandler)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	fleet, each, dropIn := open("bridge/qubix"), open("bridge/dtf/each/w-1/jobs"), open("worker-mloc-w1/bridge")
	for _, id := range []string{"one", "two"} {
		if taken, err := fleet.Accept(t.Context(), bridge.Job{ID: id, Spec: muster.Spec{Tasks: []muster.TaskSpec{{Kind: "noop"}}}}); !taken || err != nil {
			t.Fatalf("%v, %v", taken, err)
		}
	}
	if got := bridgeFindings(t); strings.Count(got[doctor.OK], "is running") != 3 || len(got) != 1 {
		t.Errorf("while they run: %v", got)
	}
	for _, b := range []*bridge.Bridge{fleet, each, dropIn} {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got := bridgeFindings(t)
	if want := "muster bridge qubix is not running, and 2 of its jobs have no final report yet; start it again with the same options: `muster bridge qubix`\n"; got[doctor.Warning] != want {
		t.Errorf("jobs are open: %s", got[doctor.Warning])
	}
	if note := got[doctor.Note]; !strings.Contains(note, "muster bridge dtf is not running") || !strings.Contains(note, "muster worker mloc (w1) is not running") {
		t.Errorf("nothing is open: %s", note)
	}
	if err := os.WriteFile(filepath.Join(root, "muster", "worker-mloc-w1", "bridge", bridge.OutboxName), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := bridgeFindings(t); !strings.Contains(got[doctor.Warning], "cannot read the jobs of muster worker mloc (w1)") {
		t.Errorf("a damaged outbox: %v", got)
	}
}
