package link

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

func many(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}

// What a worker says of itself is bounded, and a refusal names the field.
func TestWhatAWorkerSaysOfItselfIsBounded(t *testing.T) {
	for field, change := range map[string]func(*Hello){
		"hello.name has":              func(h *Hello) { h.Name = strings.Repeat("a", 1<<20) },
		"hello.name is":               func(h *Hello) { h.Name = "a\x1b[2J" },
		"hello.build":                 func(h *Hello) { h.Build = strings.Repeat("a", 1<<20) },
		"hello.tags are":              func(h *Hello) { h.Tags = many(100_000) },
		"hello.tags[0] has":           func(h *Hello) { h.Tags = []string{strings.Repeat("a", 2<<20)} },
		"hello.tags[0] is":            func(h *Hello) { h.Tags = []string{"a\nb"} },
		"hello.labels.a has":          func(h *Hello) { h.Labels = map[string]string{"a": strings.Repeat("a", 3<<20)} },
		"hello.labels are":            func(h *Hello) { h.Labels = map[string]string{}; fill(h.Labels, 10_000) },
		"hello.kinds are":             func(h *Hello) { h.Kinds = many(100_000) },
		"hello.own_kinds is deeper":   func(h *Hello) { h.OwnKinds = json.RawMessage(strings.Repeat("[", 1000) + strings.Repeat("]", 1000)) },
		"hello.price":                 func(h *Hello) { h.Price = 1e308 },
		"hello.resources.cpus":        func(h *Hello) { h.Resources.CPUs = 1e300 },
		"hello.resources.slots":       func(h *Hello) { h.Resources.Slots = math.MaxInt },
		"hello.resources has":         func(h *Hello) { h.Resources.Memory = math.MaxInt64 },
		"hello.resources.gpus[0].mig": func(h *Hello) { h.Resources.GPUs = []muster.GPU{{UUID: "a", MIG: strings.Repeat("a", 1<<20)}} },
		"hello.constrained":           func(h *Hello) { h.Constrained = strings.Repeat("a", 1<<20) },
		"hello.allow.images":          func(h *Hello) { h.Allow = &muster.Allow{Images: []string{strings.Repeat("a", 1<<20)}} },
		"hello has":                   func(h *Hello) { h.Allow = &muster.Allow{Images: many(100_000)} },
	} {
		h := &Hello{Version: Version, Worker: "w"}
		change(h)
		refused(t, field, &ToServer{Seq: 1, Hello: h})
	}
	refused(t, "offer.tags are", &ToServer{Seq: 2, Offer: &Offer{Tags: many(100_000)}})
	refused(t, "ready.constrained", &ToServer{Seq: 2, Ready: &Ready{Constrained: strings.Repeat("a", 1<<20)}})
}

