package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

func TestGangFitCountsMembers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*muster.TaskSpec)
		taken  muster.Grant
		now    int
		empty  int
		vendor string
	}{
		{"slots", func(*muster.TaskSpec) {}, muster.Grant{Slots: 1}, 3, 4, ""},
		{"cpus", func(s *muster.TaskSpec) { s.Resources.CPUs = 2.5 }, muster.Grant{CPUs: 4}, 1, 3, ""},
		{"memory", func(s *muster.TaskSpec) { s.Resources = muster.Request{CPUs: 1, Memory: 10 * gib} }, muster.Grant{Memory: 5 * gib}, 2, 3, ""},
		{"disk", func(s *muster.TaskSpec) { s.Resources = muster.Request{CPUs: 1, Disk: 60 * gib} }, muster.Grant{Disk: 60 * gib}, 0, 1, ""},
		{"most", func(s *muster.TaskSpec) { s.Resources.CPUs = 0.001 }, muster.Grant{}, 10, 10, ""},
		{"no kind", func(s *muster.TaskSpec) { s.Kind = "container" }, muster.Grant{}, 0, 0, ""},
		{"devices of one vendor", func(s *muster.TaskSpec) { s.Resources.GPUs.Count = 1 }, muster.Grant{}, 2, 2, "nvidia"},
		{"the other vendor", func(s *muster.TaskSpec) { s.Resources.GPUs.Count = 1 }, muster.Grant{GPUs: []string{"big", "small"}}, 1, 2, "amd"},
		{"pairs", func(s *muster.TaskSpec) { s.Resources.GPUs.Count = 2 }, muster.Grant{}, 1, 1, "nvidia"},
		{"shares", func(s *muster.TaskSpec) { s.Resources = sharing(10 * gib) }, muster.Grant{Slots: 1, GPUs: []string{"big"}, GPUMemory: 10 * gib}, 4, 5, "nvidia"},
	} {
		n := need(c.change)
		b := placement.NewWorkerUsage(testWorker())
		b.Reserve(&c.taken)
		now, empty := b.GangFit(n, 10), b.GangFitEmpty(n, 10)
		if now.Members != c.now || empty.Members != c.empty || c.now > 0 && now.Vendor != c.vendor {
			t.Errorf("%s: room for %d %s, empty for %d", c.name, now.Members, now.Vendor, empty.Members)
		}
		b.ClosedReason = "is unreachable"
		if b.GangFit(n, 10).Members != 0 || b.GangFitEmpty(n, 10).Members != c.empty {
			t.Errorf("%s: a closed worker has room", c.name)
		}
	}
}

func sharing(memory muster.Size) muster.Request {
	return muster.Request{CPUs: 1, GPUs: muster.GPURequest{Count: 1, Memory: memory, Share: true}}
}

// TestGangFitCanBePlaced checks that as many members fit one after the other as GangFit
// returns, and no more of that vendor.
func TestGangFitCanBePlaced(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := testWorker()
		for i := range w.Resources.GPUs {
			if rapid.IntRange(0, 4).Draw(t, "sick") == 0 {
				w.Resources.GPUs[i].Quarantined = "sick"
			}
		}
		n := need(func(s *muster.TaskSpec) {
			s.Resources.CPUs = rapid.SampledFrom([]float64{0, 0.5, 3}).Draw(t, "cpus")
			s.Resources.Memory = muster.Size(rapid.IntRange(0, 20).Draw(t, "memory")) * gib
			s.Resources.GPUs.Count = rapid.IntRange(0, 2).Draw(t, "gpus")
			if s.Resources.GPUs.Count > 0 {
				s.Resources.GPUs.Memory = muster.Size(rapid.IntRange(0, 20).Draw(t, "vram")) * gib
				s.Resources.GPUs.Share = s.Resources.GPUs.Memory > 0 && rapid.Bool().Draw(t, "share")
			}
			s.Gang = &muster.Gang{Size: 20}
		})
		b := placement.NewWorkerUsage(w)
		if rapid.Bool().Draw(t, "busy") {
			b.Reserve(&muster.Grant{CPUs: 2, Slots: 1, Memory: 3 * gib, GPUs: []string{rapid.SampledFrom([]string{"big", "red"}).Draw(t, "device")}})
		}
		r := b.GangFit(n, 20)
		own := n.WithVendor(r.Vendor)
		for i := range r.Members {
			if f := b.Fits(own); f != placement.Fits {
				t.Fatalf("%d fit, but member %d fails %s", r.Members, i, f)
			}
			g := b.Grant(own)
			b.Reserve(&g)
		}
		if r.Members < 20 && b.Fits(own) == placement.Fits && r.Members > 0 {
			t.Fatalf("more than %d fit", r.Members)
		}
		if b.Overcommitted() {
			t.Fatal("more is assigned than exists")
		}
	})
}

// gangFits creates one worker for each number: that number of members fits on "w1".
func gangFits(models string, members ...int) []placement.GangFit {
	var list []placement.GangFit
	for i, n := range members {
		id := muster.WorkerID(fmt.Sprintf("%s%d", models, i+1))
		r := placement.GangFit{Usage: placement.NewWorkerUsage(&muster.Worker{ID: id}), Members: n}
		if models != "w" {
			r.Vendor, r.Models = models[:1], models
		}
		list = append(list, r)
	}
	return list
}

func TestPackUsesFewWorkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rooms []placement.GangFit
		n     int
		want  string
	}{
		{"the tightest that takes all", gangFits("w", 8, 4, 5), 4, "w2:4"},
		{"the roomiest, then the tightest", gangFits("w", 1, 3, 8, 2), 10, "w3:8 w4:2"},
		{"all of them", gangFits("w", 1, 1, 2), 4, "w3:2 w1:1 w2:1"},
		{"too little", gangFits("w", 1, 1, 1), 4, ""},
		{"nobody", nil, 1, ""},
		{"equals by id", gangFits("w", 2, 2, 2), 2, "w1:2"},
		{"one model", slices.Concat(gangFits("na", 2, 2), gangFits("nh", 2)), 4, "na1:2 na2:2"},
		{"few before many", slices.Concat(gangFits("na", 1, 1, 1, 1), gangFits("nh", 2, 2)), 4, "nh1:2 nh2:2"},
		{"models of one vendor", slices.Concat(gangFits("na", 2), gangFits("nh", 2), gangFits("ai", 3)), 4, "na1:2 nh1:2"},
		{"never two vendors", slices.Concat(gangFits("na", 2), gangFits("ai", 3)), 4, ""},
	} {
		var packed []string
		for _, r := range placement.Pack(c.rooms, c.n) {
			packed = append(packed, fmt.Sprintf("%s:%d", r.Usage.Worker.ID, r.Members))
		}
		if got := strings.Join(packed, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
