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

func manyNames(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}

// The fields of a hello are limited, and an error names the field.
func TestWhatAWorkerSaysOfItselfIsBounded(t *testing.T) {
	for field, change := range map[string]func(*Hello){
		"hello.name has":              func(h *Hello) { h.Name = strings.Repeat("a", 1<<20) },
		"hello.name is":               func(h *Hello) { h.Name = "a\x1b[2J" },
		"hello.build":                 func(h *Hello) { h.Build = strings.Repeat("a", 1<<20) },
		"hello.tags has":              func(h *Hello) { h.Tags = manyNames(100_000) },
		"hello.tags[0] has":           func(h *Hello) { h.Tags = []string{strings.Repeat("a", 2<<20)} },
		"hello.tags[0] is":            func(h *Hello) { h.Tags = []string{"a\nb"} },
		"hello.labels.a has":          func(h *Hello) { h.Labels = map[string]string{"a": strings.Repeat("a", 3<<20)} },
		"hello.labels has":            func(h *Hello) { h.Labels = map[string]string{}; fill(h.Labels, 10_000) },
		"hello.kinds has":             func(h *Hello) { h.Kinds = manyNames(100_000) },
		"hello.own_kinds is deeper":   func(h *Hello) { h.OwnKinds = json.RawMessage(strings.Repeat("[", 1000) + strings.Repeat("]", 1000)) },
		"hello.lacks has":             func(h *Hello) { h.Lacks = make([]string, 100) },
		"hello.lacks[1] is":           func(h *Hello) { h.Lacks = []string{muster.FeatureFiles, "file"} },
		"hello.projects has":          func(h *Hello) { h.Projects = manyNames(100_000) },
		"hello.projects[0] has":       func(h *Hello) { h.Projects = []string{strings.Repeat("a", muster.MaxNameSize+1)} },
		"hello.resources.max_tasks":   func(h *Hello) { h.Resources.MaxTasks = math.MaxInt },
		"hello.resources.max_tasks i": func(h *Hello) { h.Resources.MaxTasks = -1 },
		"hello.price":                 func(h *Hello) { h.Price = 1e308 },
		"hello.resources.cpus":        func(h *Hello) { h.Resources.CPUs = 1e300 },
		"hello.resources.slots":       func(h *Hello) { h.Resources.Slots = math.MaxInt },
		"hello.resources.memory is":   func(h *Hello) { h.Resources.Memory = math.MaxInt64 },
		"hello.resources.gpus[0].mig": func(h *Hello) { h.Resources.GPUs = []muster.GPU{{UUID: "a", MIG: strings.Repeat("a", 1<<20)}} },
		"hello.constrained":           func(h *Hello) { h.Constrained = strings.Repeat("a", 1<<20) },
		"hello.allow.images":          func(h *Hello) { h.Allow = &muster.Allow{Images: []string{strings.Repeat("a", 1<<20)}} },
		"hello has":                   func(h *Hello) { h.Allow = &muster.Allow{Images: manyNames(100_000)} },
		"hello has 9":                 func(h *Hello) { h.Allow = &muster.Allow{Images: make([]string, 30_000)} },                // all are empty
		"hello has 7":                 func(h *Hello) { h.Tags, h.Kinds = texts256("a", 150), texts256("b", 150) },               // 256 bytes each
		"hello has 6":                 func(h *Hello) { h.Allow = &muster.Allow{Env: []string{strings.Repeat("\x01", 11_000)}} }, // six bytes each
	} {
		h := &Hello{Version: Version, Worker: "w"}
		change(h)
		refused(t, field, &ToServer{Seq: 1, Hello: h})
	}
	refused(t, "offer.tags has", &ToServer{Seq: 2, Offer: &muster.Offer{Tags: manyNames(100_000)}})
	refused(t, "offer.lacks[0] is", &ToServer{Seq: 2, Offer: &muster.Offer{Lacks: []string{""}}})
	refused(t, "ready.constrained", &ToServer{Seq: 2, Ready: &Ready{Constrained: strings.Repeat("a", 1<<20)}})
}

