package work

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
)

// TestOffered holds that what the operator says stands over what was found out,
// which stays as it is.
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

// TestHeldDisk counts what tasks that run on may use, and not what has ended.
func TestHeldDisk(t *testing.T) {
	held := func(job muster.JobID, disk muster.Size, report *muster.Report) run.Held {
		id := muster.AttemptID{Task: muster.TaskID{Job: job}, N: 1}
		state, err := (&run.Task{Attempt: id, Spec: &muster.TaskSpec{}, Grant: muster.Grant{Disk: disk}}).State()
		if err != nil {
			t.Fatal(err)
		}
		return run.Held{Start: run.Start{Attempt: id, State: state}, Report: report}
	}
	all := []run.Held{held(1, 10, nil), held(2, 20, &muster.Report{}), held(3, 0, nil), held(4, 5, nil)}
	all = append(all, run.Held{}) // of which nothing is known
	if got := heldDisk(all); got != 15 {
		t.Errorf("%d bytes", got)
	}
}
