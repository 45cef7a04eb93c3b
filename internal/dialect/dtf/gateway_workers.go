package dtf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// Bounds of capabilities.
const (
	maxGPUs   = 64
	maxCores  = 4096
	maxGB     = 1 << 20
	maxTags   = 64
	gigabytes = 1 << 30 // DTF divides by 1024 three times
)

// computes lists the compute capabilities for which workers have tags. A worker has the tags up to its own capability.
var computes = []float64{5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0}

func (g *gateway) workerFacts(id, hostname string, c *capabilities, r *access) fleet.Facts {
	if c == nil {
		c = &capabilities{}
	}
	name := cmp.Or(lenient.Name(hostname), lenient.Name(c.Hostname), lenient.Name(id), "dtf-worker")
	f := fleet.Facts{
		ID: id, Name: name, Version: "dtf", Tags: workerTags(c), Key: r.id, Kinds: []string{kindForeign, taskHash},
		Labels: map[string]string{labelHost: name, labelWorker: id}, Resources: toResources(id, c),
	}
	f.Resources.MaxTasks = g.settings.batch
	f.Resources.Slots = g.settings.batch
	if g.settings.simulated {
		f.Kinds = append(f.Kinds, taskBenchmark, taskTest, taskCustom)
	}
	f.Lacks = []string{muster.FeatureCancel}
	if m := c.Muster; m != nil {
		f.Version = lenient.Name("muster " + m.Version)
		if m.Cancel {
			f.Lacks = nil
		}
		for _, t := range m.Types {
			if isMapped(t) && !slices.Contains(f.Kinds, t) {
				f.Kinds = append(f.Kinds, t)
			}
		}
		if m.Tasks > 1 {
			f.Resources.MaxTasks = min(m.Tasks, 1000)
			f.Resources.Slots = f.Resources.MaxTasks
		}
	}
	return f
}

// sanitizeTag returns a tag without spaces.
func sanitizeTag(s string) string { return lenient.Name(strings.Join(strings.Fields(s), "-")) }

func workerTags(c *capabilities) []string {
	all := slices.Clone(c.Hardware)
	if c.WebNN.Available {
		all = append(all, "webnn")
	}
	if c.WebGPU.Available {
		all = append(all, "webgpu")
	}
	for _, v := range computes {
		if c.GPU.CUDACompute >= v {
			all = append(all, computeTag(v))
		}
	}
	var tags []string
	for _, tag := range append(all, c.Tags...) {
		tag = sanitizeTag(strings.ToLower(tag))
		if tag != "" && !strings.HasPrefix(tag, "dialect:") && !slices.Contains(tags, tag) && len(tags) < maxTags {
			tags = append(tags, tag)
		}
	}
	return tags
}

func computeTag(v float64) string { return fmt.Sprintf("cuda-compute-%.1f", v) }

func gbToSize(gb float64) muster.Size { return lenient.GiB(min(gb, maxGB)) }

func toResources(id string, c *capabilities) muster.Resources {
	r := muster.Resources{CPUs: 1, Memory: 1 << 30, Disk: 1 << 40}
	if n := math.Max(c.CPU.Threads, c.CPU.Cores); n >= 1 {
		r.CPUs = math.Floor(math.Min(n, maxCores))
	}
	if c.Memory.TotalGB > 0 {
		r.Memory = gbToSize(c.Memory.TotalGB)
	}
	vendor := "nvidia"
	if !slices.Contains(c.Hardware, "cuda") && slices.Contains(c.Hardware, "rocm") {
		vendor = "amd"
	}
	devices := c.GPU.Devices
	if len(devices) == 0 && c.GPU.Count > 0 { // equal devices
		for i := range min(c.GPU.Count, maxGPUs) {
			devices = append(devices, gpu{Index: i, Name: c.GPU.Name, MemoryGB: c.GPU.MemoryGB})
		}
	}
	for i, d := range devices[:min(len(devices), maxGPUs)] {
		r.GPUs = append(r.GPUs, muster.GPU{
			UUID: fmt.Sprintf("dtf-%s-%d", sanitizeTag(id), i), Index: i, Vendor: vendor, Name: cmp.Or(lenient.Name(d.Name), "GPU"), Memory: gbToSize(d.MemoryGB),
		})
	}
	return r
}

// toLoad converts metrics, nil if there are none or they are not plausible.
func toLoad(m *metrics, r *muster.Resources) *muster.Load {
	if m == nil || !(m.CPUPercent >= 0 && m.CPUPercent <= 100) || !(m.MemoryPercent >= 0 && m.MemoryPercent <= 100) {
		return nil
	}
	l := &muster.Load{CPU: m.CPUPercent / 100, Memory: muster.Size(m.MemoryPercent / 100 * float64(r.Memory))}
	for _, g := range m.GPU {
		if g.Index >= 0 && g.Index < len(r.GPUs) && g.MemoryAllocatedGB >= 0 {
			used := min(gbToSize(g.MemoryAllocatedGB), r.GPUs[g.Index].Memory)
			l.GPUs = append(l.GPUs, muster.GPULoad{UUID: r.GPUs[g.Index].UUID, Memory: &used})
		}
	}
	return l
}

