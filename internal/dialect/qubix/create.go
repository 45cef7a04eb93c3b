package qubix

import (
	"cmp"
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

// stage checks a request and converts it. Its errors are those of QUBIX's backend.
func (c *createRequest) stage() (t muster.TaskSpec, name string, err error) {
	if c.ComputeNeeded == nil || lenient.Within(*c.ComputeNeeded, 1e9) <= 0 {
		return t, "", muster.Errorf(muster.Invalid, "computeNeeded is missing: it must be a number over 0, of hours of one provider")
	}
	if strings.TrimSpace(c.ModelType) == "" && (c.JobType == nil || *c.JobType == "") {
		return t, "", muster.Errorf(muster.Invalid, "modelType is missing: write such as mnist_training, custom_script or inference")
	}
	j := &job{JobType: c.JobType, ModelType: c.ModelType, ComputeNeeded: c.ComputeNeeded, InputData: c.InputData, RequiredVRAM: c.RequiredVRAM, RequiredRAM: c.RequiredRAM}
	t, err = toStage(j, true)
	return t, j.kind(), err
}

func (g *Gateway) jobSpec(ctx context.Context, c *createRequest) (*muster.Spec, error) {
	t, name, err := c.stage()
	if err != nil {
		return nil, err
	}
	if len(g.Deps.Config.Kinds) > 0 && !slices.Contains(g.Deps.Config.Kinds, t.Kind) {
		return nil, muster.Errorf(muster.Forbidden, "this backend does not accept jobs of kind %s, only %s", t.Kind, strings.Join(g.Deps.Config.Kinds, ", "))
	}
	price := ""
	if c.MaxPrice != nil {
		if t.Where.MaxPrice = lenient.Within(*c.MaxPrice, maxPrice); t.Where.MaxPrice <= 0 {
			return nil, muster.Errorf(muster.Invalid, "maxPrice is %v: it must be over 0, per hour", *c.MaxPrice)
		}
		price = formatNumber(*c.MaxPrice)
	}
	if c.ProviderID != "" {
		w := g.Fleet.Worker(c.ProviderID)
		if w == nil {
			return nil, muster.Errorf(muster.NotFound, "Provider %.80q not found", c.ProviderID)
		}
		t.Where.Workers = []string{w.Facts().Name}
	}
	labels := lenient.Labels(map[string]string{
		labelJob: strings.ToLower(rand.Text()), labelJobType: *cmp.Or(c.JobType, new("")), labelModel: c.ModelType, labelUser: c.QubicAddress,
		labelEscrow: c.EscrowTxHash, labelCompute: formatNumber(*c.ComputeNeeded), labelPrice: price,
	}, maxText)
	project := cmp.Or(g.Deps.Config.Project, dialect.CallerFromContext(ctx).Project)
	return &muster.Spec{Name: lenient.Text(name, maxText), Project: project, Labels: labels, Tasks: []muster.TaskSpec{t}}, nil
}

func (g *Gateway) client(ctx context.Context) (*client.Client, error) {
	return g.Deps.Server.Client(dialect.CallerFromContext(ctx).Token)
}

func (g *Gateway) create(w http.ResponseWriter, r *http.Request, c *createRequest) error {
	spec, err := g.jobSpec(r.Context(), c)
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
	submitted.Spec, submitted.Labels = cmp.Or(submitted.Spec, spec), spec.Labels
	cost := g.estimateCost(r.Context(), api, spec.Tasks[0].Kind, c)
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
		e.cost = new(e.price * e.seconds / 3600)
	}
	return e
}

func showEstimate(t *muster.TaskSpec, _ *createRequest, e costEstimate) map[string]any {
	return map[string]any{
		"estimatedCost": e.cost, "estimatedDuration": e.seconds, "pricePerHour": e.price, "availableProviders": e.providers, "kind": t.Kind,
	}
}

// showAnalysis returns how a job would run.
func showAnalysis(t *muster.TaskSpec, c *createRequest, e costEstimate) map[string]any {
	return map[string]any{"analysis": map[string]any{
		"jobType": wireType(t), "kind": t.Kind, "requiredVRAM": c.RequiredVRAM, "requiredRAM": c.RequiredRAM,
		"estimatedCost": e.cost, "estimatedDuration": e.seconds, "availableProviders": e.providers,
	}}
}

// estimates returns a handler that answers with what show returns for a job that is not created.
func (g *Gateway) estimates(show func(*muster.TaskSpec, *createRequest, costEstimate) map[string]any) dialect.Handler {
	return dialect.WithBody(maxReportBody, func(w http.ResponseWriter, r *http.Request, c *createRequest) error {
		c.ComputeNeeded = cmp.Or(c.ComputeNeeded, new(1.0))
		if c.Script != "" && !lenient.HasValue(c.InputData) {
			c.InputData = lenient.MustMarshal(map[string]string{"script": c.Script})
			c.ModelType = orDefault(c.ModelType, typeScript)
		}
		t, _, err := c.stage()
		if err != nil {
			return err
		}
		api, err := g.client(r.Context())
		if err != nil {
			return err
		}
		answer := show(&t, c, g.estimateCost(r.Context(), api, t.Kind, c))
		answer["success"] = true
		return dialect.Reply(w, answer)
	})
}

func wireType(t *muster.TaskSpec) string {
	switch t.Kind {
	case muster.KindScript:
		return typeScript
	case kind.Foreign:
		return lenient.String(lenient.Object(t.Input)["type"])
	}
	return t.Kind
}
