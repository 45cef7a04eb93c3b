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
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/kind"
)

// toJob checks a request and converts it to a job. Its errors are those of QUBIX's backend.
func (c *createRequest) toJob() (*job, error) {
	if c.ComputeNeeded == nil || lenient.Within(*c.ComputeNeeded, 1e9) <= 0 {
		return nil, muster.Errorf(muster.Invalid, "computeNeeded is missing: it must be a number over 0, of hours of one provider")
	}
	if strings.TrimSpace(c.ModelType) == "" && (c.JobType == nil || *c.JobType == "") {
		return nil, muster.Errorf(muster.Invalid, "modelType is missing: write such as mnist_training, custom_script or inference")
	}
	return &job{JobType: c.JobType, ModelType: c.ModelType, ComputeNeeded: c.ComputeNeeded, InputData: c.InputData, RequiredVRAM: c.RequiredVRAM, RequiredRAM: c.RequiredRAM}, nil
}

// jobSpec converts a request.
func (g *Gateway) jobSpec(ctx context.Context, c *createRequest) (*muster.Spec, error) {
	j, err := c.toJob()
	if err != nil {
		return nil, err
	}
	t, err := toStage(j, true)
	if err != nil {
		return nil, err
	}
	if len(g.Deps.Config.Kinds) > 0 && !slices.Contains(g.Deps.Config.Kinds, t.Kind) {
		return nil, muster.Errorf(muster.Forbidden, "this backend does not accept jobs of kind %s, only %s", t.Kind, strings.Join(g.Deps.Config.Kinds, ", "))
	}
	if c.MaxPrice != nil {
		if t.Where.MaxPrice = lenient.Within(*c.MaxPrice, maxPrice); t.Where.MaxPrice <= 0 {
			return nil, muster.Errorf(muster.Invalid, "maxPrice is %v: it must be over 0, per hour", *c.MaxPrice)
		}
	}
	if c.ProviderID != "" {
		w := g.Fleet.Worker(c.ProviderID)
		if w == nil {
			return nil, muster.Errorf(muster.NotFound, "Provider %.80q not found", c.ProviderID)
		}
		t.Where.Workers = []string{w.Facts().Name}
	}
	labels := map[string]string{labelJob: strings.ToLower(rand.Text())}
	for name, value := range map[string]string{
		labelModel: c.ModelType, labelUser: c.QubicAddress, labelEscrow: c.EscrowTxHash, labelCompute: formatNumber(*c.ComputeNeeded),
	} {
		if value = lenient.Text(value, maxText); value != "" {
			labels[name] = value
		}
	}
	if c.JobType != nil {
		labels[labelJobType] = lenient.Text(*c.JobType, maxText)
	}
	if c.MaxPrice != nil {
		labels[labelPrice] = formatNumber(*c.MaxPrice)
	}
	project := g.Deps.Config.Project
	if caller := dialect.CallerFromContext(ctx); project == "" {
		project = caller.Project
	}
	return &muster.Spec{Name: lenient.Text(j.kind(), maxText), Project: project, Labels: labels, Tasks: []muster.TaskSpec{t}}, nil
}

func (g *Gateway) client(ctx context.Context) (*client.Client, error) {
	return g.Deps.Server.Client(dialect.CallerFromContext(ctx).Token)
}

// create serves POST /api/jobs/create.
func (g *Gateway) create(w http.ResponseWriter, r *http.Request) error {
	var c createRequest
	if err := dialect.Decode(r, maxReportBody, &c); err != nil {
		return err
	}
	spec, err := g.jobSpec(r.Context(), &c)
	if err != nil {
		return err
	}
	api, err := g.client(r.Context())
	if err != nil {
		return err
	}
	submitted, err := api.Submit(r.Context(), spec, client.SubmitOptions{})
	if err != nil {
		return translateFields(err)
	}
	if submitted.Spec == nil {
		submitted.Spec = spec
	}
	if submitted.Labels == nil {
		submitted.Labels = spec.Labels
	}
	cost := g.estimateCost(r.Context(), api, spec.Tasks[0].Kind, &c)
	row := g.toWireJob(submitted, nil)
	row.EstimatedCost, row.EstimatedDuration = cost.cost, &cost.seconds
	message := "Job created"
	if lenient.HasValue(c.AdvancedConfig) {
		message += "; Muster ignores advancedConfig"
	}
	return dialect.Reply(w, map[string]any{
		"success": true, "job": row, "estimatedCost": cost.cost, "escrowTxHash": c.EscrowTxHash, "message": message,
	})
}