// Each bound of a hello, on both sides of it.
func TestBoundsOfAHello(t *testing.T) {
	long, over, sentence := strings.Repeat("a", maxText), strings.Repeat("a", maxText+1), strings.Repeat("a", maxReason+1)
	gpu := func(change func(*muster.GPU)) func(*Hello) {
		return func(h *Hello) {
			h.Resources.GPUs = []muster.GPU{{UUID: "a"}}
			change(&h.Resources.GPUs[0])
		}
	}
	gpus := func(n int) func(*Hello) {
		return func(h *Hello) {
			for _, s := range many(n) {
				h.Resources.GPUs = append(h.Resources.GPUs, muster.GPU{UUID: s})
			}
		}
	}
	deep := func(levels int) json.RawMessage {
		return json.RawMessage("[" + strings.Repeat(`{"a":`, levels-1) + "1" + strings.Repeat("}", levels-1) + "]")
	}
	brackets := strings.Repeat("[", maxDepth+1)
	for _, c := range []struct {
		want   string // "" if it is taken
		change func(*Hello)
	}{
		{"", func(*Hello) {}},
		{"hello.worker is missing", func(h *Hello) { h.Worker = "" }},
		{"hello.worker has", func(h *Hello) { h.Worker = muster.WorkerID(over) }},
		{"", func(h *Hello) { h.Worker, h.Name, h.Build = muster.WorkerID(long), long, long }},
		{"hello.name has", func(h *Hello) { h.Name = over }},
		{"hello.name is not UTF-8", func(h *Hello) { h.Name = "\xff" }},
		{"hello.build has", func(h *Hello) { h.Build = over }},
		{"", func(h *Hello) { h.Tags, h.Kinds = many(maxTexts), []string{long} }},
		{"hello.tags are", func(h *Hello) { h.Tags = many(maxTexts + 1) }},
		{"hello.tags[0] has", func(h *Hello) { h.Tags = []string{over} }},
		{"", func(h *Hello) { h.Kinds, h.Tags = many(maxTexts), []string{long} }},
		{"hello.kinds are", func(h *Hello) { h.Kinds = many(maxTexts + 1) }},
		{"hello.kinds[0] has", func(h *Hello) { h.Kinds = []string{over} }},
		{"", func(h *Hello) { h.Labels = map[string]string{}; fill(h.Labels, maxTexts) }},
		{"hello.labels are", func(h *Hello) { h.Labels = map[string]string{}; fill(h.Labels, maxTexts+1) }},
		{"", func(h *Hello) { h.Labels = map[string]string{long: long} }},
		{"hello.labels has", func(h *Hello) { h.Labels = map[string]string{over: "a"} }},
		{"hello.labels.a has", func(h *Hello) { h.Labels = map[string]string{"a": over} }},
		{"", func(h *Hello) { h.OwnKinds = deep(maxDepth) }},
		{"hello.own_kinds is deeper", func(h *Hello) { h.OwnKinds = deep(maxDepth + 1) }},
		{"", func(h *Hello) { h.OwnKinds = json.RawMessage(`["` + brackets + `"]`) }},
		{"", func(h *Hello) { h.OwnKinds = json.RawMessage(`["\"` + brackets + `"]`) }},
		{"hello.own_kinds is no list", func(h *Hello) { h.OwnKinds = json.RawMessage("{}") }},
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
		{"hello.resources has", func(h *Hello) { h.Resources.Memory = maxBytes + 1 }},
		{"hello.resources.memory is -1", func(h *Hello) { h.Resources.Memory = -1 }},
		{"hello.resources has", func(h *Hello) { h.Resources.Disk = maxBytes + 1 }},
		{"hello.resources.disk is -1", func(h *Hello) { h.Resources.Disk = -1 }},
		{"", gpus(MaxGPUs)},
		{"hello.resources.gpus lists", gpus(MaxGPUs + 1)},
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
		{"", func(h *Hello) {
			one := []string{sentence[1:]}
			h.Allow = &muster.Allow{Images: one, Users: one, Mounts: one, Env: one}
		}},
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
		if err := checkToServer(&ToServer{Seq: 1, Hello: h}); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("got %.200v, want %q", err, c.want)
		}
	}
}

// All that a hello says of tags, labels, kinds, GPUs and what is allowed has one bound together.
func TestAHelloIsBoundedAsAWhole(t *testing.T) {
	for name, change := range map[string]func(h *Hello, s string){
		"tags":              func(h *Hello, s string) { h.Tags = []string{s} },
		"kinds":             func(h *Hello, s string) { h.Kinds = []string{s} },
		"names of labels":   func(h *Hello, s string) { h.Labels = map[string]string{s: ""} },
		"values of labels":  func(h *Hello, s string) { h.Labels = map[string]string{"": s} },
		"GPUs":              func(h *Hello, s string) { h.Resources.GPUs = []muster.GPU{{UUID: s}} },
		"quarantined GPUs":  func(h *Hello, s string) { h.Resources.GPUs = []muster.GPU{{UUID: s[1:], Quarantined: s[:1]}} },
		"what it may allow": func(h *Hello, s string) { h.Allow.Env = []string{s} },
	} {
		for text, taken := range map[string]bool{"ab": true, "abc": false} {
			rest := maxAbout - 2
			h := &Hello{Version: Version, Worker: "w", Allow: &muster.Allow{}}
			for ; rest > 0; rest -= min(rest, maxReason) {
				h.Allow.Images = append(h.Allow.Images, strings.Repeat("a", min(rest, maxReason)))
			}
			change(h, text)
			if err := checkToServer(&ToServer{Seq: 1, Hello: h}); taken && err != nil || !taken && (err == nil || !strings.HasPrefix(err.Error(), "hello has")) {
				t.Errorf("%d bytes of %s, and %d others: %.200v", len(text), name, maxAbout-2, err)
			}
		}
	}
}

func fill(labels map[string]string, n int) {
	for _, s := range many(n) {
		labels[s] = s
	}
}