// restWorker is a worker that was registered by REST. It is offline until it connects to /ws.
type restWorker struct {
	key      string // id of the one by which it registered
	hostname string
	at       time.Time
	caps     capabilities
}

type summary struct {
	ID            string         `json:"worker_id"`
	Hostname      string         `json:"hostname"`
	Status        string         `json:"status"` // active, busy or offline
	LastHeartbeat *string        `json:"last_heartbeat"`
	Capabilities  map[string]any `json:"capabilities_summary"`
}

func (g *gateway) summarize(w *fleet.Worker, now time.Time) summary {
	f := w.Facts()
	s := summary{ID: w.ID(), Hostname: cmp.Or(f.Labels[labelHost], f.Name), Status: "active", Capabilities: capsSummary(f.Resources, f.Tags)}
	if seen := w.LastSeen(); !seen.IsZero() {
		s.LastHeartbeat = lenient.NonZero(lenient.NaiveUTC(seen))
	}
	switch {
	case w.Err() != nil || now.Sub(w.LastSeen()) > g.settings.grace:
		s.Status = "offline"
	case slices.ContainsFunc(w.Tasks(), (*fleet.Task).Started):
		s.Status = "busy"
	}
	return s
}

func capsSummary(r muster.Resources, hardware []string) map[string]any {
	m := map[string]any{"hardware": hardware, "cpu_cores": r.CPUs, "memory_gb": float64(r.Memory) / gigabytes}
	if len(r.GPUs) > 0 {
		m["gpu"] = r.GPUs[0].Name
		m["gpu_count"] = len(r.GPUs)
	}
	return m
}

func (g *gateway) summaries(now time.Time) []summary {
	list := []summary{}
	for _, w := range g.Fleet.Workers() {
		list = append(list, g.summarize(w, now))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, info := range g.preregistered {
		if !slices.ContainsFunc(list, func(s summary) bool { return s.ID == id }) {
			list = append(list, summary{ID: id, Hostname: info.hostname, Status: "offline", Capabilities: capsSummary(toResources(id, &info.caps), workerTags(&info.caps))})
		}
	}
	slices.SortFunc(list, func(a, b summary) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (g *gateway) listWorkers(w http.ResponseWriter, _ *http.Request, _ *access) error {
	return dialect.Reply(w, map[string]any{"workers": g.summaries(time.Now())})
}

// showWorker answers a key that only joins workers about its own ones.
func (g *gateway) showWorker(w http.ResponseWriter, r *http.Request, granted *access) error {
	id := r.PathValue("id")
	for _, s := range g.summaries(time.Now()) {
		if s.ID == id && (granted.hasRole(roleAdmin, roleObserver) || g.keyOf(id) == granted.id) {
			return dialect.Reply(w, s)
		}
	}
	return muster.Errorf(muster.NotFound, "Worker not found: %s", lenient.Name(r.PathValue("id")))
}

// keyOf returns the id of the key by which a worker registered, "" for none.
func (g *gateway) keyOf(id string) string {
	if w := g.Fleet.Worker(id); w != nil {
		return w.Facts().Key
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.preregistered[id].key
}

// registerWorker registers a worker before it connects: with hostname and capabilities (R0, R1), or with host and port (HEAD).
func (g *gateway) registerWorker(w http.ResponseWriter, r *http.Request, granted *access) error {
	var q struct {
		WorkerID     string          `json:"worker_id"`
		Hostname     string          `json:"hostname"`
		Host         string          `json:"host"`
		Port         json.RawMessage `json:"port"`
		Capabilities capabilities    `json:"capabilities"`
	}
	if err := dialect.Decode(r, maxBody, &q); err != nil {
		return err
	}
	if err := checkID("worker_id", q.WorkerID); err != nil {
		return err
	}
	hostname := cmp.Or(q.Hostname, q.Host)
	if hostname == "" {
		return muster.Errorf(muster.Invalid, "Missing required field: hostname")
	}
	if q.WorkerID == "" {
		q.WorkerID = dialect.NewUUID()
	}
	g.mu.Lock()
	if len(g.preregistered) >= maxRegistered {
		oldest := ""
		for id, info := range g.preregistered {
			if oldest == "" || info.at.Before(g.preregistered[oldest].at) {
				oldest = id
			}
		}
		delete(g.preregistered, oldest)
	}
	g.preregistered[q.WorkerID] = restWorker{key: granted.id, hostname: lenient.Name(hostname), at: time.Now(), caps: q.Capabilities}
	g.mu.Unlock()
	return dialect.Reply(w, map[string]any{
		"success": true, "registered": true, "status": statusSuccess, "worker_id": q.WorkerID, "message": "Worker registered: connect to /ws",
	})
}
