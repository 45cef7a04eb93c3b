package trainforge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// form is which of TrainForge's workers one is, as its label says.
const (
	labelForm    = "trainforge"
	formNode     = "node"
	formPoller   = "poller"
	formExternal = "external"
)

func workerForm(w *fleet.Worker) string { return w.Facts().Labels[labelForm] }

// register takes workers A and C, who use the same path.
func (g *Gateway) register(req *request, body *registration) error {
	toFacts, platform := g.externalFacts, cmp.Or(body.WorkerType, body.Platform, "external")
	if body.WorkerInfo != nil {
		toFacts, platform = nodeFacts, body.WorkerInfo.Platform
	}
	facts, err := toFacts(body)
	if err != nil {
		return err
	}
	facts.Remote, facts.Key = dialect.RemoteAddr(req.r), req.caller.Key
	if err := g.checkIDConflict(facts); err != nil {
		return err
	}
	w, err := g.Fleet.Register(req.r.Context(), facts)
	if err != nil {
		return err
	}
	g.clearDrops(w)
	w.Constrain(sourceStopped, "")
	if body.WorkerInfo != nil {
		w.Constrain("projects", g.projectsConstraint(req))
	}
	return req.reply(map[string]any{
		"success": true, "registered": true, "worker_id": facts.ID, "platform": lenient.Text(platform, maxID),
		"message": "Worker registered", "status": "registered",
	})
}

// projectsConstraint says why a worker cannot read projects, "" if it can.
func (g *Gateway) projectsConstraint(req *request) string {
	if g.sharedConfigured || req.isLocal() {
		return ""
	}
	return "it is on another machine and downloads nothing: start the server with --dialect trainforge=…,projects=DIR, with a folder that both share"
}

func isInactive(w *fleet.Worker) bool { return w == nil || w.Err() != nil }

// checkIDConflict refuses a second worker under the id of one that is there and works: it would end that one's tasks.
func (g *Gateway) checkIDConflict(facts fleet.Facts) error {
	w := g.Fleet.Worker(facts.ID)
	if isInactive(w) || time.Since(w.LastSeen()) > g.timeouts.silence {
		return nil
	}
	switch old := w.Facts(); {
	case old.Key != facts.Key:
		return muster.Errorf(muster.Forbidden, "worker id %s belongs to another key", lenient.Text(facts.ID, 60))
	case old.Labels[labelForm] == facts.Labels[labelForm] && old.Labels["hostname"] == facts.Labels["hostname"]: // it was started again
		return nil
	default:
		return muster.Errorf(muster.Conflict, "worker id %s is used by another worker: choose one with --worker-id", lenient.Text(facts.ID, 60))
	}
}

func gbToSize(field string, f float64) (muster.Size, error) {
	if f < 0 || f > 1<<20 {
		return 0, muster.Errorf(muster.Invalid, "%s is not a valid size of a machine", field)
	}
	return muster.Size(f * (1 << 30)), nil
}

func formLabels(form string, texts map[string]string) map[string]string {
	labels := lenient.Labels(texts, 100)
	labels[labelForm] = form
	return labels
}

// toGPUs makes GPUs of Muster, whose UUIDs end in the number by which the worker knows them.
func toGPUs(worker string, gpus []gpu) ([]muster.GPU, error) {
	sum := sha256.Sum256([]byte(worker))
	var list []muster.GPU
	seen := map[int]bool{}
	for _, d := range gpus {
		if d.ID < 0 || d.ID > 1000 || seen[d.ID] || d.MemoryMB < 0 || d.MemoryMB > 1<<30 {
			return nil, muster.Errorf(muster.Invalid, "gpu %d is not valid", d.ID)
		}
		seen[d.ID] = true
		list = append(list, muster.GPU{
			UUID: fmt.Sprintf("trainforge-%s-%d", hex.EncodeToString(sum[:6]), d.ID), Index: d.ID, Vendor: "nvidia",
			Name: lenient.Text(cmp.Or(d.Name, "GPU"), 100), Memory: muster.Size(d.MemoryMB) << 20,
		})
	}
	return list, nil
}

// deviceNumbers returns the numbers by which the worker knows the devices of a grant.
func deviceNumbers(g muster.Grant) []string {
	var list []string
	for _, uuid := range g.GPUs {
		number := uuid[strings.LastIndexByte(uuid, '-')+1:]
		if _, err := strconv.Atoi(number); err == nil {
			list = append(list, number)
		}
	}
	return list
}

