package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
)

const gib = muster.Size(1) << 30

func testWorker() *muster.Worker {
	return &muster.Worker{
		ID: "id-rig", Name: "rig", Tags: []string{"linux", "lab"}, Kinds: []string{"noop", "process"}, Price: 2,
		Allow: &muster.Allow{Images: []string{"ghcr.io/acme/*"}, Env: []string{"APP_*"}},
		Resources: muster.Resources{CPUs: 8, Memory: 32 * gib, Disk: 100 * gib, Slots: 4, GPUs: []muster.GPU{
			{UUID: "big", Index: 0, Vendor: "NVIDIA", Name: "NVIDIA A100", Memory: 40 * gib},
			{UUID: "small", Index: 1, Vendor: "nvidia", Name: "NVIDIA T4", Memory: 16 * gib},
			{UUID: "red", Index: 2, Vendor: "amd", Name: "MI100", Memory: 32 * gib},
		}},
	}
}

func need(change func(*muster.TaskSpec)) *placement.Need {
	t := &muster.TaskSpec{Kind: "noop"}
	change(t)
	return new(placement.Limits).Need("", t)
}

func TestEachFilterNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*muster.TaskSpec)
		now    placement.Filter
		ever   placement.Filter
		why    string
	}{
		{"nothing asked", func(*muster.TaskSpec) {}, placement.Fits, placement.Fits, ""},
		{"kind", func(s *muster.TaskSpec) { s.Kind = "llm" }, placement.Kind, placement.Kind, `does not run kind "llm", only noop, process`},
		{"kind container", func(s *muster.TaskSpec) { s.Kind = muster.KindContainer }, placement.Engine, placement.Engine, "has no container engine that is ready"},
		{"a process in a container", func(s *muster.TaskSpec) {
			s.Kind, s.Isolation = muster.KindProcess, muster.IsolationContainer
		}, placement.Engine, placement.Engine, "has no container engine that is ready"},
		{"a script in a container", func(s *muster.TaskSpec) {
			s.Kind, s.Isolation = muster.KindScript, muster.IsolationContainer
		}, placement.Kind, placement.Kind, `does not run kind "script", only`},
		{"in a container if there is one", func(s *muster.TaskSpec) {
			s.Image, s.Isolation = "evil/image", muster.IsolationAuto
		}, placement.Fits, placement.Fits, ""},
		{"a variable", func(s *muster.TaskSpec) { s.Env = map[string]string{"LD_PRELOAD": "x"} }, placement.Owner, placement.Owner, "its owner does not allow tasks to set the variable LD_PRELOAD"},
		{"a variable that is allowed", func(s *muster.TaskSpec) { s.Env = map[string]string{"APP_MODE": "x"} }, placement.Fits, placement.Fits, ""},
		{"tags", func(s *muster.TaskSpec) { s.Where.Tags = []string{"lab", "fast"} }, placement.Tags, placement.Tags, "lacks the tag fast"},
		{"not", func(s *muster.TaskSpec) { s.Where.ExcludeTags = []string{"lab"} }, placement.ExcludedTags, placement.ExcludedTags, "has the excluded tag lab"},
		{"workers", func(s *muster.TaskSpec) { s.Where.Workers = []string{"other"} }, placement.Workers, placement.Workers, "is not among the workers asked for: other"},
		{"worker by name", func(s *muster.TaskSpec) { s.Where.Workers = []string{"rig"} }, placement.Fits, placement.Fits, ""},
		{"worker by id", func(s *muster.TaskSpec) { s.Where.Workers = []string{"id-rig"} }, placement.Fits, placement.Fits, ""},
		{"price", func(s *muster.TaskSpec) { s.Where.MaxPrice = 1.5 }, placement.Price, placement.Price, "costs 2 per hour, at most 1.5 is allowed"},
		{"vendor", func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Vendor: "intel"} }, placement.Vendor, placement.Vendor, "needs a GPU of vendor intel"},
		{"vendor in any case", func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Vendor: "AMD"} }, placement.Fits, placement.Fits, ""},
		{"model", func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Model: "H100"} }, placement.Model, placement.Model, `needs a GPU of model "h100"`},
		{"model of another vendor", func(s *muster.TaskSpec) {
			s.Resources.GPUs = muster.GPURequest{Count: 1, Vendor: "amd", Model: "a100"}
		}, placement.Model, placement.Model, ""},
		{"cpus", func(s *muster.TaskSpec) { s.Resources.CPUs = 8.001 }, placement.CPUs, placement.CPUs, "needs 8.001 cpus, has 8"},
		{"memory", func(s *muster.TaskSpec) { s.Resources.Memory = 33 * gib }, placement.Memory, placement.Memory, "needs 33GiB memory, has 32GiB"},
		{"memory taken", func(s *muster.TaskSpec) { s.Resources.Memory = 31 * gib }, placement.Memory, placement.Fits, "needs 31GiB memory, 30GiB of 32GiB free"},
		{"disk", func(s *muster.TaskSpec) { s.Resources.Disk = 101 * gib }, placement.Disk, placement.Disk, "needs 101GiB disk, has 100GiB"},
		{"gpu memory", func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 41 * gib} }, placement.GPUs, placement.GPUs, "needs 1 GPU with 41GiB, has"},
		{"gpus of one vendor", func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 3} }, placement.GPUs, placement.GPUs, "needs 3 GPUs, has"},
		{"gpu taken", func(s *muster.TaskSpec) {
			s.Resources.GPUs = muster.GPURequest{Count: 1, Vendor: "amd", Memory: 32 * gib}
		}, placement.Fits, placement.Fits, ""},
		{"earlier filters first", func(s *muster.TaskSpec) {
			s.Where.Tags, s.Resources.Memory = []string{"fast"}, 99*gib
		}, placement.Tags, placement.Tags, "lacks the tag fast"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := placement.NewWorkerUsage(testWorker())
			b.Reserve(&muster.Grant{Slots: 1, Memory: 2 * gib})
			n := need(c.change)
			if f := b.Fits(n); f != c.now {
				t.Errorf("now: %q, want %q", f, c.now)
			}
			if f := b.FitsEmpty(n); f != c.ever {
				t.Errorf("ever: %q, want %q", f, c.ever)
			}
			if why := b.Explain(n, c.now); !strings.HasPrefix(why, c.why) || (why == "") != (c.now == placement.Fits) {
				t.Errorf("why: %q, want %q", why, c.why)
			}
		})
	}
}

