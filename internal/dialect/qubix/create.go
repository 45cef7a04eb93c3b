package qubix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/kind"
)

// jobRequest makes a job of what a client wants. It says what is wrong as QUBIX's backend does.
func (c *create) jobRequest() (*job, error) {
	if c.ComputeNeeded == nil || bounded(*c.ComputeNeeded, 1e9) <= 0 {
		return nil, muster.Errorf(muster.Invalid, "computeNeeded is missing: it must be a number over 0, of hours of one provider")
	}
	if strings.TrimSpace(c.ModelType) == "" && (c.JobType == nil || *c.JobType == "") {
		return nil, muster.Errorf(muster.Invalid, "modelType is missing: write such as mnist_training, custom_script or inference")
	}
	return &job{JobType: c.JobType, ModelType: c.ModelType, ComputeNeeded: c.ComputeNeeded, InputData: c.InputData, RequiredVRAM: c.RequiredVRAM, RequiredRAM: c.RequiredRAM}, nil
}

// spec is the job that does what a client wants.
func (g *Gateway) spec(ctx context.Context, c *create) (*muster.Spec, error) {
	j, err := c.jobRequest()
	if err != nil {
		return nil, err
	}
	t, err := stage(j, true)
	if err != nil {
		return nil, err
	}
	if len(g.env.Config.Kinds) > 0 && !slices.Contains(g.env.Config.Kinds, t.Kind) {
		return nil, muster.Errorf(muster.Forbidden, "this backend takes no jobs of kind %s: it takes %s", t.Kind, strings.Join(g.env.Config.Kinds, ", "))
	}
	if c.MaxPrice != nil {
		if t.Where.MaxPrice = bounded(*c.MaxPrice, maxPrice); t.Where.MaxPrice <= 0 {
			return nil, muster.Errorf(muster.Invalid, "maxPrice is %v: it must be over 0, per hour", *c.MaxPrice)
		}
	}
	if c.ProviderID != "" {
		w := g.fleet.Worker(c.ProviderID)
		if w == nil {
			return nil, muster.Errorf(muster.NotFound, "Provider %.80q not found", c.ProviderID)
		}
		t.Where.Workers = []string{w.Facts().Name}
	}
	labels := map[string]string{labelJob: strings.ToLower(rand.Text())}
	for name, value := range map[string]string{
		labelModel: c.ModelType, labelUser: c.QubicAddress, labelEscrow: c.EscrowTxHash, labelCompute: number(*c.ComputeNeeded),
	} {
		if value = clean(value, maxText); value != "" {
			labels[name] = value
		}
	}
	if c.JobType != nil {
		labels[labelJobType] = clean(*c.JobType, maxText)
	}
	if c.MaxPrice != nil {
		labels[labelPrice] = number(*c.MaxPrice)
	}
	project := g.env.Config.Project
	if who := dialect.CallerOf(ctx); project == "" {
		project = who.Project
	}
	return &muster.Spec{Name: clean(j.kind(), maxText), Project: project, Labels: labels, Tasks: []muster.TaskSpec{t}}, nil
}

func (g *Gateway) client(ctx context.Context) (*client.Client, error) {
	return g.env.Server.Client(dialect.CallerOf(ctx).Token)
}

