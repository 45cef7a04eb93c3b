package fleet

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/internal/dialect"
)

// Gateway is what the gateways of all systems share: the port and the fleet. A gateway embeds it.
type Gateway struct {
	Deps     dialect.Deps
	Listener *dialect.Listener
	Fleet    *Fleet
}

// OpenGateway opens the port and the fleet. It sets the fields of cfg that follow from deps.
func OpenGateway(ctx context.Context, deps dialect.Deps, cfg Config) (Gateway, error) {
	cfg.Server, cfg.Dir, cfg.Log = deps.Server, filepath.Join(deps.Dir, "fleet"), deps.Log
	cfg.Projects, cfg.Kinds, cfg.Price = deps.Config.Projects(), deps.Config.Kinds, deps.Config.Price
	port := deps
	port.Config.KeyRequired = port.Config.KeyRequired && !cfg.OwnKeys
	l, err := dialect.Listen(ctx, port)
	if err != nil {
		return Gateway{}, err
	}
	f, err := Open(cfg)
	if err != nil {
		return Gateway{}, errors.Join(err, l.Close())
	}
	return Gateway{Deps: deps, Listener: l, Fleet: f}, nil
}

// Serve runs the fleet, serves h and calls more until ctx ends.
func (g *Gateway) Serve(ctx context.Context, h http.Handler, more ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range append(more, g.Fleet.Run, func(ctx context.Context) error { return g.Listener.Serve(ctx, h) }) {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// URL implements dialect.Gateway.
func (g *Gateway) URL() string { return g.Listener.URL() }

// Ready implements dialect.Gateway for a gateway that depends on nothing else.
func (g *Gateway) Ready() error { return nil }

// Databases implements dialect.DatabaseOwner.
func (g *Gateway) Databases() []*bbolt.DB { return []*bbolt.DB{g.Fleet.store.db} }

// Close closes a gateway without Serve.
func (g *Gateway) Close() error { return errors.Join(g.Listener.Close(), g.Fleet.Close()) }