func TestUnavailableWorkerFailsFirstByState(t *testing.T) {
	t.Parallel()
	b := placement.NewWorkerUsage(testWorker())
	b.ClosedReason = "is draining"
	n := need(func(s *muster.TaskSpec) { s.Kind = muster.KindContainer })
	if f := b.Fits(n); f != placement.State || b.Explain(n, f) != "is draining" {
		t.Errorf("%q: %q", f, b.Explain(n, f))
	}
}

func TestUnavailableWorkersMayReturn(t *testing.T) {
	t.Parallel()
	b := placement.NewWorkerUsage(testWorker())
	n := need(func(*muster.TaskSpec) {})
	for opens, want := range map[bool]string{false: "bring back worker rig, which is busy", true: "wait for worker rig, which is busy"} {
		b.ClosedReason, b.WillReopen = "is busy", opens
		if got := placement.Nearest([]placement.Evaluation{placement.Evaluate(b, n)}); got != want {
			t.Errorf("opens %t: %s", opens, got)
		}
	}
}

func TestGPUsAreAssignedTightestFirst(t *testing.T) {
	t.Parallel()
	b := placement.NewWorkerUsage(testWorker())
	give := func(r muster.GPURequest) string {
		t.Helper()
		n := need(func(s *muster.TaskSpec) { s.Resources.GPUs, s.Resources.CPUs = r, 0.1 })
		if f := b.Fits(n); f != placement.Fits {
			return f.String()
		}
		g := b.Grant(n)
		b.Reserve(&g)
		return fmt.Sprint(g.GPUs, g.GPUMemory)
	}
	for i, c := range []struct {
		ask  muster.GPURequest
		want string
	}{
		{muster.GPURequest{Count: 1, Memory: 6 * gib, Share: true}, "[small] " + fmt.Sprint(6*gib)},
		{muster.GPURequest{Count: 1, Memory: 10 * gib, Share: true}, "[small] " + fmt.Sprint(10*gib)}, // 16 is full now
		{muster.GPURequest{Count: 1, Memory: 1, Share: true}, "[red] " + fmt.Sprint(muster.Size(1))},
		{muster.GPURequest{Count: 1, Memory: 1 * gib}, "[big] 0B"}, // whole: red is shared
		{muster.GPURequest{Count: 1}, "gpus"},
		{muster.GPURequest{Count: 2, Memory: 1, Share: true}, "gpus"}, // one of nvidia is whole, the other full
	} {
		if got := give(c.ask); got != c.want {
			t.Errorf("%d: %+v was given %s, want %s", i, c.ask, got, c.want)
		}
	}
}

