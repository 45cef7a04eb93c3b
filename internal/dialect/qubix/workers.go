package qubix

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// shownProvider is a provider as the backend shows it.
type shownProvider struct {
	ID           string  `json:"id"`
	WorkerID     string  `json:"workerId"`
	Name         string  `json:"name"`
	Type         string  `json:"type"`
	QubicAddress string  `json:"qubicAddress,omitempty"`
	Location     string  `json:"location,omitempty"`
	ComputePower float64 `json:"computePower"`
	PricePerHour float64 `json:"pricePerHour"`
	GPUModel     string  `json:"gpuModel,omitempty"` // that it offers; not one that it made up
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

func (g *Gateway) shown(w *fleet.Worker) shownProvider {
	f := w.Facts()
	power := 0.0
	_ = json.Unmarshal([]byte(or(f.Labels[labelPower], "0")), &power)
	p := shownProvider{
		ID: f.ID, WorkerID: f.ID, Name: f.Name, Type: or(f.Labels[labelType], "native"), QubicAddress: f.Labels[labelAddress],
		Location: f.Labels[labelLocation], ComputePower: power, PricePerHour: f.Price, CPUModel: f.Labels[labelCPU],
		CPUCores: f.Resources.CPUs, RAMTotal: gib(f.Resources.Memory), IsActive: w.Err() == nil, Status: "offline",
	}
	if len(f.Resources.GPUs) > 0 {
		p.GPUModel, p.GPUVRAM = f.Resources.GPUs[0].Name, gib(f.Resources.GPUs[0].Memory)
	}
	at := w.Seen()
	if !at.IsZero() {
		p.LastSeen = muster.NewTime(at).String()
	}
	for _, t := range w.Tasks() {
		if t.Began() {
			id := t.ID()
			p.CurrentJobID = &id
		}
	}
	p.IsOnline = p.IsActive && (p.CurrentJobID != nil || !at.IsZero() && time.Since(at) < g.silence)
	p.IsAvailable = p.IsOnline && len(w.Tasks()) == 0
	switch {
	case p.IsOnline && p.CurrentJobID != nil:
		p.Status = "busy"
	case p.IsOnline:
		p.Status = "online"
	}
	return p
}

// origin is where a request comes from.
func origin(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// register serves POST /api/providers/register. The answer is 200 whether the worker is new or not: workers end at any other.
func (g *Gateway) register(w http.ResponseWriter, r *http.Request) {
	var reg registration
	if err := dialect.Decode(r, maxSmall, &reg); err != nil {
		refuse(w, err)
		return
	}
	if err := checkID(reg.id()); err != nil {
		refuse(w, err)
		return
	}
	facts := factsOf(&reg, origin(r), dialect.CallerOf(r.Context()).Key, g.env.Config.Price)
	g.enter(w, r, facts)
}

// quickRegister serves POST /api/providers/quick-register, by which browsers and other clients join.
func (g *Gateway) quickRegister(w http.ResponseWriter, r *http.Request) {
	var q quickRegistration
	if err := dialect.Decode(r, maxSmall, &q); err != nil {
		refuse(w, err)
		return
	}
	if err := q.check(); err != nil {
		refuse(w, err)
		return
	}
	reg := registration{
		WorkerID: strings.TrimSpace(q.WorkerID), Name: "Provider-" + clean(q.WorkerID, 8), Address: q.QubicAddress, Location: q.Location, PricePerHour: q.PricePerHour,
		Specs: specs{GPUAvailable: q.GPU.Type == "native" && q.GPU.VRAM > 0, GPUModel: or(q.GPU.Model, q.GPU.Renderer), GPUVRAM: q.GPU.VRAM},
	}
	if q.PricePerHour == nil {
		price := quickPrice(q.GPU.VRAM)
		reg.PricePerHour = &price
	}
	if q.CPU != nil {
		reg.Specs.CPUModel, reg.Specs.CPUCores = q.CPU.Model, q.CPU.Cores
	}
	if q.RAM != nil {
		reg.Specs.RAMTotal = q.RAM.Total
	}
	facts := factsOf(&reg, origin(r), dialect.CallerOf(r.Context()).Key, g.env.Config.Price)
	facts.Labels[labelType] = q.Type
	if q.Type == "browser" {
		facts.Labels[labelFlavour] = string(browser)
	}
	g.enter(w, r, facts)
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

// enter has a worker join, or come back. A program that registers has just begun: what it ran before is lost, unless
// it is a bridge of Muster, which keeps it.
func (g *Gateway) enter(w http.ResponseWriter, r *http.Request, facts fleet.Facts) {
	if err := dialect.CallerOf(r.Context()).MayWork(); err != nil {
		refuse(w, err)
		return
	}
	before := g.fleet.Worker(facts.ID)
	if before != nil && before.Facts().Labels[labelSeen] != "" && before.Facts().Labels[labelGPU] == facts.Labels[labelGPU] {
		facts.Labels[labelSeen] = "true"
	}
	worker, err := g.join(r.Context(), facts)
	if err != nil {
		refuse(w, err)
		return
	}
	if before != nil && facts.Labels[labelFlavour] != string(bridged) {
		g.book.forget(facts.ID)
		g.begunAnew(worker)
	}
	dialect.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "isNew": before == nil, "provider": g.shown(worker), "message": "Provider registered"})
}

// join tells the fleet of a worker, with what is known of it by now.
func (g *Gateway) join(ctx context.Context, facts fleet.Facts) (*fleet.Worker, error) {
	worker, err := g.fleet.Register(ctx, settle(facts, g.env.Config.Kinds))
	if err != nil {
		return nil, err
	}
	why := ""
	if len(flavoursOf(facts.Labels)) == 0 {
		why = "its first heartbeat, which shows what program it is, has not come yet"
	}
	worker.Constrain("flavour", why)
	return worker, nil
}

// begunAnew hands back what a worker ran before its program was started again.
func (g *Gateway) begunAnew(worker *fleet.Worker) {
	for _, t := range worker.Tasks() {
		if t.Began() {
			g.giveUp(t, "the QUBIX worker was started again, and its jobs end with its program")
		}
	}
	worker.Idle()
}

// speaker returns the worker that a request is of, and renews it. It is NotFound for an unknown one and Forbidden for one
// that registered with another key.
func (g *Gateway) speaker(r *http.Request, id string) (*fleet.Worker, error) {
	worker := g.fleet.Worker(id)
	if worker == nil {
		return nil, muster.Errorf(muster.NotFound, "Provider not found")
	}
	if key := worker.Facts().Key; key != "" && dialect.CallerOf(r.Context()).Key != key {
		return nil, muster.Errorf(muster.Forbidden, "Provider was registered with another key")
	}
	return worker, nil
}

// heartbeat serves POST /api/providers/{worker}/heartbeat.
func (g *Gateway) heartbeat(w http.ResponseWriter, r *http.Request) {
	none := func(err error) {
		dialect.WriteJSON(w, dialect.Status(err), map[string]any{"success": false, "pendingJobs": []job{}, "error": err.Error()})
	}
	worker, err := g.speaker(r, r.PathValue("worker"))
	if err != nil {
		none(err)
		return
	}
	worker.Touch(nil)
	var h heartbeat
	if err := dialect.Decode(r, maxSmall, &h); err != nil {
		none(err)
		return
	}
	is := enhanced
	if h.Usage.simple() {
		is = simple
	}
	is = g.recognise(r.Context(), worker, is, h.Usage.gpu())
	worker.Touch(loadOf(&h.Usage, worker.Facts().Resources))
	if h.CurrentJob != nil && *h.CurrentJob != "" { // it says what it runs: it is not idle
		dialect.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "pendingJobs": []job{}})
		return
	}
	dialect.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "pendingJobs": g.offers(r.Context(), worker, is)})
}

