package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/qubix"
	"github.com/muster-dev/muster/internal/store"
)

// Dialects lists the systems whose workers and clients a server can speak to.
func Dialects() []dialect.System {
	return []dialect.System{qubix.System()}
}

// gateway is one that was opened.
type gateway struct {
	dialect.Gateway

	name string
	ran  bool // its Run closes it
}

// close gives back what a gateway that was never run holds.
func (g *gateway) close() {
	if c, ok := g.Gateway.(interface{ Close() error }); ok && !g.ran {
		_ = c.Close() // nothing was served
	}
}

// openGateways opens the ports of the gateways that were asked for.
func (s *Server) openGateways(ctx context.Context) error {
	systems := s.cfg.Systems
	if systems == nil {
		systems = Dialects()
	}
	for _, cfg := range s.cfg.Dialects {
		i := slices.IndexFunc(systems, func(d dialect.System) bool { return d.Name == cfg.Name })
		if i < 0 {
			return muster.Errorf(muster.Invalid, "there is no dialect %q", cfg.Name)
		}
		dir := filepath.Join(s.cfg.Data, "dialects", cfg.Name)
		local, err := s.connect(ctx, dir, "dialect "+cfg.Name, cfg.Project)
		if err != nil {
			return err
		}
		g, err := systems[i].New(ctx, dialect.Env{Config: cfg, Server: local, Dir: dir, Version: s.cfg.Version, Log: s.log.With(slog.String("dialect", cfg.Name))})
		if err != nil {
			return err
		}
		s.gateways = append(s.gateways, &gateway{Gateway: g, name: cfg.Name})
	}
	return nil
}

// runGateways serves all gateways until ctx ends. One that cannot serve ends the server.
func (s *Server) runGateways(ctx context.Context) error {
	select {
	case <-s.engine.Ready():
	case <-ctx.Done():
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return nil
	})
	for _, g := range s.gateways {
		s.log.Info("serving a dialect", slog.String("dialect", g.name), slog.String("url", g.URL()))
		g.ran = true
		group.Go(func() error {
			if err := g.Run(ctx); err != nil && ctx.Err() == nil {
				return muster.Errorf(muster.Internal, "dialect %s: %w", g.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// ready says how the gateways are.
func (s *Server) ready() []wire.Gateway {
	list := make([]wire.Gateway, len(s.gateways))
	for i, g := range s.gateways {
		list[i] = wire.Gateway{Name: g.name, Status: "ok"}
		if err := g.Ready(); err != nil {
			list[i].Status = err.Error()
		}
	}
	return list
}

// GatewayURL is where a gateway is reached from this machine.
func (s *Server) GatewayURL(name string) string {
	for _, g := range s.gateways {
		if g.name == name {
			return g.URL()
		}
	}
	return ""
}

// Local returns the way to the server inside this process, with keys that no one else has. It waits until the server is ready, and
// is for use while Run runs.
func (s *Server) Local(ctx context.Context) (dialect.Server, error) {
	select {
	case <-s.engine.Ready():
	case <-ctx.Done():
		return dialect.Server{}, ctx.Err()
	}
	return s.connect(ctx, filepath.Join(s.cfg.Data, "local"), "this process", "")
}

// localKeys are the keys of a part of this process, kept in its folder.
type localKeys struct {
	Join      string `json:"join"`
	Submitter string `json:"submitter"`
}

const localKeysFile = "keys.json"

// connect returns the way to this server for a part of this process, whose keys are in dir and named name.
func (s *Server) connect(ctx context.Context, dir, name, project string) (dialect.Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dialect.Server{}, muster.Errorf(muster.Invalid, "the folder %s cannot be made: %w", dir, err)
	}
	path := filepath.Join(dir, localKeysFile)
	var keys localKeys
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		keys = localKeys{Join: newToken(auth.Join), Submitter: newToken(auth.Submitter)}
		if data, err = json.Marshal(keys); err != nil {
			return dialect.Server{}, err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return dialect.Server{}, muster.Errorf(muster.Internal, "%s cannot be written: %w", path, err)
		}
	case err != nil:
		return dialect.Server{}, muster.Errorf(muster.Internal, "%s cannot be read: %w", path, err)
	case json.Unmarshal(data, &keys) != nil || auth.CheckToken(keys.Join) != nil || auth.CheckToken(keys.Submitter) != nil:
		return dialect.Server{}, muster.Errorf(muster.Invalid, "%s is damaged: delete it, and new keys are made", path)
	}
	have, err := s.store.ListKeys(ctx)
	if err != nil {
		return dialect.Server{}, err
	}
	for token, k := range map[string]store.Key{
		keys.Join:      {Role: string(auth.Join)},
		keys.Submitter: {Role: string(auth.Submitter), Project: project},
	} {
		k.Name = name
		if err := putKey(ctx, s.store, have, token, k); err != nil {
			return dialect.Server{}, err
		}
	}
	return dialect.Connect(s.pipe, keys.Join, keys.Submitter), nil
}