func TestAssignedDevicesAreOfOneVendor(t *testing.T) {
	t.Parallel()
	n := need(func(s *muster.TaskSpec) { s.Resources.GPUs.Count = 2 })
	g := placement.NewWorkerUsage(testWorker()).Grant(n)
	if !slices.Equal(g.GPUs, []string{"big", "small"}) {
		t.Errorf("got %v", g.GPUs)
	}
}

func TestScorePacksGPUsAndSpreadsTheRest(t *testing.T) {
	t.Parallel()
	empty, busy := placement.NewWorkerUsage(testWorker()), placement.NewWorkerUsage(testWorker())
	busy.Reserve(&muster.Grant{Slots: 2, CPUs: 4, Memory: gib})
	for _, n := range []*placement.Need{
		need(func(*muster.TaskSpec) {}),
		need(func(s *muster.TaskSpec) { s.Resources.CPUs = 2 }),
		need(func(s *muster.TaskSpec) { s.Resources.Memory = gib; s.Resources.CPUs = 0.5 }),
	} {
		if a, b := empty.Rank(n), busy.Rank(n); a.Compare(&b) >= 0 {
			t.Errorf("%s: an empty worker ranks as %+v, a busy one as %+v", n.Key(), a, b)
		}
	}
	small := testWorker()
	small.Resources.GPUs = small.Resources.GPUs[1:2]
	n := need(func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 30 * gib} })
	tight, loose := need(func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 14 * gib} }), placement.NewWorkerUsage(testWorker())
	loose.Reserve(&muster.Grant{GPUs: []string{"small"}})
	if a, b := placement.NewWorkerUsage(small).Rank(tight), loose.Rank(tight); a.Compare(&b) >= 0 {
		t.Error("a tight device does not win over a loose one")
	}
	if placement.NewWorkerUsage(small).Fits(n) == placement.Fits {
		t.Error("30GiB fit on a device of 16GiB")
	}
}

// Of workers that fit equally the cheaper one wins: with GPUs among those that leave equal
// device memory idle, without GPUs among all.
func TestRankPrefersTheCheaperWorker(t *testing.T) {
	t.Parallel()
	priced := func(price float64) *placement.WorkerUsage {
		w := testWorker()
		w.Price = price
		return placement.NewWorkerUsage(w)
	}
	for _, n := range []*placement.Need{
		need(func(*muster.TaskSpec) {}),
		need(func(s *muster.TaskSpec) { s.Resources.CPUs = 2 }),
		need(func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 14 * gib} }),
	} {
		cheap, dear := priced(1), priced(5)
		cheap.Reserve(&muster.Grant{Slots: 1, CPUs: 1})
		if a, b := cheap.Rank(n), dear.Rank(n); a.Compare(&b) >= 0 || b.Compare(&a) <= 0 {
			t.Errorf("%s: the cheap worker ranks as %+v, the dear one as %+v", n.Key(), a, b)
		}
	}
	n := need(func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 14 * gib} })
	loose, tight := priced(1), priced(5)
	loose.Reserve(&muster.Grant{GPUs: []string{"small"}})
	if a, b := loose.Rank(n), tight.Rank(n); b.Compare(&a) >= 0 {
		t.Error("the price outweighs unused device memory")
	}
}

