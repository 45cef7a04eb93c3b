// Package dtf implements the protocol of the IPFS Accelerate Distributed Testing Framework (DTF): the gateway is a coordinator for
// DTF's workers and clients, and the bridge is a worker of DTF's coordinators.
package dtf

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
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

func readSettings(c dialect.Config) (*settings, error) {
	o := c.ReadOptions()
	s := &settings{
		simulated: o.OneOf("simulated", "", "allow") == "allow", passThrough: o.OneOf("tasks", "dtf", "muster") == "dtf",
		grace: o.Duration("grace", 45*time.Second, minGrace, 24*time.Hour), batch: o.Int("batch", 1, 1, 100),
		resendAfter: 25 * time.Second, resendBeats: 2, bridgeTurn: time.Minute, timeout: 15 * time.Second,
	}
	var err error
	if path := c.Options["security"]; path != "" {
		if s.security, err = readConfig(path); err != nil {
			o.Fail("security", "%v", err)
		}
	}
	if path := c.Options["secret-file"]; path != "" {
		if s.signer.secret, err = ReadSecret(path); err != nil {
			o.Fail("secret-file", "%v", err)
		}
	}
	return s, o.Err()
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
	fleet.Gateway

	settings *settings
	tokens   *tokens
	sessions link.SessionGroup

	mu            sync.Mutex
	workers       map[string]*remoteWorker // by the worker's id
	preregistered map[string]restWorker    // registered by REST and not connected yet
}

func newGateway(ctx context.Context, deps dialect.Deps) (dialect.Gateway, error) {
	settings, err := readSettings(deps.Config)
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
	g := &gateway{settings: settings, tokens: tokens, workers: map[string]*remoteWorker{}, preregistered: map[string]restWorker{}}
	g.Gateway, err = fleet.OpenGateway(ctx, deps, fleet.Config{
		System: "dtf", SilenceTimeout: settings.grace, BusyTimeout: settings.grace, Lacks: missingFeatures(), OwnKeys: true,
	})
	return g, err
}

// missingFeatures lists the features that no DTF worker has: it gets only a type and a config.
func missingFeatures() []string {
	list := slices.DeleteFunc(slices.Clone(muster.SpecFeatures), func(f string) bool { return f == muster.FeatureElement })
	return append(list, muster.FeatureLogs, muster.FeatureArtifacts)
}

func (g *gateway) Run(ctx context.Context) error { return g.Serve(ctx, g.handler(), g.sessions.Run) }

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
	whoami, err := g.Deps.Server.Authorize(ctx, key)
	if err != nil {
		return nil, err
	}
	roles := rolesOf(whoami, g.Deps.Config.Project)
	if roles == nil {
		return nil, muster.Errorf(muster.Forbidden, "a key of the role %s has no rights for DTF", whoami.Role)
	}
	return &access{key: key, id: whoami.Key, token: key, roles: roles}, nil
}

// rolesOf returns the roles of DTF of a Muster key for tasks of a project; "" means any. nil means that it has none.
func rolesOf(whoami client.Whoami, project string) (roles []string) {
	if dialect.CanJoinWorkers(whoami) == nil {
		roles = append(roles, roleWorker)
	}
	for _, r := range []struct {
		name string
		verb auth.Verb
	}{{roleAdmin, auth.SubmitJobs}, {roleObserver, auth.ReadJobs}} {
		if dialect.Can(whoami, r.verb, auth.Object{Project: project}) == nil {
			roles = append(roles, r.name)
		}
	}
	return roles
}

// authorizeToken returns the worker and the rights of a JWT. renew is true if it should be replaced.
func (g *gateway) authorizeToken(ctx context.Context, token string, now time.Time) (worker string, r *access, renew bool, err error) {
	issued, renew, err := g.tokens.verify(token, now)
	if err == nil {
		r, err = g.authorize(ctx, issued.Key) // the key may be revoked
	}
	if err == nil && !r.hasRole(roleWorker) {
		err = muster.Errorf(muster.Forbidden, "the key of this token can no longer join workers")
	}
	return issued.Worker, r, renew, err
}