func nodeFacts(body *registration) (fleet.Facts, error) {
	n := body.WorkerInfo
	if err := checkID("worker_info.worker_id", n.WorkerID); err != nil {
		return fleet.Facts{}, err
	}
	if n.CPUs < 0 || n.CPUs > 10_000 || body.Capabilities.MaxJobs < 0 || body.Capabilities.MaxJobs > 10_000 || len(n.GPUs) > maxWorkerGPUs {
		return fleet.Facts{}, muster.Errorf(muster.Invalid, "no machine has %d cores and %d GPUs for %d jobs", n.CPUs, len(n.GPUs), body.Capabilities.MaxJobs)
	}
	memory, memoryErr := gbToSize("memory_total_gb", n.MemoryGB)
	disk, diskErr := gbToSize("disk_total_gb", n.DiskGB)
	python, _, _ := strings.Cut(n.Python, " ")
	devs, workerLabels := n.GPUs, formLabels(formNode, map[string]string{"hostname": n.Hostname, "platform": n.Platform, "python": python})
	if isPlaceholder(devs) {
		devs, workerLabels["gpus"] = nil, "invented"
	}
	gpus, gpuErr := toGPUs(n.WorkerID, devs)
	if err := cmp.Or(memoryErr, diskErr, gpuErr); err != nil {
		return fleet.Facts{}, err
	}
	lacks := []string{muster.FeaturePython, muster.FeatureRequirements, muster.FeatureProject, muster.FeatureGang}
	if strings.HasPrefix(strings.ToLower(n.Platform), "win") {
		lacks = append(lacks, muster.FeatureShell, muster.FeatureInterpreter)
	}
	maxTasks := cmp.Or(body.Capabilities.MaxJobs, 4)
	return fleet.Facts{
		ID: n.WorkerID, Name: lenient.Name(n.WorkerID), Labels: workerLabels, Kinds: supportedKinds(), Lacks: lacks,
		Resources: muster.Resources{CPUs: float64(max(n.CPUs, 1)), Memory: memory, Disk: disk, Slots: maxTasks, MaxTasks: maxTasks, GPUs: gpus},
	}, nil
}

func supportedKinds() []string { return []string{muster.KindProcess, muster.KindScript} }

func (g *Gateway) externalFacts(body *registration) (fleet.Facts, error) {
	if err := checkID("worker_id", body.WorkerID); err != nil {
		return fleet.Facts{}, err
	}
	c := &body.Capabilities
	if c.GPUCount < 0 || c.GPUCount > maxWorkerGPUs || !(c.CPUs >= 0 && c.CPUs <= 10_000) || c.MaxJobs < 0 || c.MaxJobs > 10_000 {
		return fleet.Facts{}, muster.Errorf(muster.Invalid, "no machine has %d GPUs for %d jobs", c.GPUCount, c.MaxJobs)
	}
	memory, memoryErr := gbToSize("max_memory_gb", c.MaxMemoryGB)
	vram, vramErr := gbToSize("gpu_memory_gb", cmp.Or(c.GPUInfo.MemoryGB, body.GPUMemoryGB))
	count := c.GPUCount
	if count == 0 && body.GPUAvailable {
		count = 1
	}
	var list []gpu
	for i := range count {
		list = append(list, gpu{ID: i, Name: cmp.Or(c.GPUInfo.Name, body.GPUName), MemoryMB: float64(vram >> 20)})
	}
	gpus, gpuErr := toGPUs(body.WorkerID, list)
	if err := cmp.Or(memoryErr, vramErr, gpuErr); err != nil {
		return fleet.Facts{}, err
	}
	if memory == 0 || memory == vram { // the worker for Colab says the GPU's memory here
		memory = g.memory
	}
	maxTasks := cmp.Or(c.MaxJobs, 1)
	cpus := cmp.Or(c.CPUs, g.cpus*float64(maxTasks))
	return fleet.Facts{
		ID: body.WorkerID, Name: lenient.Name(body.WorkerID), Kinds: supportedKinds(),
		Labels:    formLabels(formExternal, map[string]string{"worker_type": cmp.Or(body.WorkerType, body.Platform), "location": body.Location}),
		Resources: muster.Resources{CPUs: cpus, Memory: memory, Slots: maxTasks, MaxTasks: maxTasks, GPUs: gpus},
	}, nil
}

// authorizedWorker returns the worker of an id if the caller may speak for it.
func (g *Gateway) authorizedWorker(req *request, id string) (*fleet.Worker, error) {
	w := g.Fleet.Worker(id)
	if isInactive(w) || w.Facts().Key != req.caller.Key {
		return nil, workerNotFound()
	}
	return w, nil
}

