// Package access serves the operations through which callers get and lose access: API keys, browser sessions, links to jobs, and
// the exchange of join tokens. It also authenticates requests.
package access

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/sessiontoken"
	"github.com/muster-dev/muster/internal/artifacturl"
	"github.com/muster-dev/muster/internal/oidc"
	"github.com/muster-dev/muster/internal/ratelimit"
	"github.com/muster-dev/muster/internal/store"
)

// Config has what the operations need. Keys, Jobs, Log and Version are required.
type Config struct {
	Keys     store.KeyStore
	Enrol    store.EnrolmentStore
	Workers  Workers
	Ring     *keyring.Ring // of Keys
	Sessions *sessiontoken.Issuer
	Limits   *ratelimit.Limiter // of requests without a key; may be nil
	Jobs     Jobs
	Log      *slog.Logger
	Version  string         // of this build
	Pin      string         // fingerprint of the server's certificate authority, which new keys end in; "" for none
	URL      string         // public URL of the server; "" takes that of each request
	SignIn   *oidc.Provider // signs users in; nil for none
	URLs     *artifacturl.Signer
}

// Jobs reads jobs.
type Jobs interface {
	// Job returns a job, or NotFound.
	Job(ctx context.Context, id muster.JobID) (muster.Job, error)
}

// Workers lists workers.
type Workers interface {
	Workers(ctx context.Context) ([]muster.Worker, error)
}

// Access authenticates requests. It is safe for concurrent use.
type Access struct {
	Config
	crossOrigin *http.CrossOriginProtection // for requests with the session cookie
	changing    sync.Mutex                  // held while a key is rotated or revoked, so that neither undoes the other
}

// Register registers the operations.
func Register(rr *rest.Router, cfg Config) *Access {
	a := &Access{Config: cfg, crossOrigin: http.NewCrossOriginProtection()}
	a.sessionRoutes(rr)
	a.signInRoutes(rr)
	a.keyRoutes(rr)
	a.joinRoutes(rr)
	a.shareRoutes(rr)
	return a
}
