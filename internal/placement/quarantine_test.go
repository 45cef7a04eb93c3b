package placement_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

// sick is the rig with a device that is quarantined.
func sick() *muster.Worker {
	w := testWorker()
	w.Resources.GPUs[0].Quarantined = "an uncorrected ECC error"
	return w
}

func TestQuarantinedDeviceIsNotAssigned(t *testing.T) {
	t.Parallel()
	b := placement.NewWorkerUsage(sick())
	big := need(func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 36 * gib} })
	if now, ever := b.Fits(big), b.FitsEmpty(big); now != placement.GPUs || ever != placement.GPUs {
		t.Errorf("now: %q, ever: %q", now, ever)
	}
	if why := b.Explain(big, placement.GPUs); !strings.HasSuffix(why, "; GPU 0 (big) is quarantined: an uncorrected ECC error") {
		t.Errorf("why: %s", why)
	}
	answers := []placement.Evaluation{placement.Evaluate(b, big)}
	if s := placement.Nearest(answers); !strings.HasSuffix(s, "or let worker rig check its quarantined GPUs again (muster workers heal rig)") {
		t.Errorf("nearest: %s", s)
	}
	for _, share := range []bool{false, true} {
		small := need(func(s *muster.TaskSpec) {
			s.Resources.GPUs = muster.GPURequest{Count: 1, Vendor: "nvidia", Memory: 8 * gib, Share: share}
		})
		if g := b.Grant(small); b.Fits(small) != placement.Fits || !slices.Equal(g.GPUs, []string{"small"}) {
			t.Errorf("sharing %v: assigned %v", share, g.GPUs)
		}
	}
	two := need(func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 2, Vendor: "nvidia"} })
	if f := b.Fits(two); f != placement.GPUs {
		t.Errorf("two devices of one vendor: %q", f)
	}
	if free := b.Free().GPUs; len(free) != 2 {
		t.Errorf("free: %v", free)
	}
}

func TestTaskOnQuarantinedDeviceKeepsItsResources(t *testing.T) {
	t.Parallel()
	g := &muster.Grant{Slots: 1, GPUs: []string{"big"}}
	well, b := placement.NewWorkerUsage(testWorker()), placement.NewWorkerUsage(sick())
	well.Reserve(g)
	b.Reserve(g)
	if b.Overcommitted() {
		t.Error("the worker counts as overbooked")
	}
	b.Release(g)
	if !b.Equal(placement.NewWorkerUsage(sick())) {
		t.Error("the account is not as before")
	}
}

func TestQuarantinedListsDevices(t *testing.T) {
	t.Parallel()
	w := sick()
	for _, names := range [][]string{nil, {"0"}, {"big"}, {"big", "0"}} {
		if got, err := placement.Quarantined(w, names); err != nil || !slices.Equal(got, []string{"big"}) {
			t.Errorf("%v: %v, %v", names, got, err)
		}
	}
	for name, want := range map[string]muster.Code{"1": muster.Conflict, "red": muster.Conflict, "7": muster.NotFound} {
		if _, err := placement.Quarantined(w, []string{name}); muster.CodeOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := placement.Quarantined(testWorker(), nil); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("none: %v", err)
	}
}

func TestPidsLimitIsAssigned(t *testing.T) {
	t.Parallel()
	few := need(func(s *muster.TaskSpec) { s.Resources.PIDs = 7 })
	if g := placement.NewWorkerUsage(testWorker()).Grant(few); g.PIDs != 7 {
		t.Errorf("granted %d", g.PIDs)
	}
	if none := need(func(*muster.TaskSpec) {}); none.Key() == few.Key() {
		t.Error("tasks with different limits have the same key")
	}
}