// create serves POST /api/jobs/create.
func (g *Gateway) create(w http.ResponseWriter, r *http.Request) {
	var c create
	if err := dialect.Decode(r, maxReport, &c); err != nil {
		refuse(w, err)
		return
	}
	spec, err := g.spec(r.Context(), &c)
	if err != nil {
		refuse(w, err)
		return
	}
	api, err := g.client(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	made, err := api.Submit(r.Context(), spec, client.SubmitOptions{})
	if err != nil {
		refuse(w, inOwnWords(err))
		return
	}
	if made.Spec == nil {
		made.Spec = spec
	}
	if made.Labels == nil {
		made.Labels = spec.Labels
	}
	cost := g.guess(r.Context(), api, spec.Tasks[0].Kind, &c)
	row := g.row(made, nil)
	row.EstimatedCost, row.EstimatedDuration = cost.cost, &cost.seconds
	message := "Job created"
	if present(c.AdvancedConfig) {
		message += "; advancedConfig means nothing to Muster and is not used"
	}
	dialect.WriteJSON(w, http.StatusOK, map[string]any{
		"success": true, "job": row, "estimatedCost": cost.cost, "escrowTxHash": c.EscrowTxHash, "message": message,
	})
}

// places are the fields of a stage, and which of a QUBIX job they are made of.
var places = []struct{ ours, theirs string }{ //nolint:gochecknoglobals // a constant table
	{"input", "inputData"}, {"script.text", "inputData.script"}, {"script.url", "inputData.scriptUrl"},
	{"resources.gpus.memory", "requiredVRAM"}, {"resources.memory", "requiredRAM"}, {"where.max_price", "maxPrice"}, {"where.workers", "providerId"},
}

// inOwnWords names in an error about a spec the fields of the job that its client sent.
func inOwnWords(err error) error {
	e, ok := errors.AsType[*muster.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	said := &muster.Error{Code: e.Code, Err: err}
	for _, f := range e.Fields {
		f.Line, f.Column, f.Path = 0, 0, strings.TrimPrefix(f.Path, "tasks[0].")
		for _, p := range places {
			if rest, here := strings.CutPrefix(f.Path, p.ours); here && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				f.Path = p.theirs + rest
				break
			}
		}
		said.Fields = append(said.Fields, f)
	}
	said.Message = said.Fields[0].String()
	if more := len(said.Fields) - 1; more > 0 {
		said.Message += fmt.Sprintf("; and %d more", more)
	}
	return said
}

// estimate is what a job may cost: hours that its client named, at the lowest price of a worker that runs such jobs.
type estimate struct {
	cost      *float64 // nil if there is no such worker
	seconds   float64
	providers int
	price     float64
}

func (g *Gateway) guess(ctx context.Context, api *client.Client, name string, c *create) estimate {
	e := estimate{}
	if c.ComputeNeeded != nil {
		e.seconds = bounded(*c.ComputeNeeded, 1e9) * 3600
	}
	workers, err := api.Workers(ctx)
	if err != nil {
		return e
	}
	for i := range workers {
		w := &workers[i]
		if w.State != muster.WorkerActive || !slices.Contains(w.Kinds, name) || c.MaxPrice != nil && w.Price > *c.MaxPrice {
			continue
		}
		if e.providers++; e.providers == 1 || w.Price < e.price {
			e.price = w.Price
		}
	}
	if e.providers > 0 {
		cost := e.price * e.seconds / 3600
		e.cost = &cost
	}
	return e
}

// estimate serves POST /api/jobs/estimate.
func (g *Gateway) estimate(w http.ResponseWriter, r *http.Request) {
	g.consider(w, r, func(t *muster.TaskSpec, _ *create, e estimate) map[string]any {
		return map[string]any{
			"estimatedCost": e.cost, "estimatedDuration": e.seconds, "pricePerHour": e.price, "availableProviders": e.providers, "kind": t.Kind,
		}
	})
}

// analyze serves POST /api/jobs/analyze: what would become of a job.
func (g *Gateway) analyze(w http.ResponseWriter, r *http.Request) {
	g.consider(w, r, func(t *muster.TaskSpec, c *create, e estimate) map[string]any {
		return map[string]any{"analysis": map[string]any{
			"jobType": typeOf(t), "kind": t.Kind, "requiredVRAM": c.RequiredVRAM, "requiredRAM": c.RequiredRAM,
			"estimatedCost": e.cost, "estimatedDuration": e.seconds, "availableProviders": e.providers,
		}}
	})
}

func (g *Gateway) consider(w http.ResponseWriter, r *http.Request, say func(*muster.TaskSpec, *create, estimate) map[string]any) {
	var c create
	if err := dialect.Decode(r, maxReport, &c); err != nil {
		refuse(w, err)
		return
	}
	if c.ComputeNeeded == nil {
		one := 1.0
		c.ComputeNeeded = &one
	}
	if c.Script != "" && !present(c.InputData) {
		c.InputData = mustJSON(map[string]string{"script": c.Script})
		c.ModelType = or(c.ModelType, typeScript)
	}
	j, err := c.jobRequest()
	if err != nil {
		refuse(w, err)
		return
	}
	t, err := stage(j, true)
	if err != nil {
		refuse(w, err)
		return
	}
	api, err := g.client(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	answer := say(&t, &c, g.guess(r.Context(), api, t.Kind, &c))
	answer["success"] = true
	dialect.WriteJSON(w, http.StatusOK, answer)
}

// typeOf is the type of a stage, as QUBIX calls it.
func typeOf(t *muster.TaskSpec) string {
	switch t.Kind {
	case muster.KindScript:
		return typeScript
	case kind.Foreign:
		return text(object(t.Input), "type")
	}
	return t.Kind
}
