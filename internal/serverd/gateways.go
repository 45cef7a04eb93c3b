package serverd

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/dialect/mloc/mlochost"
	"github.com/muster-dev/muster/internal/dialect/qubix"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/store"
)

// Dialects lists the systems whose workers and clients a server can speak to.
func Dialects() []dialect.System {
	return []dialect.System{qubix.System(), dtf.System(), trainforge.System(), mlochost.System()}
}

// gateway is one that was opened.
type gateway struct {
	dialect.Gateway

	config      dialect.Config
	title       string
	keyRequired bool // a key is needed

	mu      sync.Mutex
	started bool
	err     error // with which Run ended
}

// close gives back what a gateway that was never run holds: Run with a context that has ended does so.
func (g *gateway) close() {
	g.mu.Lock()
	started := g.started
	g.started = true
	g.mu.Unlock()
	if started {
		return
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	_ = g.Run(cancelled) // why the server does not start is told already
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
		if slices.ContainsFunc(s.gateways, func(g *gateway) bool { return g.config.Name == cfg.Name }) {
			return muster.Errorf(muster.Invalid, "--dialect %s is there twice", cfg.Name)
		}
		project := ""
		if list := cfg.Projects(); len(list) == 1 {
			project = list[0]
		}
		dir := filepath.Join(s.cfg.Data, "dialects", cfg.Name)
		local, err := s.connectLocal(ctx, dir, gatewayKeyPrefix+cfg.Name, project)
		if err != nil {
			return err
		}
		g, err := systems[i].New(ctx, dialect.Deps{Config: cfg, Server: local, Dir: dir, Version: s.cfg.Version, Log: s.log.With(slog.String("dialect", cfg.Name))})
		if option := "--dialect " + cfg.Name; err != nil && !strings.HasPrefix(err.Error(), option) {
			return muster.Errorf(muster.CodeOf(err), "%s: %s", option, strings.TrimPrefix(err.Error(), cfg.Name+": "))
		}
		if err != nil {
			return err
		}
		s.gateways = append(s.gateways, &gateway{Gateway: g, config: cfg, title: systems[i].Title, keyRequired: cfg.KeyRequired || systems[i].RequiresKey})
	}
	return nil
}

// runGateways serves all gateways until ctx ends and each of them has stopped. One that fails does not end the others, nor the
// server: what its workers hold is safe, and /readyz shows it.
func (s *Server) runGateways(ctx context.Context) error {
	select {
	case <-s.engine.Ready():
	case <-ctx.Done():
		return nil // close closes them
	}
	var wg sync.WaitGroup
	for _, g := range s.gateways {
		g.mu.Lock()
		g.started = true
		g.mu.Unlock()
		s.log.Info("serving another system", slog.String("dialect", g.config.Name), slog.String("url", g.URL()), slog.Bool("key_required", g.keyRequired))
		wg.Go(func() {
			err := g.Run(ctx)
			if ctx.Err() != nil {
				if err != nil {
					s.log.Warn("a gateway did not stop in order", slog.String("dialect", g.config.Name), slog.Any("error", err))
				}
				return
			}
			if err == nil {
				err = errors.New("it ended")
			}
			s.log.Error("a gateway failed; start the server again to have it back", slog.String("dialect", g.config.Name), slog.Any("error", err))
			g.mu.Lock()
			g.err = err
			g.mu.Unlock()
		})
	}
	wg.Wait()
	<-ctx.Done()
	return nil
}

// maxConnections returns how many the server's own port has at most where a process may open so many descriptors: what the gateways' ports leave.
func maxConnections(descriptors uint64, gateways int) int {
	gatewayConns := uint64(gateways * dialect.MaxConnections(descriptors))
	return connlimit.ConnsFor(descriptors - min(descriptors, gatewayConns*3/2))
}

// gatewayStatus says how the gateways are.
func (s *Server) gatewayStatus() []wire.Gateway {
	var list []wire.Gateway
	for _, g := range s.gateways {
		g.mu.Lock()
		err := g.err
		g.mu.Unlock()
		if err == nil {
			err = g.Ready()
		}
		status := wire.Gateway{Name: g.config.Name, Status: "ok"}
		if err != nil {
			status.Status = err.Error()
		}
		list = append(list, status)
	}
	return list
}

// Gateway is one as people see it.
type Gateway struct {
	Name        string
	Title       string
	URL         string
	KeyRequired bool // of each request but those that tell nothing
	Reachable   bool // from other machines, by the address that it was given
}

// Gateways lists the gateways in the order of the configuration.
func (s *Server) Gateways() []Gateway {
	var list []Gateway
	for _, g := range s.gateways {
		list = append(list, Gateway{Name: g.config.Name, Title: g.title, URL: g.URL(), KeyRequired: g.keyRequired, Reachable: !isLoopback(g.config.Address)})
	}
	return list
}

// isLoopback reports whether an address is of this machine alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// GatewayURL is where the gateway with this name is reached from this machine, "" if there is none.
func (s *Server) GatewayURL(name string) string {
	for _, g := range s.gateways {
		if g.config.Name == name {
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
	return s.connectLocal(ctx, filepath.Join(s.cfg.Data, "local"), "this process", "")
}

// localKeys are the tokens of a part of this process, kept in its folder.
type localKeys struct {
	Join      string `json:"join"`
	Submitter string `json:"submitter"`
}

const localKeysFile = "keys.json"

// connectLocal returns the way to this server for a part of this process, with a join token and a submitter key for the project. They are kept in
// dir; at the first start they are made, and again where an administrator revoked them or the project is another one.
func (s *Server) connectLocal(ctx context.Context, dir, name, project string) (dialect.Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dialect.Server{}, muster.Errorf(muster.Invalid, "the folder %s cannot be made: %w", dir, err)
	}
	path := filepath.Join(dir, localKeysFile)
	var stored localKeys
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return dialect.Server{}, muster.Errorf(muster.Internal, "%s cannot be read: %w", path, err)
	case json.Unmarshal(b, &stored) != nil:
		stored = localKeys{} // damaged: new ones are as good
	}
	keys := stored
	if keys.Join, err = localKey(ctx, s.store, stored.Join, auth.Join, name, ""); err != nil {
		return dialect.Server{}, err
	}
	if keys.Submitter, err = localKey(ctx, s.store, stored.Submitter, auth.Submitter, name, project); err != nil {
		return dialect.Server{}, err
	}
	if keys != stored {
		if b, err = json.Marshal(keys); err != nil {
			return dialect.Server{}, err
		}
		if err := writeSecret(path, b); err != nil {
			return dialect.Server{}, muster.Errorf(muster.Internal, "%s cannot be written: %w", path, err)
		}
	}
	return dialect.Connect(s.localPipe, keys.Join, keys.Submitter), nil
}

// localKey returns token if it is that of a key with this role and project, else a new one; the old one is deleted.
func localKey(ctx context.Context, keys store.KeyStore, token string, role auth.Role, name, project string) (string, error) {
	if token != "" {
		k, err := keys.KeyByHash(ctx, auth.Hash(token))
		switch {
		case err == nil && k.Role == string(role) && k.Project == project:
			return token, nil
		case err == nil:
			if err := keys.DeleteKey(ctx, k.ID); err != nil {
				return "", err
			}
		case muster.CodeOf(err) != muster.NotFound:
			return "", err
		}
	}
	token = newToken(role)
	return token, putKey(ctx, keys, nil, token, store.Key{Name: name, Role: string(role), Project: project})
}

// writeSecret writes a file that only its owner reads, so that a crash leaves the old one or the new one.
func writeSecret(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone if all went well
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
