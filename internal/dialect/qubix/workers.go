package qubix

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/kind"
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
		p.LastSeen = muster.TimeOf(at).String()
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

// giveUp hands back a task of which its worker will report nothing more.
func (g *Gateway) giveUp(t *fleet.Task, why string) {
	if err := t.Return(why); err != nil {
		return // it is over
	}
	g.book.end(t.ID(), ended{worker: t.Worker().ID(), status: failed, at: muster.TimeOf(time.Now())})
}

// reject says that a worker cannot do what a task asks for. The task goes to another one.
func (g *Gateway) reject(ctx context.Context, t *fleet.Task, why string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	end := fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.Rejected, Message: "the worker refuses the task: " + why}
	if err := t.Finish(ctx, end); err != nil && muster.CodeOf(err) != muster.Unavailable { // that is sent until it is taken
		g.log(t.Worker().ID()).Warn("a task could not be rejected", slog.String("job", t.ID()), slog.Any("why", err))
	}
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
		dialect.WriteJSON(w, status(err), map[string]any{"success": false, "pendingJobs": []job{}, "error": err.Error()})
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

// offers lists the jobs that an idle worker is to take, oldest first. One that began is not offered again: its worker would begin
// it once more.
func (g *Gateway) offers(ctx context.Context, worker *fleet.Worker, is flavour) []job {
	list := []job{}
	begun := false
	for _, t := range worker.Tasks() {
		if t.Began() {
			begun = true
			g.missing(t, is)
			continue
		}
		spec := t.Run().Spec
		if is == enhanced && slices.Contains(settledKinds(worker), spec.Kind) {
			if why := carries(spec); why != "" {
				g.reject(ctx, t, why)
				continue
			}
		}
		if fits(is, spec.Kind) && len(list) < maxOffers {
			g.book.give(t.ID(), worker.ID())
			list = append(list, offer(t.ID(), worker.ID(), spec, is == bridged))
		}
	}
	if !begun && is != bridged {
		worker.Idle()
	}
	return list
}

func settledKinds(w *fleet.Worker) []string { return w.Facts().Kinds }

// fits reports whether a program runs tasks of a kind: two programs may be there under one id.
func fits(is flavour, name string) bool {
	switch is {
	case simple, browser:
		return name == kind.Foreign
	case enhanced:
		return name != kind.Foreign
	case unknown, bridged:
	}
	return true
}

// missing ends a job whose worker has asked for work for long without a word of it: its last report was lost.
// A worker does not ask while it runs a job; another one on the same machine, with the same id, may.
func (g *Gateway) missing(t *fleet.Task, is flavour) {
	if is == bridged {
		return
	}
	if g.book.idling(t.ID(), time.Now()) >= g.lost {
		g.giveUp(t, "the QUBIX worker asks for work again and has not reported how the job ended")
	}
}

// task finds the job of a report, and checks that it is the worker's. The task is nil if it is over; then Late says why.
func (g *Gateway) task(r *http.Request, id string, named ...string) (*fleet.Task, error) {
	t := g.fleet.Task(id)
	owner := g.book.whose(id)
	if t != nil {
		owner = t.Worker().ID()
	}
	for _, name := range named {
		if name != "" && owner != "" && name != owner {
			return nil, muster.Errorf(muster.Forbidden, "Job is assigned to another provider")
		}
	}
	if owner == "" {
		return nil, nil //nolint:nilnil // it is over, or never was
	}
	if worker := g.fleet.Worker(owner); worker != nil {
		if _, err := g.speaker(r, owner); err != nil {
			return nil, err
		}
		worker.Touch(nil)
	}
	return t, nil
}

// progress serves POST /api/jobs/{job}/progress.
func (g *Gateway) progress(w http.ResponseWriter, r *http.Request) {
	var p progress
	if err := dialect.Decode(r, maxReport, &p); err != nil {
		refuse(w, err)
		return
	}
	id := r.PathValue("job")
	t, err := g.task(r, id, p.WorkerID, p.WorkerIDSnake)
	if err != nil {
		refuse(w, err)
		return
	}
	percent, err := percent(p.Progress)
	if err != nil {
		refuse(w, err)
		return
	}
	if t == nil {
		g.idle(w, id)
		return
	}
	if err := g.advance(r.Context(), t, &p, percent); err != nil {
		if muster.CodeOf(err) == muster.Conflict {
			g.idle(w, id)
			return
		}
		refuse(w, err)
		return
	}
	seconds := time.Since(g.book.heard(id)).Seconds()
	answer := map[string]any{"success": true, "costSoFar": seconds / 3600 * t.Worker().Facts().Price}
	if percent > 0 {
		answer["timeRemaining"] = int(seconds * (100 - percent) / percent)
	}
	dialect.WriteJSON(w, http.StatusOK, answer)
}

// advance passes a report of progress on.
func (g *Gateway) advance(ctx context.Context, t *fleet.Task, p *progress, percent float64) error {
	done := percent / 100
	told := muster.Progress{Progress: &done, Metrics: figures(p.Metrics)}
	if p.CurrentOperation != nil {
		step := clean(*p.CurrentOperation, maxText)
		told.Step = &step
	}
	if err := t.Begin(); err != nil {
		return err
	}
	if err := t.Progress(told); err != nil {
		return err
	}
	var gpu gpuMetrics
	if json.Unmarshal(p.Metrics, &gpu) == nil {
		if load := gpuLoad(&gpu, t.Worker().Facts().Resources); load != nil {
			t.Worker().Touch(load)
		}
	}
	if len(p.LogLines) == 0 {
		return nil
	}
	lines := make([]string, 0, len(p.LogLines))
	for _, l := range p.LogLines {
		lines = append(lines, strings.Split(l.Message, "\n")...)
	}
	g.book.printed(t.ID(), true)
	return t.Log(ctx, lines...)
}

