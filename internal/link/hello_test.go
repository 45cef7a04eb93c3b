package link

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

// Each limit of a hello, and one above it.
func TestBoundsOfAHello(t *testing.T) {
	long, over, sentence := strings.Repeat("a", maxText), strings.Repeat("a", maxText+1), strings.Repeat("a", maxReason+1)
	gpu := func(change func(*muster.GPU)) func(*Hello) {
		return func(h *Hello) {
			h.Resources.GPUs = []muster.GPU{{UUID: "a"}}
			change(&h.Resources.GPUs[0])
		}
	}
	deep := func(levels int) json.RawMessage {
		return json.RawMessage("[" + strings.Repeat(`{"a":`, levels-1) + "1" + strings.Repeat("}", levels-1) + "]")
	}
	brackets := strings.Repeat("[", maxDepth+1)
	for _, c := range []struct {
		want   string // "" if it is accepted
		change func(*Hello)
	}{
		{"", func(*Hello) {}},
		{"hello.worker is missing", func(h *Hello) { h.Worker = "" }},
		{"hello.worker has", func(h *Hello) { h.Worker = muster.WorkerID(over) }},
		{"", func(h *Hello) { h.Worker, h.Name, h.Build = muster.WorkerID(long), long, long }},
		{"hello.name has", func(h *Hello) { h.Name = over }},
		{"hello.name is not UTF-8", func(h *Hello) { h.Name = "\xff" }},
		{"hello.build has", func(h *Hello) { h.Build = over }},
		{"", func(h *Hello) { h.Tags, h.Kinds = manyNames(maxListLen), []string{long} }},
		{"hello.tags has", func(h *Hello) { h.Tags = manyNames(maxListLen + 1) }},
		{"hello.tags[0] has", func(h *Hello) { h.Tags = []string{over} }},
		{"", func(h *Hello) { h.Kinds, h.Tags = manyNames(maxListLen), []string{long} }},
		{"hello.kinds has", func(h *Hello) { h.Kinds = manyNames(maxListLen + 1) }},
		{"hello.kinds[0] has", func(h *Hello) { h.Kinds = []string{over} }},
		{"", func(h *Hello) { h.Labels = map[string]string{}; fill(h.Labels, maxListLen) }},
		{"hello.labels has", func(h *Hello) { h.Labels = map[string]string{}; fill(h.Labels, maxListLen+1) }},
		{"", func(h *Hello) { h.Labels = map[string]string{long: long} }},
		{"hello.labels has", func(h *Hello) { h.Labels = map[string]string{over: "a"} }},
		{"hello.labels.a has", func(h *Hello) { h.Labels = map[string]string{"a": over} }},
		{"", func(h *Hello) { h.OwnKinds = deep(maxDepth) }},
		{"hello.own_kinds is deeper", func(h *Hello) { h.OwnKinds = deep(maxDepth + 1) }},
		{"", func(h *Hello) { h.OwnKinds = json.RawMessage(`["` + brackets + `"]`) }},
		{"", func(h *Hello) { h.OwnKinds = json.RawMessage(`["\"` + brackets + `"]`) }},
		{"hello.own_kinds is not a list", func(h *Hello) { h.OwnKinds = json.RawMessage("{}") }},
		{"", func(h *Hello) { h.Heartbeat = MinHeartbeat }},
		{"", func(h *Hello) { h.Heartbeat = MaxHeartbeat }},
		{"hello.heartbeat is 999", func(h *Hello) { h.Heartbeat = MinHeartbeat - 1 }},
		{"hello.heartbeat is -1ns", func(h *Hello) { h.Heartbeat = -1 }},
		{"hello.heartbeat is 5m0.000000001s", func(h *Hello) { h.Heartbeat = MaxHeartbeat + 1 }},
		{"", func(h *Hello) { h.Allow = &muster.Allow{TaskTimeout: 1, MaxTaskTimeout: muster.MaxTimeout} }},
		{"hello.allow.task_timeout is -1ns", func(h *Hello) { h.Allow = &muster.Allow{TaskTimeout: -1} }},
		{"hello.allow.max_task_timeout is 876000h0m0.000000001s", func(h *Hello) { h.Allow = &muster.Allow{MaxTaskTimeout: muster.MaxTimeout + 1} }},
		{"", func(h *Hello) { h.Price = maxPrice }},
		{"hello.price is 1.000001e+06", func(h *Hello) { h.Price = maxPrice + 1 }},
		{"hello.price is -1", func(h *Hello) { h.Price = -1 }},
		{"hello.price is NaN", func(h *Hello) { h.Price = math.NaN() }},
		{"", func(h *Hello) {
			h.Resources = muster.Resources{CPUs: maxCPUs, Slots: maxSlots, Memory: maxBytes, Disk: maxBytes}
		}},
		{"hello.resources.cpus is", func(h *Hello) { h.Resources.CPUs = maxCPUs + 1 }},
		{"hello.resources.cpus is -1", func(h *Hello) { h.Resources.CPUs = -1 }},
		{"hello.resources.slots is", func(h *Hello) { h.Resources.Slots = maxSlots + 1 }},
		{"hello.resources.slots is -1", func(h *Hello) { h.Resources.Slots = -1 }},
		{"hello.resources.memory is", func(h *Hello) { h.Resources.Memory = maxBytes + 1 }},
		{"hello.resources.memory is -1", func(h *Hello) { h.Resources.Memory = -1 }},
		{"hello.resources.disk is", func(h *Hello) { h.Resources.Disk = maxBytes + 1 }},
		{"hello.resources.disk is -1", func(h *Hello) { h.Resources.Disk = -1 }},
		{"", gpu(func(g *muster.GPU) { g.UUID, g.Vendor, g.Name, g.MIG, g.Parent = long, long, long, long, long })},
		{"hello.resources.gpus[0].uuid is missing", gpu(func(g *muster.GPU) { g.UUID = "" })},
		{"hello.resources.gpus[1].uuid is", func(h *Hello) { h.Resources.GPUs = []muster.GPU{{UUID: "a"}, {UUID: "a"}} }},
		{"hello.resources.gpus[0].uuid has", gpu(func(g *muster.GPU) { g.UUID = over })},
		{"hello.resources.gpus[0].vendor has", gpu(func(g *muster.GPU) { g.Vendor = over })},
		{"hello.resources.gpus[0].name has", gpu(func(g *muster.GPU) { g.Name = over })},
		{"hello.resources.gpus[0].mig has", gpu(func(g *muster.GPU) { g.MIG = over })},
		{"hello.resources.gpus[0].parent has", gpu(func(g *muster.GPU) { g.Parent = over })},
		{"hello.resources.gpus[0].memory is -1", gpu(func(g *muster.GPU) { g.Memory = -1 })},
		{"", gpu(func(g *muster.GPU) { g.Quarantined = sentence[1:] })},
		{"hello.resources.gpus[0].quarantined has", gpu(func(g *muster.GPU) { g.Quarantined = sentence })},
		{"", func(h *Hello) { h.Constrained = sentence[1:] }},
		{"hello.constrained has", func(h *Hello) { h.Constrained = sentence }},
		{"", func(h *Hello) { h.Allow = &muster.Allow{Images: []string{sentence[1:]}, Users: []string{sentence[1:]}} }},
		{"", func(h *Hello) { h.Allow = &muster.Allow{Mounts: []string{sentence[1:]}, Env: []string{sentence[1:]}} }},
		{"hello.allow.images has", func(h *Hello) { h.Allow = &muster.Allow{Images: []string{sentence}} }},
		{"hello.allow.users has", func(h *Hello) { h.Allow = &muster.Allow{Users: []string{sentence}} }},
		{"hello.allow.mounts has", func(h *Hello) { h.Allow = &muster.Allow{Mounts: []string{sentence}} }},
		{"hello.allow.env has", func(h *Hello) { h.Allow = &muster.Allow{Env: []string{sentence}} }},
		{"hello.address has", func(h *Hello) { h.Address = strings.Repeat("a", maxHost+1) }},
		{"hello.held[0] is", func(h *Hello) { h.Held = []muster.AttemptID{{}} }},
		{"hello.stale[0] is", func(h *Hello) { h.Stale = []muster.AttemptID{{}} }},
	} {
		h := &Hello{Version: Version, Worker: "w"}
		c.change(h)
		if err := (&ToServer{Seq: 1, Hello: h}).check(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("got %.200v, want %q", err, c.want)
		}
	}
}

