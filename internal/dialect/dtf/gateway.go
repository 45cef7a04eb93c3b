// Package dtf implements the protocol of the IPFS Accelerate Distributed Testing Framework (DTF): the gateway is a coordinator for
// DTF's workers and clients, and the bridge is a worker of DTF's coordinators.
package dtf

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/link"
)

// minGrace is the minimum of the option grace: a worker reconnects for every heartbeat, up to 15 seconds later.
const minGrace = 30 * time.Second

// System describes DTF to the server.
func System() dialect.System {
	return dialect.System{
		Name: "dtf", Title: "DTF", Address: ":8080", RequiresKey: true,
		Options: []dialect.Option{
			{Name: "security", Usage: "path of a security_config.json whose API keys and JWT secret are also valid"},
			{Name: "secret-file", Usage: "path of a file with the secret for signatures: verify messages of workers and sign answers"},
			{Name: "simulated", Usage: "allow: run benchmark, test and custom on workers that only simulate them"},
			{Name: "tasks", Usage: "dtf (default): tasks of DTF clients run unchanged on DTF workers; muster: they become Muster's own kinds"},
			{Name: "grace", Usage: "time without contact after which a worker is lost, at least 30s (default: 45s)"},
			{Name: "batch", Usage: "maximum number of tasks that a worker gets as one batch (default: 1)"},
		},
		New: newGateway,
	}
}

// settings are the parsed options of the gateway.
type settings struct {
	security    *securityConfig
	signer      signer
	simulated   bool
	passThrough bool // tasks of DTF clients go to DTF workers as they are
	grace       time.Duration
	batch       int

	resendAfter time.Duration // before a task is sent again that the worker does not mention
	resendBeats int           // heartbeats before that
	bridgeTurn  time.Duration // in which the heartbeats of a bridge of Muster mention each of its tasks
	timeout     time.Duration // for the first message of a connection, and for requests to the server
}

func readSettings(o map[string]string) (*settings, error) {
	s := &settings{passThrough: true, grace: 45 * time.Second, batch: 1, resendAfter: 25 * time.Second, resendBeats: 2, bridgeTurn: time.Minute, timeout: 15 * time.Second}
	var err error
	if path := o["security"]; path != "" {
		if s.security, err = readConfig(path); err != nil {
			return nil, err
		}
	}
	if path := o["secret-file"]; path != "" {
		secret, err := ReadSecret(path)
		if err != nil {
			return nil, err
		}
		s.signer = signer{secret}
	}
	switch o["simulated"] {
	case "":
	case "allow":
		s.simulated = true
	default:
		return nil, muster.Errorf(muster.Invalid, "dtf: simulated=%s: use simulated=allow or omit it", o["simulated"])
	}
	switch o["tasks"] {
	case "", "dtf":
	case "muster":
		s.passThrough = false
	default:
		return nil, muster.Errorf(muster.Invalid, "dtf: tasks=%s: use tasks=dtf or tasks=muster", o["tasks"])
	}
	if text := o["grace"]; text != "" {
		if s.grace, err = time.ParseDuration(text); err != nil || s.grace < minGrace || s.grace > 24*time.Hour {
			return nil, muster.Errorf(muster.Invalid, "dtf: grace=%s: use a duration from %v to 24h", text, minGrace)
		}
	}
	if text := o["batch"]; text != "" {
		if s.batch, err = strconv.Atoi(text); err != nil || s.batch < 1 || s.batch > 100 {
			return nil, muster.Errorf(muster.Invalid, "dtf: batch=%s: use a number from 1 to 100", text)
		}
	}
	return s, nil
}

// ReadSecret reads a secret from a file: a security_config.json, or a file of one line.
func ReadSecret(path string) (string, error) {
	raw, err := readLimited(path)
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "cannot read the secret: %w", err)
	}
	if c, err := parseConfig(raw); err == nil {
		return c.SecretKey, nil
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" || strings.ContainsAny(secret, "\n\r{") {
		return "", muster.Errorf(muster.Invalid, "no secret in %s: write one line, or a security_config.json with secret_key", path)
	}
	return secret, nil
}

// gateway is a coordinator for workers and clients of DTF.
type gateway struct {
	deps     dialect.Deps
	settings *settings
	listener *dialect.Listener
	fleet    *fleet.Fleet
	tokens   *tokens

	sessions link.SessionGroup

	mu            sync.Mutex
	workers       map[string]*remoteWorker // by the worker's id
	preregistered map[string]restWorker    // registered by REST and not connected yet
}