// An honest worker with eight partitioned GPUs, many tags and labels, and a hundred mount patterns stays within the limits.
func TestWhatALargeWorkerSaysIsTaken(t *testing.T) {
	h := &Hello{Version: Version, Worker: "w", Labels: map[string]string{}, Offer: muster.Offer{Tags: manyNames(50), Kinds: manyNames(100), Allow: &muster.Allow{}}}
	load := &muster.Load{}
	half := 0.5
	for i := range 8 {
		gpus := "GPU-00000000-0000-0000-0000-00000000000" + strconv.Itoa(i)
		for part := range 8 {
			g := muster.GPU{UUID: gpus, Index: i, Vendor: "nvidia", Name: "NVIDIA H100 80GB HBM3", Memory: 80 << 30, Quarantined: strings.Repeat("why ", 20)}
			if part > 0 {
				g.UUID, g.Parent, g.MIG = "MIG"+gpus[3:]+"-"+strconv.Itoa(part), gpus, "1g.10gb"
			}
			h.Resources.GPUs = append(h.Resources.GPUs, g)
			load.GPUs = append(load.GPUs, muster.GPULoad{UUID: g.UUID, Utilization: &half, Memory: &g.Memory, Temperature: &half, Power: &half, Latency: &half})
		}
	}
	for i := range 100 {
		h.Labels["example.org/label-"+strconv.Itoa(i)] = strings.Repeat("value ", 8)
		h.Allow.Mounts = append(h.Allow.Mounts, "/mnt/disk-"+strconv.Itoa(i)+"/data/sets/**")
		h.Allow.Images = append(h.Allow.Images, "registry.example.org/team/image-"+strconv.Itoa(i)+":*")
	}
	if err := (&ToServer{Seq: 1, Hello: h}).check(); err != nil {
		t.Error(err)
	}
	if err := (&ToServer{Seq: 2, Renew: &Renew{Load: load}}).check(); err != nil {
		t.Error(err)
	}
}

// The load of a worker is limited, too.
func TestLoadIsBounded(t *testing.T) {
	load := &muster.Load{GPUs: []muster.GPULoad{{UUID: strings.Repeat("a", 1<<20)}}}
	refused(t, "renew.load.gpus[0].uuid", &ToServer{Seq: 2, Renew: &Renew{Load: load}})
	load = &muster.Load{}
	for _, s := range texts256("", maxGPUs) {
		load.GPUs = append(load.GPUs, muster.GPULoad{UUID: s})
	}
	refused(t, "renew.load.disk.free", &ToServer{Seq: 2, Renew: &Renew{Load: &muster.Load{Disk: &muster.DiskLoad{Free: -1}}}})
	refused(t, "renew.load.disk.total", &ToServer{Seq: 2, Renew: &Renew{Load: &muster.Load{Disk: &muster.DiskLoad{Total: -1}}}})
	refused(t, "renew.load has", &ToServer{Seq: 2, Renew: &Renew{Load: load}})
}

// texts256 returns n different texts of 256 bytes.
func texts256(begin string, n int) []string {
	list := manyNames(n)
	for i := range list {
		list[i] = begin + strings.Repeat("x", 256-len(begin)-len(list[i])) + list[i]
	}
	return list
}

func fill(labels map[string]string, n int) {
	for _, s := range manyNames(n) {
		labels[s] = s
	}
}

// refused checks that the error of a frame begins with the field.
func refused(t *testing.T, field string, f *ToServer) {
	t.Helper()
	err := f.check()
	if err == nil || !strings.HasPrefix(err.Error(), field) {
		t.Errorf("%s: %.200v", field, err)
	}
}

