package bridge

import (
	"cmp"
	"context"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/dialect/qubix"
	"github.com/muster-dev/muster/internal/workerd"
)

// qubixOptions are the options of QUBIX's workers, with the documented names and defaults.
type qubixOptions struct {
	qubix.BridgeConfig

	dropIn bool
	claims *qubix.Claims
}

func newQubix() Adapter {
	return &qubixOptions{
		BridgeConfig: qubix.BridgeConfig{Backend: qubix.DefaultBackend, Price: qubix.DefaultPrice, Location: qubix.DefaultLocation}, claims: qubix.NewClaims(),
	}
}

func (o *qubixOptions) Flags(dropIn bool) []cli.Flag {
	o.dropIn = dropIn
	const group = "QUBIX"
	return []cli.Flag{
		app.Option{Name: "backend", Value: "url", Usage: "QUBIX backend", Group: group}.StringVar(&o.Backend),
		app.Option{Name: "price", Usage: "Price per hour, in QUBIC", Group: group}.FloatVar(&o.Price, 1e6),
		app.Option{Name: "name", Usage: "Name of the worker (default: Provider- and the first 8 characters of its id)", Group: group}.StringVar(&o.Name),
		app.Option{Name: "location", Usage: "Location of the worker", Group: group}.StringVar(&o.Location),
		app.Option{Name: "address", Usage: "QUBIC address of the user, 60 letters, for backends that require one", Group: group}.StringVar(&o.Address),
	}
}

func (o *qubixOptions) Notes() []string { return nil }

func (o *qubixOptions) ConfigureWorker(w *workerd.Config) error {
	w.Name, w.Price = o.Name, o.Price
	return nil
}

func (o *qubixOptions) Run(ctx context.Context, deps Deps) error {
	cfg := o.BridgeConfig
	cfg.UseMachineID, cfg.Version = o.dropIn, app.CurrentBuild().Version
	if deps.Worker != "" { // one of several
		cfg.Name, cfg.Claims = cmp.Or(cfg.Name, deps.Worker), o.claims
	}
	cfg.Core = deps.coreConfig()
	b, err := qubix.NewBridge(cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx, deps.AcceptCtx)
}