// pending serves GET /api/jobs/pending/{worker}: a list, also for a worker that nobody knows.
func (g *Gateway) pending(w http.ResponseWriter, r *http.Request, id string) {
	worker, err := g.speaker(r, id)
	if err != nil {
		if muster.CodeOf(err) == muster.NotFound {
			dialect.WriteJSON(w, http.StatusOK, []job{})
			return
		}
		refuse(w, err)
		return
	}
	is := g.recognise(r.Context(), worker, enhanced, false) // the simple worker does not ask
	worker.Touch(nil)
	dialect.WriteJSON(w, http.StatusOK, g.offers(r.Context(), worker, is))
}

// recognise learns from a request what program a worker is and whether its GPU is there, and returns what it is.
func (g *Gateway) recognise(ctx context.Context, worker *fleet.Worker, is flavour, gpu bool) flavour {
	facts := worker.Facts()
	switch known := flavour(facts.Labels[labelFlavour]); known {
	case bridged, browser:
		is = known
	case unknown, simple, enhanced:
	}
	changed := seen(&facts, is)
	for _, other := range g.book.saw(facts.ID, is, time.Now()) {
		changed = unseen(&facts, other) || changed
	}
	if gpu {
		changed = measured(&facts) || changed
	}
	if changed && worker.Err() == nil {
		if _, err := g.join(ctx, facts); err != nil {
			g.log(facts.ID).Warn("what was learned of a worker could not be kept", slog.Any("why", err))
		}
	}
	return is
}

// providers serves GET /api/providers.
func (g *Gateway) providers(w http.ResponseWriter, r *http.Request) {
	list := []shownProvider{}
	for _, worker := range g.fleet.Workers() {
		if key := worker.Facts().Key; worker.Err() == nil && (key == "" || key == dialect.CallerOf(r.Context()).Key) {
			list = append(list, g.shown(worker))
		}
	}
	dialect.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "providers": list, "count": len(list)})
}

// provider serves GET /api/providers/{worker}.
func (g *Gateway) provider(w http.ResponseWriter, r *http.Request) {
	worker, err := g.speaker(r, r.PathValue("worker"))
	if err != nil {
		refuse(w, err)
		return
	}
	dialect.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "provider": g.shown(worker)})
}