// refused checks that a frame is refused on its way in, with the field's name.
func refused(t *testing.T, field string, f *ToServer) {
	t.Helper()
	err := checkToServer(f)
	if err == nil || !strings.HasPrefix(err.Error(), field) {
		t.Errorf("%s: %.200v", field, err)
	}
}

// What a worker says of its attempts is bounded, too, and artifacts are files inside a folder.
func TestWhatAWorkerSaysOfAttemptsIsBounded(t *testing.T) {
	id := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	step := strings.Repeat("a", 1_200_000)
	refused(t, "progress[0].step", &ToServer{Seq: 2, Progress: []muster.Progress{{Attempt: id, Step: &step}}})
	metrics := map[string]float64{}
	for _, s := range many(50_000) {
		metrics[s] = 1
	}
	refused(t, "progress[0].metrics are", &ToServer{Seq: 2, Progress: []muster.Progress{{Attempt: id, Metrics: metrics}}})
	refused(t, "progress[0].metrics is", &ToServer{Seq: 2, Progress: []muster.Progress{{Attempt: id, Metrics: map[string]float64{"\x1b": 1}}}})

	report := muster.Report{Attempt: id, Outcome: muster.AttemptSucceeded, FinishedAt: 1}
	finished := func(change func(*muster.Report)) *ToServer {
		r := report
		change(&r)
		return &ToServer{Seq: 2, Finished: []muster.Report{r}}
	}
	refused(t, "finished[0].usage.cost", finished(func(r *muster.Report) { r.Usage = &muster.Usage{Cost: 1e308} }))
	refused(t, "finished[0].log_size", finished(func(r *muster.Report) { r.LogSize = 1 << 62 }))
	artifacts := func(names ...string) func(*muster.Report) {
		return func(r *muster.Report) {
			for _, name := range names {
				r.Artifacts = append(r.Artifacts, muster.Artifact{Name: name, SHA256: strings.Repeat("0", 64)})
			}
		}
	}
	for _, name := range []string{
		"", ".", "..", "/etc/passwd", "../a", "a/../../b", "a/..", "./a", "a//b", "a/", "/", "a\nb", "a\x00b", "\x1b]0;x\x07", "a\x7f", "\u0085", "\xff",
		strings.Repeat("a", 1025),
	} {
		refused(t, "finished[0].artifacts[0].name", finished(artifacts(name)))
	}
	refused(t, "finished[0].artifacts[1].name", finished(artifacts("a", "a")))
	if err := checkToServer(finished(artifacts(many(maxArtifacts)...))); err != nil {
		t.Errorf("%d artifacts: %v", maxArtifacts, err)
	}
	refused(t, "finished[0].artifacts are", finished(artifacts(many(maxArtifacts+1)...)))
	refused(t, "finished[0].result has", finished(func(r *muster.Report) {
		r.Result = json.RawMessage(`"` + strings.Repeat("a", muster.MaxResult) + `"`)
	}))
	for _, a := range []muster.AttemptID{
		{Task: muster.TaskID{Job: 0}, N: 1}, {Task: muster.TaskID{Job: 1, Num: -1}, N: 1}, {Task: muster.TaskID{Job: 1, Num: muster.MaxArray + 1}, N: 1},
		{Task: muster.TaskID{Job: 1}, N: 0}, {Task: muster.TaskID{Job: 1}, N: math.MaxInt32 + 1},
	} {
		refused(t, "accepted[0]", &ToServer{Seq: 2, Accepted: []muster.AttemptID{a}})
	}
	for _, name := range []string{"a", "a/b.txt", "...", "é ü.png", "a\\b", ".hidden", "live/a.png", strings.Repeat("a", 1024)} {
		if err := checkToServer(finished(artifacts(name))); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A hostile frame that was not checked where it came from is refused where it arrives.
func TestBoundsHoldForWhatArrives(t *testing.T) {
	var codec ServerCodec
	_, err := codec.Decode([]byte(`{"seq":1,"hello":{"version":` + strconv.Itoa(Version) + `,"worker":"w","name":"` + strings.Repeat("a", 1<<20) + `","build":"","kinds":[],"resources":{"cpus":1,"memory":1,"disk":1,"slots":1}}}`))
	if e, ok := errors.AsType[*muster.Error](err); !ok || e.Code != muster.Invalid || !strings.Contains(e.Message, "hello.name") {
		t.Errorf("%.200v", err)
	}
}