func TestKeysDistinguishNeeds(t *testing.T) {
	t.Parallel()
	same := []func(*muster.TaskSpec){
		func(s *muster.TaskSpec) { s.Where.Tags = []string{"a", "b"} },
		func(s *muster.TaskSpec) { s.Where.Tags = []string{"b", "a", "b"}; s.Name = "other" },
		func(s *muster.TaskSpec) { s.Where.Tags = []string{"b", "a"}; s.Resources.GPUs.Vendor = "amd" }, // of no GPU
	}
	for _, c := range same {
		if need(c).Key() != need(same[0]).Key() {
			t.Errorf("%s is not %s", need(c).Key(), need(same[0]).Key())
		}
	}
	keys := map[string]int{}
	for i, c := range []func(*muster.TaskSpec){
		func(*muster.TaskSpec) {},
		func(s *muster.TaskSpec) { s.Kind = "process" },
		func(s *muster.TaskSpec) { s.Resources.CPUs = 0.001 },
		func(s *muster.TaskSpec) { s.Resources.Memory = 1 },
		func(s *muster.TaskSpec) { s.Resources.Disk = 1 },
		func(s *muster.TaskSpec) { s.Resources.GPUs.Count = 1 },
		func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 1} },
		func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 1, Share: true} },
		func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Model: "x"} },
		func(s *muster.TaskSpec) { s.Where.Tags = []string{"a"} },
		func(s *muster.TaskSpec) { s.Where.ExcludeTags = []string{"a"} },
		func(s *muster.TaskSpec) { s.Where.Workers = []string{"a"} },
		func(s *muster.TaskSpec) { s.Where.Workers = []string{"a", "b"} },
		func(s *muster.TaskSpec) { s.Where.Workers = []string{`a""b`} },
		func(s *muster.TaskSpec) { s.Where.MaxPrice = 0.1 },
	} {
		k := need(c).Key()
		if other, ok := keys[k]; ok {
			t.Errorf("needs %d and %d have the same key %s", other, i, k)
		}
		keys[k] = i
	}
}

func TestRelaxFindsTheNearestChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*muster.TaskSpec)
		want   string
	}{
		{"memory", func(s *muster.TaskSpec) { s.Resources.Memory = 64 * gib }, "ask for 32GiB memory instead of 64GiB (worker rig)"},
		{"cpus", func(s *muster.TaskSpec) { s.Resources.CPUs = 64 }, "ask for 8 cpus instead of 64 (worker rig)"},
		{"tags", func(s *muster.TaskSpec) { s.Where.Tags = []string{"fast"} }, "do without the tag fast, or give it to worker rig"},
		{"price", func(s *muster.TaskSpec) { s.Where.MaxPrice = 1 }, "allow a price of 2 per hour instead of 1 (worker rig)"},
		{"gpu count", func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 5, Memory: 12 * gib} }, "ask for 2 GPUs with 12GiB each instead of 5 GPUs with 12GiB each (worker rig)"},
		{"gpu memory", func(s *muster.TaskSpec) { s.Resources.GPUs = muster.GPURequest{Count: 1, Memory: 80 * gib} }, "ask for 1 GPU with 40GiB instead of 1 GPU with 80GiB (worker rig)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, n := placement.NewWorkerUsage(testWorker()), need(c.change)
			relaxed, what, ok := b.Relax(n, b.FitsEmpty(n), true)
			if !ok || what != c.want {
				t.Fatalf("%q, %t, want %q", what, ok, c.want)
			}
			if f := b.FitsEmpty(relaxed); f != placement.Fits {
				t.Errorf("the changed need still fails by %s", f)
			}
		})
	}
}