// load is what a heartbeat of worker A says of its machine, which has so much memory.
func (b *heartbeat) load(total muster.Size) *muster.Load {
	if b.CPU.Metrics.CPU == 0 && b.MemoryUsage == 0 {
		return nil
	}
	fraction := func(percent float64) float64 { return min(max(percent/100, 0), 1) }
	memory := fraction(cmp.Or(b.MemoryUsage, b.CPU.Metrics.Memory)) * float64(total)
	return &muster.Load{CPU: fraction(cmp.Or(b.CPU.Metrics.CPU, b.CPU.Utilization)), Memory: muster.Size(memory)}
}

// workerView is a worker as TrainForge lists it.
func (g *Gateway) workerView(w *fleet.Worker) map[string]any {
	f, jobs, state := w.Facts(), startedTasks(w), "idle"
	switch {
	case time.Since(w.LastSeen()) > g.timeouts.silence:
		state = "offline"
	case len(jobs) > 0:
		state = "busy"
	}
	return map[string]any{
		"worker_id": f.ID, "status": state, "worker_type": cmp.Or(f.Labels["worker_type"], f.Labels[labelForm]), "location": f.Labels["location"],
		"hostname": f.Labels["hostname"], "active_jobs": len(jobs), "max_jobs": f.Resources.MaxTasks, "cpu_count": f.Resources.CPUs,
		"gpu_count": len(f.Resources.GPUs), "memory_gb": float64(f.Resources.Memory>>20) / 1024, "last_heartbeat": w.LastSeen().UTC().Format(time.RFC3339),
	}
}

// visible reports whether a caller may see a worker: each is seen by its own key.
func (req *request) visible(w *fleet.Worker) bool {
	return !isInactive(w) && (w.Facts().Key == req.caller.Key || req.caller.CanSeeWorkers() == nil)
}

// workers lists the gateway's own ones. Job ids are not in it: who knows one may report the job.
func (g *Gateway) workers(req *request) error {
	list := []map[string]any{}
	for _, w := range g.Fleet.Workers() {
		if req.visible(w) && len(list) < maxListed {
			list = append(list, g.workerView(w))
		}
	}
	return req.reply(list)
}

func (g *Gateway) worker(req *request) error {
	w := g.Fleet.Worker(req.r.PathValue("id"))
	if !req.visible(w) {
		return workerNotFound()
	}
	return req.reply(g.workerView(w))
}

func (g *Gateway) allStats(req *request) error {
	count := map[any]int{}
	total := 0
	for _, w := range g.Fleet.Workers() {
		if req.visible(w) {
			count[g.workerView(w)["status"]]++
			total++
		}
	}
	return req.reply(map[string]any{"total_workers": total, "idle": count["idle"], "busy": count["busy"], "offline": count["offline"]})
}

// workerEvent accepts reports of a worker about itself. Only that it stops is used.
func (g *Gateway) workerEvent(req *request, w *fleet.Worker, body *workerEvent) error {
	if body.Status == statusOffline {
		w.Constrain(sourceStopped, "it reported that it is offline")
	}
	return req.reply(map[string]any{"success": true, "worker_id": w.ID(), "message": "ok"})
}

func (g *Gateway) workerProgress(req *request, w *fleet.Worker, body *workerProgress) error {
	p := muster.Progress{Progress: fraction(body.Progress), Step: lenient.NonZero(lenient.Text(body.Message, maxStep)), Metrics: map[string]float64{}}
	for name, v := range map[string]*float64{"epoch": body.Epoch, "loss": body.Loss, "accuracy": body.Accuracy} {
		if v != nil {
			p.Metrics[name] = *v
		}
	}
	if tasks := startedTasks(w); len(tasks) == 1 {
		g.state(tasks[0]).touch()
		if err := tasks[0].Progress(p); err != nil && muster.CodeOf(err) != muster.Conflict {
			return err
		}
	}
	return req.reply(map[string]any{"success": true, "worker_id": w.ID(), "message": "Progress updated"})
}

// fraction reads a progress of 0 to 100.
func fraction(percent *float64) *float64 {
	if percent == nil {
		return nil
	}
	return new(min(max(*percent/100, 0), 1))
}

func (g *Gateway) externalUnregister(req *request) error {
	w, err := g.authorizedWorker(req, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := g.leave(req.r.Context(), w); err != nil {
		return err
	}
	return req.reply(map[string]any{"message": "Worker deleted", "worker_id": w.ID()})
}

func (g *Gateway) leave(ctx context.Context, w *fleet.Worker) error {
	ctx, cancel := g.reportContext(ctx)
	defer cancel()
	return w.Leave(ctx)
}