// Tags, labels, kinds, GPUs and allow lists of a hello have a common size limit.
func TestAHelloIsBoundedAsAWhole(t *testing.T) {
	for name, change := range map[string]func(h *Hello){
		"tags":              func(h *Hello) { h.Tags = manyNames(300) },
		"kinds":             func(h *Hello) { h.Kinds = manyNames(300) },
		"projects":          func(h *Hello) { h.Projects = manyNames(300) },
		"labels":            func(h *Hello) { h.Labels = map[string]string{}; fill(h.Labels, 300) },
		"GPUs":              func(h *Hello) { h.Resources.GPUs = []muster.GPU{{UUID: "a"}, {UUID: "b", Quarantined: "xid 79"}} },
		"what it may allow": func(h *Hello) { h.Allow.Env = manyNames(300) },
	} {
		for more, taken := range map[int]bool{0: true, 1: false} {
			h := &Hello{Version: Version, Worker: "w", Offer: muster.Offer{Allow: &muster.Allow{Images: append(slices.Repeat([]string{strings.Repeat("a", 13_000)}, 4), "")}}}
			change(h)
			size := 0
			if h.Projects != nil {
				size = len(must(json.Marshal(h.Projects))(t))
			}
			for _, part := range []any{h.Tags, h.Kinds, h.Labels, h.Resources.GPUs, h.Allow} {
				size += len(must(json.Marshal(part))(t))
			}
			h.Allow.Images[4] = strings.Repeat("a", maxDescription-size+more)
			if err := (&ToServer{Seq: 1, Hello: h}).check(); taken && err != nil || !taken && (err == nil || !strings.HasPrefix(err.Error(), "hello has")) {
				t.Errorf("%d bytes with %s: %.200v", maxDescription+more, name, err)
			}
		}
	}
}

// The number of devices is limited, too.
func TestDevicesAreBounded(t *testing.T) {
	for n, want := range map[int]string{maxGPUs: "", maxGPUs + 1: "renew.load.gpus lists"} {
		load := &muster.Load{}
		for _, s := range manyNames(n) {
			load.GPUs = append(load.GPUs, muster.GPULoad{UUID: s})
		}
		if err := (&ToServer{Seq: 2, Renew: &Renew{Load: load}}).check(); want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%d devices: %.200v, want %q", n, err, want)
		}
	}
}