// Reports on attempts are limited, too, and artifacts are files inside a directory.
func TestWhatAWorkerSaysOfAttemptsIsBounded(t *testing.T) {
	id := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	step := strings.Repeat("a", 1_200_000)
	refused(t, "progress[0].step", &ToServer{Seq: 2, Progress: []muster.Progress{{Attempt: id, Step: &step}}})
	metrics := map[string]float64{}
	for _, s := range manyNames(50_000) {
		metrics[s] = 1
	}
	refused(t, "progress[0].metrics has", &ToServer{Seq: 2, Progress: []muster.Progress{{Attempt: id, Metrics: metrics}}})
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
		strings.Repeat("a/", 512) + "a", strings.Repeat("a", 256), `a\b`, `..\a`, "C:/a", "c:a", "txt.\u202egnp", "a\u2028b",
	} {
		refused(t, "finished[0].artifacts[0].name", finished(artifacts(name)))
		refused(t, "progress[0].artifacts[0].name", &ToServer{Seq: 2, Progress: []muster.Progress{{Attempt: id, Artifacts: []muster.Artifact{{Name: muster.LiveDir + "/" + name, SHA256: strings.Repeat("0", 64)}}}}})
	}
	refused(t, "finished[0].artifacts[1].name", finished(artifacts("a", "a")))
	refused(t, "finished[0].artifacts[2].name", finished(artifacts("x", "a/b/c", "a/b")))
	refused(t, "finished[0].artifacts[1].name", finished(artifacts("a", "a/b", "x")))
	if err := finished(artifacts(manyNames(maxArtifacts)...)).check(); err != nil {
		t.Errorf("%d artifacts: %v", maxArtifacts, err)
	}
	refused(t, "finished[0].artifacts has", finished(artifacts(manyNames(maxArtifacts+1)...)))
	refused(t, "finished[0].result has", finished(func(r *muster.Report) {
		r.Result = json.RawMessage(`"` + strings.Repeat("a", muster.MaxResultSize) + `"`)
	}))
	for _, a := range []muster.AttemptID{
		{Task: muster.TaskID{Job: 0}, N: 1}, {Task: muster.TaskID{Job: 1, Num: -1}, N: 1}, {Task: muster.TaskID{Job: 1, Num: muster.MaxTasks + 1}, N: 1},
		{Task: muster.TaskID{Job: 1}, N: 0}, {Task: muster.TaskID{Job: 1}, N: math.MaxInt32 + 1},
	} {
		refused(t, "accepted[0]", &ToServer{Seq: 2, Accepted: []muster.AttemptID{a}})
	}
	for _, name := range []string{"a", "a/b.txt", "...", "é ü.png", ".hidden", "live/a.png", "12:00.png", strings.Repeat("a", 255)} {
		if err := finished(artifacts(name)).check(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The receiver refuses a hostile frame that its sender did not check.
func TestBoundsHoldForWhatArrives(t *testing.T) {
	var codec ServerCodec
	_, err := codec.Decode([]byte(`{"seq":1,"hello":{"version":` + strconv.Itoa(Version) + `,"worker":"w","name":"` + strings.Repeat("a", 1<<20) + `","build":"","kinds":[],"resources":{"cpus":1,"memory":1,"disk":1,"slots":1}}}`))
	if e, ok := errors.AsType[*muster.Error](err); !ok || e.Code != muster.Invalid || !strings.Contains(e.Message, "hello.name") {
		t.Errorf("%.200v", err)
	}
	for _, name := range []string{"../a", `..\\a`, "/a", "C:a", "\\u001b[2J", "\\u202ea", "a/b/c"} {
		codec := ServerCodec{}
		if _, err := codec.Decode([]byte(`{"seq":1,"hello":{"version":` + strconv.Itoa(Version) + `,"worker":"w","name":"a","build":"","kinds":[],"resources":{"cpus":1,"memory":1,"disk":1,"slots":1}}}`)); err != nil {
			t.Fatal(err)
		}
		hash := strings.Repeat("0", 64)
		_, err := codec.Decode([]byte(`{"seq":2,"finished":[{"attempt":"1.0#1","outcome":"succeeded","finished_at":"2026-01-01T00:00:00Z","artifacts":[{"name":"a/b","size":0,"sha256":"` + hash + `"},{"name":"` + name + `","size":0,"sha256":"` + hash + `"}]}]}`))
		if muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "finished[0].artifacts[1].name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
