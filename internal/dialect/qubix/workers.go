package qubix

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

type providerView struct {
	ID           string  `json:"id"`
	WorkerID     string  `json:"workerId"`
	Name         string  `json:"name"`
	Type         string  `json:"type"`
	QubicAddress string  `json:"qubicAddress,omitempty"`
	Location     string  `json:"location,omitempty"`
	ComputePower float64 `json:"computePower"`
	PricePerHour float64 `json:"pricePerHour"`
	GPUModel     string  `json:"gpuModel,omitempty"` // see offeredGPU
	GPUVRAM      float64 `json:"gpuVram,omitempty"`
	CPUModel     string  `json:"cpuModel,omitempty"`
	CPUCores     float64 `json:"cpuCores"`
	RAMTotal     float64 `json:"ramTotal"`
	IsActive     bool    `json:"isActive"`
	IsOnline     bool    `json:"isOnline"`
	IsAvailable  bool    `json:"isAvailable"`
	Status       string  `json:"status"` // online, busy or offline
	CurrentJobID *string `json:"currentJobId"`
	LastSeen     string  `json:"lastHeartbeat,omitempty"`
}

func (g *Gateway) viewProvider(w *fleet.Worker) providerView {
	f := w.Facts()
	power, _ := strconv.ParseFloat(f.Labels[labelPower], 64) // 0 for none
	p := providerView{
		ID: f.ID, WorkerID: f.ID, Name: f.Name, Type: orDefault(f.Labels[labelType], "native"), QubicAddress: f.Labels[labelAddress],
		Location: f.Labels[labelLocation], ComputePower: power, PricePerHour: f.Price, CPUModel: f.Labels[labelCPU],
		CPUCores: f.Resources.CPUs, RAMTotal: lenient.InGiB(f.Resources.Memory), IsActive: w.Err() == nil, Status: "offline",
	}
	if len(f.Resources.GPUs) > 0 {
		p.GPUModel, p.GPUVRAM = f.Resources.GPUs[0].Name, lenient.InGiB(f.Resources.GPUs[0].Memory)
	}
	seen := w.LastSeen()
	if !seen.IsZero() {
		p.LastSeen = muster.NewTime(seen).String()
	}
	for _, t := range w.Tasks() {
		if t.Started() {
			p.CurrentJobID = new(t.ID())
		}
	}
	p.IsOnline = p.IsActive && (p.CurrentJobID != nil || !seen.IsZero() && time.Since(seen) < g.idleTimeout)
	p.IsAvailable = p.IsOnline && len(w.Tasks()) == 0
	switch {
	case p.IsOnline && p.CurrentJobID != nil:
		p.Status = "busy"
	case p.IsOnline:
		p.Status = "online"
	}
	return p
}

// register serves POST /api/providers/register. The answer is 200 also for a known worker, because workers exit after any other.
func (g *Gateway) register(w http.ResponseWriter, r *http.Request, reg *registration) error {
	if err := checkID(reg.id()); err != nil {
		return err
	}
	return g.registerWorker(w, r, reg, nil)
}

// quickRegister serves POST /api/providers/quick-register, by which browsers and other clients join.
func (g *Gateway) quickRegister(w http.ResponseWriter, r *http.Request, q *quickRegistration) error {
	if err := q.check(); err != nil {
		return err
	}
	reg := &registration{
		WorkerID: strings.TrimSpace(q.WorkerID), Name: "Provider-" + lenient.Text(q.WorkerID, 8), Address: q.QubicAddress, Location: q.Location,
		PricePerHour: cmp.Or(q.PricePerHour, new(quickPrice(q.GPU.VRAM))),
		Specs: specs{
			GPUAvailable: q.GPU.Type == "native" && q.GPU.VRAM > 0, GPUModel: orDefault(q.GPU.Model, q.GPU.Renderer), GPUVRAM: q.GPU.VRAM,
			CPUModel: q.CPU.Model, CPUCores: q.CPU.Cores, RAMTotal: q.RAM.Total,
		},
	}
	labels := map[string]string{labelType: q.Type}
	if q.Type == "browser" {
		labels[labelFlavour] = string(flavourBrowser)
	}
	return g.registerWorker(w, r, reg, labels)
}

func (q *quickRegistration) check() error {
	if err := checkID(strings.TrimSpace(q.WorkerID)); err != nil {
		return err
	}
	switch {
	case q.Type != "browser" && q.Type != "native":
		return muster.Errorf(muster.Invalid, "type is %.40q: it must be browser or native", q.Type)
	case !isAddress(q.QubicAddress):
		return muster.Errorf(muster.Invalid, "qubicAddress must be 60 letters A to Z")
	case !slices.Contains([]string{"webgpu", "webgl", "native"}, q.GPU.Type):
		return muster.Errorf(muster.Invalid, "gpu.type is %.40q: it must be webgpu, webgl or native", q.GPU.Type)
	case q.PricePerHour != nil && (*q.PricePerHour <= 0 || *q.PricePerHour > maxPrice):
		return muster.Errorf(muster.Invalid, "pricePerHour is %v: it must be more than 0, and at most %v", *q.PricePerHour, maxPrice)
	}
	return nil
}

func isAddress(s string) bool {
	return len(s) == 60 && !strings.ContainsFunc(s, func(r rune) bool { return r < 'A' || r > 'Z' })
}