func newGateway(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
	settings, err := readSettings(deps.Config.Options)
	if err != nil {
		return nil, err
	}
	return openGateway(ctx, deps, settings)
}

func openGateway(ctx context.Context, deps dialect.Deps, settings *settings) (*gateway, error) {
	tokens, err := openTokens(deps.Dir, settings.security)
	if err != nil {
		return nil, err
	}
	f, err := fleet.Open(fleet.Config{
		Server: deps.Server, Dir: filepath.Join(deps.Dir, "fleet"), Log: deps.Log, System: "dtf",
		SilenceTimeout: settings.grace, BusyTimeout: settings.grace, Lacks: missingFeatures(), Projects: deps.Config.Projects(),
		Kinds: deps.Config.Kinds, Price: deps.Config.Price,
	})
	if err != nil {
		return nil, err
	}
	g := &gateway{deps: deps, settings: settings, fleet: f, tokens: tokens, workers: map[string]*remoteWorker{}, preregistered: map[string]restWorker{}}
	deps.Config.KeyRequired = false // DTF has keys in messages and in its own header
	if g.listener, err = dialect.Listen(ctx, deps); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return g, nil
}

// missingFeatures lists the features that no DTF worker has: it gets only a type and a config.
func missingFeatures() []string {
	list := slices.DeleteFunc(slices.Clone(muster.SpecFeatures), func(f string) bool { return f == muster.FeatureElement })
	return append(list, muster.FeatureLogs, muster.FeatureArtifacts)
}

// Run implements dialect.Gateway.
func (g *gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.fleet.Run(ctx) })
	group.Go(func() error { return g.sessions.Run(ctx) })
	group.Go(func() error { return g.listener.Serve(ctx, g.handler()) })
	return group.Wait()
}

// URL implements dialect.Gateway.
func (g *gateway) URL() string { return g.listener.URL() }

// Ready implements dialect.Gateway: the gateway depends on nothing else.
func (g *gateway) Ready() error { return nil }

// access is the rights of a key.
type access struct {
	key   string   // the key, or the one for which a token was issued
	id    string   // identifies the key without its secret
	roles []string // of DTF
	token string   // for Muster's API; "" means the gateway's own key
}

func (r *access) hasRole(roles ...string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(r.roles, role) })
}

// authorize returns the rights of an API key: one of security_config.json, or a key of Muster.
func (g *gateway) authorize(ctx context.Context, key string) (*access, error) {
	if key == "" {
		return nil, muster.Errorf(muster.Unauthenticated, "missing API key or token")
	}
	if roles := g.settings.security.roles(key); roles != nil {
		return &access{key: key, id: "security_config:" + sha256Hex(key)[:16], roles: roles}, nil
	}
	whoami, err := g.deps.Server.Authorize(ctx, key)
	if err != nil {
		return nil, err
	}
	r := &access{key: key, id: whoami.Key, token: key}
	switch whoami.Role {
	case "admin":
		r.roles = []string{roleWorker, roleAdmin, roleObserver}
	case "join":
		r.roles = []string{roleWorker}
	case "submitter":
		r.roles = []string{roleAdmin, roleObserver}
	case "viewer":
		r.roles = []string{roleObserver}
	default:
		return nil, muster.Errorf(muster.Forbidden, "a key of the role %s has no rights for DTF", whoami.Role)
	}
	return r, nil
}

// authorizeToken returns the worker and the rights of a JWT. renew is true if it should be replaced.
func (g *gateway) authorizeToken(ctx context.Context, token string, now time.Time) (worker string, r *access, renew bool, err error) {
	issued, renew, err := g.tokens.verify(token, now)
	if err == nil {
		r, err = g.authorize(ctx, issued.Key) // the key may be revoked
		if err == nil && !r.hasRole(roleWorker) {
			err = muster.Errorf(muster.Forbidden, "the key of this token can no longer join workers")
		}
		return issued.Worker, r, renew, err
	}
	return "", nil, false, err
}

// isTaskDone reports whether an error of the fleet means that a task is done or unknown.
func isTaskDone(err error) bool {
	code := muster.CodeOf(err)
	return err != nil && (code == muster.Conflict || code == muster.NotFound) && !errors.Is(err, context.Canceled)
}