// specFields maps fields of a stage to those of a QUBIX job.
var specFields = []struct{ spec, wire string }{ //nolint:gochecknoglobals // a constant table
	{"input", "inputData"},
	{"script.text", "inputData.script"},
	{"script.url", "inputData.scriptUrl"},
	{"resources.gpus.memory", "requiredVRAM"},
	{"resources.memory", "requiredRAM"},
	{"where.max_price", "maxPrice"},
	{"where.workers", "providerId"},
}

// translateFields replaces the field names in an error about a spec by those of a QUBIX job.
func translateFields(err error) error {
	e, ok := errors.AsType[*muster.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	translated := &muster.Error{Code: e.Code, Err: err}
	for _, f := range e.Fields {
		f.Line, f.Column, f.Path = 0, 0, strings.TrimPrefix(f.Path, "tasks[0].")
		for _, p := range specFields {
			if rest, matched := strings.CutPrefix(f.Path, p.spec); matched && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				f.Path = p.wire + rest
				break
			}
		}
		translated.Fields = append(translated.Fields, f)
	}
	translated.Message = translated.Fields[0].String()
	if more := len(translated.Fields) - 1; more > 0 {
		translated.Message += fmt.Sprintf("; and %d more", more)
	}
	return translated
}

// costEstimate estimates the cost of a job: the client's hours at the lowest price of a worker that runs such jobs.
type costEstimate struct {
	cost      *float64 // nil if there is no such worker
	seconds   float64
	providers int
	price     float64
}

func (g *Gateway) estimateCost(ctx context.Context, api *client.Client, kind string, c *createRequest) costEstimate {
	e := costEstimate{}
	if c.ComputeNeeded != nil {
		e.seconds = lenient.Within(*c.ComputeNeeded, 1e9) * 3600
	}
	workers, err := api.Workers(ctx)
	if err != nil {
		return e
	}
	for i := range workers {
		w := &workers[i]
		if w.State != muster.WorkerActive || !slices.Contains(w.Kinds, kind) || c.MaxPrice != nil && w.Price > *c.MaxPrice {
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
func (g *Gateway) estimate(w http.ResponseWriter, r *http.Request) error {
	return g.respondEstimate(w, r, func(t *muster.TaskSpec, _ *createRequest, e costEstimate) map[string]any {
		return map[string]any{
			"estimatedCost": e.cost, "estimatedDuration": e.seconds, "pricePerHour": e.price, "availableProviders": e.providers, "kind": t.Kind,
		}
	})
}

// analyze serves POST /api/jobs/analyze: how a job would run.
func (g *Gateway) analyze(w http.ResponseWriter, r *http.Request) error {
	return g.respondEstimate(w, r, func(t *muster.TaskSpec, c *createRequest, e costEstimate) map[string]any {
		return map[string]any{"analysis": map[string]any{
			"jobType": wireType(t), "kind": t.Kind, "requiredVRAM": c.RequiredVRAM, "requiredRAM": c.RequiredRAM,
			"estimatedCost": e.cost, "estimatedDuration": e.seconds, "availableProviders": e.providers,
		}}
	})
}

func (g *Gateway) respondEstimate(w http.ResponseWriter, r *http.Request, build func(*muster.TaskSpec, *createRequest, costEstimate) map[string]any) error {
	var c createRequest
	if err := dialect.Decode(r, maxReportBody, &c); err != nil {
		return err
	}
	if c.ComputeNeeded == nil {
		one := 1.0
		c.ComputeNeeded = &one
	}
	if c.Script != "" && !lenient.HasValue(c.InputData) {
		c.InputData = lenient.Marshal(map[string]string{"script": c.Script})
		c.ModelType = orDefault(c.ModelType, typeScript)
	}
	j, err := c.toJob()
	if err != nil {
		return err
	}
	t, err := toStage(j, true)
	if err != nil {
		return err
	}
	api, err := g.client(r.Context())
	if err != nil {
		return err
	}
	answer := build(&t, &c, g.estimateCost(r.Context(), api, t.Kind, &c))
	answer["success"] = true
	return dialect.Reply(w, answer)
}

// wireType returns QUBIX's type of a stage.
func wireType(t *muster.TaskSpec) string {
	switch t.Kind {
	case muster.KindScript:
		return typeScript
	case kind.Foreign:
		return lenient.String(lenient.Object(t.Input)["type"])
	}
	return t.Kind
}