// registerWorker adds or updates a worker. A program registers when it starts, so its earlier jobs are lost, except for a bridge of
// Muster, which continues them.
func (g *Gateway) registerWorker(w http.ResponseWriter, r *http.Request, reg *registration, labels map[string]string) error {
	caller := dialect.CallerFromContext(r.Context())
	if err := caller.CanJoinWorkers(); err != nil {
		return err
	}
	facts := newFacts(reg, dialect.RemoteAddr(r), caller.Key, g.Deps.Config.Price)
	maps.Copy(facts.Labels, labels)
	previous := g.Fleet.Worker(facts.ID)
	if previous != nil && previous.Facts().Labels[labelGPUSeen] != "" && previous.Facts().Labels[labelGPU] == facts.Labels[labelGPU] {
		facts.Labels[labelGPUSeen] = "true"
	}
	worker, err := g.registerFacts(r.Context(), facts)
	if err != nil {
		return err
	}
	if previous != nil && facts.Labels[labelFlavour] != string(flavourBridge) {
		g.tracker.workers.Remove(facts.ID)
		for _, t := range worker.Tasks() {
			if t.Started() {
				g.requeue(t, "the QUBIX worker restarted and lost its jobs")
			}
		}
		worker.MarkIdle()
	}
	return dialect.Reply(w, map[string]any{"success": true, "isNew": previous == nil, "provider": g.viewProvider(worker), "message": "Provider registered"})
}

func (g *Gateway) registerFacts(ctx context.Context, facts fleet.Facts) (*fleet.Worker, error) {
	worker, err := g.Fleet.Register(ctx, completeFacts(facts, g.Deps.Config.Kinds))
	if err != nil {
		return nil, err
	}
	reason := ""
	if len(parseFlavours(facts.Labels)) == 0 {
		reason = "no heartbeat yet, which shows its program"
	}
	worker.Constrain("flavour", reason)
	return worker, nil
}

// authorizeWorker returns the worker of a request. It is NotFound for an unknown one and Forbidden for one that registered with another key.
func (g *Gateway) authorizeWorker(r *http.Request, id string) (*fleet.Worker, error) {
	worker := g.Fleet.Worker(id)
	if worker == nil {
		return nil, muster.Errorf(muster.NotFound, "Provider not found")
	}
	if key := worker.Facts().Key; key != "" && dialect.CallerFromContext(r.Context()).Key != key {
		return nil, muster.Errorf(muster.Forbidden, "Provider was registered with another key")
	}
	return worker, nil
}

func (g *Gateway) heartbeat(w http.ResponseWriter, r *http.Request) error {
	fail := func(err error) error {
		dialect.WriteJSON(w, dialect.HTTPStatus(w, err), map[string]any{"success": false, "pendingJobs": []job{}, "error": err.Error()})
		return nil
	}
	worker, err := g.authorizeWorker(r, r.PathValue("worker"))
	if err != nil {
		return fail(err)
	}
	worker.Touch(nil)
	var h heartbeat
	if err := dialect.Decode(r, maxSmallBody, &h); err != nil {
		return fail(err)
	}
	fl := flavourEnhanced
	if h.Usage.isSimple() {
		fl = flavourSimple
	}
	fl = g.detectFlavour(r.Context(), worker, fl, h.Usage.hasGPU())
	worker.Touch(parseLoad(&h.Usage, worker.Facts().Resources))
	if h.CurrentJob != nil && *h.CurrentJob != "" { // it is not idle
		return dialect.Reply(w, map[string]any{"success": true, "pendingJobs": []job{}})
	}
	return dialect.Reply(w, map[string]any{"success": true, "pendingJobs": g.offeredJobs(r.Context(), worker, fl)})
}

// pending serves GET /api/jobs/pending/{worker}: a list, also for an unknown worker.
func (g *Gateway) pending(w http.ResponseWriter, r *http.Request, id string) error {
	worker, err := g.authorizeWorker(r, id)
	if err != nil {
		if muster.CodeOf(err) == muster.NotFound {
			return dialect.Reply(w, []job{})
		}
		return err
	}
	fl := g.detectFlavour(r.Context(), worker, flavourEnhanced, false) // the simple worker does not ask
	worker.Touch(nil)
	return dialect.Reply(w, g.offeredJobs(r.Context(), worker, fl))
}

// detectFlavour determines a worker's program from a request and stores it. gpu reports whether the request has GPU values.
func (g *Gateway) detectFlavour(ctx context.Context, worker *fleet.Worker, fl flavour, gpu bool) flavour {
	facts := worker.Facts()
	if known := flavour(facts.Labels[labelFlavour]); known == flavourBridge || known == flavourBrowser {
		fl = known
	}
	labels, stale := maps.Clone(facts.Labels), g.tracker.recordFlavour(facts.ID, fl, time.Now())
	list := slices.DeleteFunc(append(parseFlavours(labels), string(fl)), func(s string) bool { return slices.Contains(stale, flavour(s)) })
	slices.Sort(list)
	labels[labelFlavour] = strings.Join(slices.Compact(list), "+")
	if gpu {
		labels[labelGPUSeen] = "true"
	}
	if !maps.Equal(labels, facts.Labels) && worker.Err() == nil {
		facts.Labels = labels
		if _, err := g.registerFacts(ctx, facts); err != nil {
			g.Deps.Log.Warn("cannot update a worker", slog.String("worker", facts.ID), slog.Any("why", err))
		}
	}
	return fl
}

func (g *Gateway) providers(w http.ResponseWriter, r *http.Request) error {
	list := []providerView{}
	for _, worker := range g.Fleet.Workers() {
		if key := worker.Facts().Key; worker.Err() == nil && (key == "" || key == dialect.CallerFromContext(r.Context()).Key) {
			list = append(list, g.viewProvider(worker))
		}
	}
	return dialect.Reply(w, map[string]any{"success": true, "providers": list, "count": len(list)})
}

func (g *Gateway) provider(w http.ResponseWriter, r *http.Request) error {
	worker, err := g.authorizeWorker(r, r.PathValue("worker"))
	if err != nil {
		return err
	}
	return dialect.Reply(w, map[string]any{"success": true, "provider": g.viewProvider(worker)})
}