// figures are the numbers of a worker's metrics. The simple worker's four are not measured: 0, 0, null and null.
func figures(raw json.RawMessage) map[string]float64 {
	found := map[string]float64{}
	for name, value := range object(raw) {
		var v float64
		if len(found) >= 50 || len(name) > 100 || clean(name, 100) != name || !present(value) || json.Unmarshal(value, &v) != nil {
			continue
		}
		if (name == "cpuPercent" || name == "ramPercent") && v == 0 {
			continue
		}
		found[name] = v
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// complete serves POST /api/jobs/{job}/complete. The first final report counts. One that comes later has no effect and is
// answered with 200, as QUBIX's backend does.
func (g *Gateway) complete(w http.ResponseWriter, r *http.Request) {
	var c completion
	if err := dialect.Decode(r, maxReport, &c); err != nil {
		refuse(w, err)
		return
	}
	if s := strings.ToLower(c.Status); s != wordCompleted && s != wordFailed {
		refuse(w, muster.Errorf(muster.Invalid, "status is %.40q: it must be completed or failed", c.Status))
		return
	}
	id := r.PathValue("job")
	t, err := g.task(r, id, c.WorkerID, c.WorkerIDSnake)
	if err != nil {
		refuse(w, err)
		return
	}
	if t == nil {
		g.tooLate(w, id)
		return
	}
	held := g.book.job(id)
	held.mu.Lock()
	defer held.mu.Unlock()
	e, err := g.end(r.Context(), t, held, &c)
	switch {
	case err == nil:
		g.book.end(id, e)
		dialect.WriteJSON(w, http.StatusOK, done(id, e))
	case muster.CodeOf(err) == muster.Conflict:
		g.tooLate(w, id)
	default:
		refuse(w, err)
	}
}

// end hands a final report to the server, and returns once that has it on disk.
func (g *Gateway) end(ctx context.Context, t *fleet.Task, held *held, c *completion) (ended, error) {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	if err := t.Begin(); err != nil {
		return ended{}, err
	}
	v := judge(t.Run().Spec.Kind, c)
	lines := v.log
	if flavour(t.Worker().Facts().Labels[labelFlavour]) != bridged && !g.book.printed(t.ID(), false) { // else they came before
		lines = append(v.output, v.log...)
	}
	if len(lines) > 0 {
		if err := t.Log(ctx, lines...); err != nil {
			return ended{}, err
		}
	}
	e := ended{worker: t.Worker().ID(), status: completed, at: muster.TimeOf(time.Now())}
	if v.outcome != muster.AttemptSucceeded {
		e.status = failed
	}
	e.duration = spent(c.Metrics, min(time.Since(held.began), time.Since(t.Offered())), time.Since(t.Offered()))
	e.cost = e.duration / 3600 * t.Worker().Facts().Price
	return e, t.Finish(ctx, fleet.Ending{
		Outcome: v.outcome, Reason: v.reason, Message: v.message, ExitCode: v.exitCode, Result: v.result,
		Usage: &muster.Usage{WallSeconds: e.duration, Cost: e.cost},
	})
}

// spent is for how many seconds a worker ran a job: as it says, if that can be.
func spent(metrics json.RawMessage, seen, most time.Duration) float64 {
	var m struct {
		Seconds *float64 `json:"processingTimeSeconds"`
	}
	if json.Unmarshal(metrics, &m) == nil && m.Seconds != nil && *m.Seconds > 0 && *m.Seconds <= most.Seconds()+1 {
		return *m.Seconds
	}
	return max(seen.Seconds(), 0)
}

// done is the answer to a final report. Payments are not known: null.
func done(id string, e ended) map[string]any {
	answer := map[string]any{"id": id, "status": e.status}
	if e.at != 0 {
		answer["completedAt"], answer["actualCost"], answer["actualDuration"] = e.at.String(), e.cost, e.duration
	}
	return map[string]any{"success": true, "job": answer, "payment": nil}
}

// idle answers a report of progress of a job that is over. It has no effect. A bridge of Muster reads the status, and stops the job.
func (g *Gateway) idle(w http.ResponseWriter, id string) {
	if g.book.whose(id) == "" {
		refuse(w, muster.Errorf(muster.NotFound, "Job not found"))
		return
	}
	e, known := g.book.how(id)
	if !known {
		e.status = cancelled // or timed out, or given to another: the worker's work on it is of no use
	}
	dialect.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "status": e.status})
}

// tooLate answers a final report of a job that is over, which has no effect, and of one that never was.
func (g *Gateway) tooLate(w http.ResponseWriter, id string) {
	why := g.fleet.Late(id)
	if muster.CodeOf(why) == muster.NotFound {
		refuse(w, muster.Errorf(muster.NotFound, "Job not found"))
		return
	}
	e, known := g.book.how(id)
	if !known { // it was reported before this server started, or not at all
		switch {
		case errors.Is(why, fleet.ErrReported):
			e.status = completed
		case errors.Is(why, fleet.ErrTimedOut):
			e.status = failed
		case errors.Is(why, fleet.ErrCancelled):
			e.status = cancelled
		default:
			e.status = pending // another worker may have it
		}
	}
	dialect.WriteJSON(w, http.StatusOK, done(id, e))
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
