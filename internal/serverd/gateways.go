package serverd

import (
	"context"
	"crypto/tls"
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
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/dialect/mloc/mlochost"
	"github.com/muster-dev/muster/internal/dialect/qubix"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/store"
)

// Dialects lists the supported systems, whose workers and clients a server can serve.
func Dialects() []dialect.System {
	return []dialect.System{qubix.System(), dtf.System(), trainforge.System(), mlochost.System()}
}

// gateway is an open gateway.
type gateway struct {
	dialect.Gateway

	config      dialect.Config
	title       string
	keyRequired bool // requests need a key

	mu      sync.Mutex
	started bool
	err     error // result of Run
}

// close releases the resources of a gateway that was never run, by Run with a cancelled context.
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
	_ = g.Run(cancelled) // another error is already reported
}

// openGateways opens the ports of the configured gateways.
func (s *Server) openGateways(ctx context.Context) error {
	systems := s.cfg.Systems
	if systems == nil {
		systems = Dialects()
	}
	for _, cfg := range s.cfg.Dialects {
		i := slices.IndexFunc(systems, func(d dialect.System) bool { return d.Name == cfg.Name })
		if i < 0 {
			return muster.Errorf(muster.Invalid, "unknown dialect %q", cfg.Name)
		}
		if slices.ContainsFunc(s.gateways, func(g *gateway) bool { return g.config.Name == cfg.Name }) {
			return muster.Errorf(muster.Invalid, "--dialect %s is there twice", cfg.Name)
		}
		project := ""
		if list := cfg.Projects(); len(list) == 1 {
			project = list[0]
		}
		var encryption *tls.Config
		switch {
		case cfg.TLS && s.certs == nil:
			return muster.Errorf(muster.Invalid, "--dialect %s: tls=on needs a certificate: add --tls, --tls-cert or --acme", cfg.Name)
		case cfg.TLS:
			encryption = s.certs.TLSConfig()
		}
		dir := filepath.Join(s.cfg.Data, "dialects", cfg.Name)
		local, err := s.connectLocal(ctx, dir, gatewayKeyPrefix+cfg.Name, project)
		if err != nil {
			return err
		}
		g, err := systems[i].New(ctx, dialect.Deps{Config: cfg, Server: local, Dir: dir, Version: s.cfg.Version, Hosts: s.hosts(), TLS: encryption, Log: s.log.With(slog.String("dialect", cfg.Name)),
			Denied: func(address string, status int) { s.auditGateway(cfg.Name, address, status) },
		})
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

// runGateways serves all gateways until ctx ends and each of them has stopped. If one fails, the others and the server
// continue: the state of its workers is safe, and /readyz shows it.
func (s *Server) runGateways(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, g := range s.gateways {
		g.mu.Lock()
		g.started = true
		g.mu.Unlock()
		s.log.Info("serving gateway", slog.String("dialect", g.config.Name), slog.String("url", g.URL()), slog.Bool("key_required", g.keyRequired))
		wg.Go(func() {
			err := g.Run(ctx)
			if ctx.Err() != nil {
				if err != nil {
					s.log.Warn("gateway did not stop cleanly", slog.String("dialect", g.config.Name), slog.Any("error", err))
				}
				return
			}
			if err == nil {
				err = errors.New("the gateway stopped")
			}
			s.log.Error("gateway failed; restart the server to start it again", slog.String("dialect", g.config.Name), slog.Any("error", err))
			g.mu.Lock()
			g.err = err
			g.mu.Unlock()
		})
	}
	wg.Wait()
	<-ctx.Done()
	return nil
}

// maxConnections returns the maximum number of connections of the server's own port for a limit of file descriptors, after those of the gateways.
func maxConnections(descriptors uint64, gateways int) int {
	gatewayConns := uint64(gateways * dialect.MaxConnections(descriptors))
	return connlimit.ConnsFor(descriptors - min(descriptors, gatewayConns*3/2))
}

// gatewayStatus returns the state of the gateways.
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

// Gateway describes a gateway.
type Gateway struct {
	Name        string
	Title       string
	URL         string
	KeyRequired bool // for all requests except those without information
	Reachable   bool // from other machines, by its configured address
}

// Gateways lists the gateways in the order of the configuration.
func (s *Server) Gateways() []Gateway {
	var list []Gateway
	for _, g := range s.gateways {
		list = append(list, Gateway{Name: g.config.Name, Title: g.title, URL: g.URL(), KeyRequired: g.keyRequired, Reachable: !IsLoopback(g.config.Address)})
	}
	return list
}

// IsLoopback reports whether an address is only reachable from this machine.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// GatewayURL returns the URL of the gateway with this name on this machine, "" if there is none.
func (s *Server) GatewayURL(name string) string {
	for _, g := range s.gateways {
		if g.config.Name == name {
			return g.URL()
		}
	}
	return ""
}

// Local returns a connection to the server within this process, with its own keys. It waits until the server is ready. Use it
// while Run runs.
func (s *Server) Local(ctx context.Context) (dialect.Server, error) {
	if err := s.AwaitReady(ctx); err != nil {
		return dialect.Server{}, err
	}
	return s.connectLocal(ctx, filepath.Join(s.cfg.Data, "local"), "this process", "")
}

// localKeys are the tokens of a component of this process, stored in its folder.
type localKeys struct {
	Join      string `json:"join"`
	Submitter string `json:"submitter"`
}

const localKeysFile = "keys.json"

// connectLocal returns a connection to this server for a component of this process, with a join token and a submitter key for the project. They are
// stored in dir, and generated at the first start, after a revocation and when the project changes.
func (s *Server) connectLocal(ctx context.Context, dir, name, project string) (dialect.Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dialect.Server{}, muster.Errorf(muster.Invalid, "cannot create the folder %s: %w", dir, err)
	}
	path := filepath.Join(dir, localKeysFile)
	var stored localKeys
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return dialect.Server{}, muster.Errorf(muster.Internal, "cannot read %s: %w", path, err)
	case json.Unmarshal(b, &stored) != nil:
		stored = localKeys{} // damaged: generate new ones
	}
	keys := stored
	if keys.Join, err = localKey(ctx, s.ownKeys(), stored.Join, auth.Join, name, ""); err != nil {
		return dialect.Server{}, err
	}
	if keys.Submitter, err = localKey(ctx, s.ownKeys(), stored.Submitter, auth.Submitter, name, project); err != nil {
		return dialect.Server{}, err
	}
	if keys != stored {
		if b, err = json.Marshal(keys); err != nil {
			return dialect.Server{}, err
		}
		if err := atomicfile.Write(path, append(b, '\n'), 0o600); err != nil {
			return dialect.Server{}, muster.Errorf(muster.Internal, "cannot write %s: %w", path, err)
		}
	}
	return dialect.Connect(s.localPipe, keys.Join, keys.Submitter, s.limiter), nil
}

// localKey returns token if it belongs to a key with this role and project. Otherwise it deletes the old key and returns a new token.
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