// TestNeverOverCommits reserves and releases at random. The reservations never exceed the
// offer, and when all are released everything is free again.
func TestNeverOverCommits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := placement.NewWorkerUsage(testWorker())
		var out []muster.Grant
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(out) > 0 && rapid.IntRange(0, 2).Draw(t, "return") == 0 {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				b.Release(&out[i])
				out = slices.Delete(out, i, i+1)
				continue
			}
			n := need(func(s *muster.TaskSpec) {
				s.Resources.CPUs = float64(rapid.IntRange(0, 3000).Draw(t, "thousandths")) / 1000
				s.Resources.Memory = muster.Size(rapid.IntRange(0, 12).Draw(t, "GiB")) * gib
				s.Resources.GPUs = muster.GPURequest{
					Count: rapid.IntRange(0, 2).Draw(t, "gpus"), Memory: muster.Size(rapid.IntRange(0, 20).Draw(t, "vram")) * gib,
					Share: rapid.Bool().Draw(t, "share"),
				}
			})
			if b.Fits(n) != placement.Fits {
				continue
			}
			if f := b.FitsEmpty(n); f != placement.Fits {
				t.Fatalf("fits now, but never could: %s", f)
			}
			g := b.Grant(n)
			if len(g.GPUs) != n.Request.GPUs.Count || g.Memory != n.Request.Memory {
				t.Fatalf("%s was granted %+v", n.Key(), g)
			}
			b.Reserve(&g)
			out = append(out, g)
			if b.Overcommitted() {
				t.Fatalf("after %+v more is assigned than exists", out)
			}
		}
		for i := range out {
			b.Release(&out[i])
		}
		if !b.Equal(placement.NewWorkerUsage(testWorker())) {
			t.Fatal("all is returned, and yet not all is free")
		}
	})
}

// TestFreeInIsTheFirstMomentThatFits compares with a look at every moment.
func TestFreeInIsTheFirstMomentThatFits(t *testing.T) {
	t.Parallel()
	draw := func(t *rapid.T) *placement.Need {
		return need(func(s *muster.TaskSpec) {
			s.Resources.CPUs = float64(rapid.IntRange(0, 8).Draw(t, "cpus"))
			s.Resources.GPUs = muster.GPURequest{Count: rapid.IntRange(0, 2).Draw(t, "gpus")}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		b := placement.NewWorkerUsage(testWorker())
		var ends []placement.ExpectedRelease
		for range rapid.IntRange(0, 12).Draw(t, "tasks") {
			if n := draw(t); b.Fits(n) == placement.Fits {
				g := b.Grant(n)
				b.Reserve(&g)
				ends = append(ends, placement.ExpectedRelease{In: muster.Duration(rapid.IntRange(1, 9).Draw(t, "in")), Grant: &g})
			}
		}
		n := draw(t)
		if b.FitsEmpty(n) != placement.Fits {
			return
		}
		want := muster.Duration(0)
		for ; ; want++ {
			c := placement.NewWorkerUsage(testWorker())
			for _, e := range ends {
				if e.In > want {
					c.Reserve(e.Grant)
				}
			}
			if c.Fits(n) == placement.Fits {
				break
			}
		}
		before := b.Free()
		if got := b.FreeIn(n, 1, ends); got != want {
			t.Fatalf("%d workers fit, want %d", got, want)
		}
		if diff := cmp.Diff(before, b.Free()); diff != "" {
			t.Fatalf("FreeIn changed the usage:\n%s", diff)
		}
	})
}

// The proposed change is the smallest one, not that of the first worker by name.
func TestNearestChangeIsTheSmallest(t *testing.T) {
	t.Parallel()
	named := func(name string, change func(*muster.Worker)) *placement.WorkerUsage {
		w := testWorker()
		w.ID, w.Name = muster.WorkerID(name), name
		change(w)
		return placement.NewWorkerUsage(w)
	}
	ask := func(n *placement.Need, usages ...*placement.WorkerUsage) string {
		var answers []placement.Evaluation
		for _, b := range usages {
			answers = append(answers, placement.Evaluate(b, n))
		}
		placement.SortEvaluations(answers)
		return placement.Nearest(answers)
	}
	price := func(p float64) func(*muster.Worker) { return func(w *muster.Worker) { w.Price = p } }
	frugal := need(func(s *muster.TaskSpec) { s.Where.MaxPrice = 0.5 })
	if got, want := ask(frugal, named("a", price(5)), named("b", price(1)), named("c", price(2))), "allow a price of 1 per hour instead of 0.5 (worker b)"; got != want {
		t.Errorf("proposed %q, want %q", got, want)
	}
	memory := func(m muster.Size) func(*muster.Worker) { return func(w *muster.Worker) { w.Resources.Memory = m } }
	large := need(func(s *muster.TaskSpec) { s.Resources.Memory = 64 * gib })
	if got, want := ask(large, named("a", memory(8*gib)), named("b", memory(48*gib))), "ask for 48GiB memory instead of 64GiB (worker b)"; got != want {
		t.Errorf("proposed %q, want %q", got, want)
	}
}
