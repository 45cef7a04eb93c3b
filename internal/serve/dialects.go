package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/store"
)

// Dialects lists the systems whose workers and clients a server can speak to.
func Dialects() []dialect.System {
	return []dialect.System{}
}

// gateway is one that was opened.
type gateway struct {
	dialect.Gateway

	name string
}

// openDialects opens the ports of the gateways that were asked for.
func (s *Server) openDialects(ctx context.Context) error {
	for i := range s.cfg.Dialects {
		if err := s.openDialect(ctx, &s.cfg.Dialects[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) openDialect(ctx context.Context, cfg *dialect.Config) error {
	for _, system := range Dialects() {
		if system.Name != cfg.Name {
			continue
		}
		dir := filepath.Join(s.cfg.Data, "dialects", cfg.Name)
		local, err := s.connect(ctx, dir, "dialect "+cfg.Name, cfg.Project)
		if err != nil {
			return err
		}
		g, err := system.New(ctx, dialect.Env{Config: *cfg, Server: local, Dir: dir, Version: s.cfg.Version, Log: s.log.With(slog.String("dialect", cfg.Name))})
		if err != nil {
			return err
		}
		s.gateways = append(s.gateways, gateway{g, cfg.Name})
		return nil
	}
	return muster.Errorf(muster.Invalid, "there is no dialect %q", cfg.Name)
}

// runDialects serves all gateways until ctx ends. One that cannot serve ends the server.
func (s *Server) runDialects(ctx context.Context) error {
	select {
	case <-s.engine.Ready():
	case <-ctx.Done():
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, g := range s.gateways {
		s.log.Info("serving a dialect", slog.String("dialect", g.name), slog.String("url", g.URL()))
		group.Go(func() error {
			if err := g.Run(ctx); err != nil && ctx.Err() == nil {
				return muster.Errorf(muster.Internal, "dialect %s: %w", g.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Dialects tells where gateways are and whether they can work now.
func (s *Server) dialects() []api.DialectHealth {
	list := make([]api.DialectHealth, len(s.gateways))
	for i, g := range s.gateways {
		list[i] = api.DialectHealth{Name: g.name, URL: g.URL()}
		if err := g.Ready(); err != nil {
			list[i].Problem = err.Error()
		}
	}
	return list
}

// DialectURLs maps the names of the gateways to where they are reached from this machine.
func (s *Server) DialectURLs() map[string]string {
	urls := map[string]string{}
	for _, g := range s.gateways {
		urls[g.name] = g.URL()
	}
	return urls
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
