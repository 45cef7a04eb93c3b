package workerd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
)

// TestOffered checks that the operator's options override the detected facts, which are not changed.
func TestOffered(t *testing.T) {
	found := probe.Facts{
		Hostname: "box", Tags: append(make([]string, 0, 8), "linux", "gpu"),
		Resources: muster.Resources{CPUs: 8, Memory: 32 << 30, Disk: 100, Slots: 16},
	}
	cfg := Config{Name: "mine", Tags: []string{"gpu", "laptop"}, CPUs: 3, Memory: 4 << 30}
	got := cfg.Offered(found)
	want := muster.Resources{CPUs: 3, Memory: 4 << 30, Disk: 100, Slots: 6}
	if d := cmp.Diff(want, got.Resources); d != "" || got.Hostname != "mine" || !slices.Equal(got.Tags, []string{"linux", "gpu", "laptop"}) {
		t.Errorf("%s, tags %q: %s", got.Hostname, got.Tags, d)
	}
	cfg = Config{Slots: 2, Tags: []string{"desktop"}}
	again := cfg.Offered(found)
	if again.Resources.Slots != 2 || again.Resources.CPUs != 8 || again.Hostname != "box" || !slices.Equal(again.Tags, []string{"linux", "gpu", "desktop"}) {
		t.Errorf("%s, tags %q: %+v", again.Hostname, again.Tags, again.Resources)
	}
	if got.Tags[2] != "laptop" {
		t.Error("two offers share their tags")
	}
}

// TestDiskIsOfferedOnce checks that of the disk that is reserved for tasks which run on only that is offered
// beyond the free disk which they have written, and at most what was reserved: the server takes the whole grant off.
func TestDiskIsOfferedOnce(t *testing.T) {
	w := &Worker{cfg: Config{Data: t.TempDir()}}
	grant := func(job muster.JobID, disk muster.Size, report *muster.Report) run.Recovered {
		id := muster.AttemptID{Task: muster.TaskID{Job: job}, N: 1}
		state, err := (&run.Task{Attempt: id, Spec: &muster.TaskSpec{}, Grant: muster.Grant{Disk: disk}}).State()
		if err != nil {
			t.Fatal(err)
		}
		return run.Recovered{Start: run.StartSpec{Attempt: id, State: state}, Report: report}
	}
	writes := func(folder string, size int) {
		folder = filepath.Join(w.cfg.Data, "tasks", folder, "work")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "file"), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const mib = 1 << 20
	all := []run.Recovered{grant(1, 100*mib, nil), grant(2, 2*mib, nil), grant(3, 100*mib, &muster.Report{}), grant(4, 100*mib, nil), grant(5, 0, nil), {}}
	writes("1.0-1", 3*mib) // less than it may
	writes("2.0-1", 5*mib) // more
	writes("3.0-1", 7*mib) // it has ended
	writes("5.0-1", 7*mib) // nothing is reserved for it
	got := w.writtenDisk(t.Context(), recoveredGrants(all))
	if want := muster.Size(5 * mib); got < want || got > want+mib/2 {
		t.Errorf("%s beyond the free disk are offered, want about %s", got, want)
	}
	if again := w.writtenDisk(t.Context(), runningGrants([]agent.Running{{Attempt: all[0].Start.Attempt, Grant: muster.Grant{Disk: 100 * mib}}})); again < 3*mib || again > 4*mib {
		t.Errorf("%s of a task that runs", again)
	}
}
