package serverd

import (
	"context"
	"crypto/ed25519"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/sessiontoken"
	"github.com/muster-dev/muster/internal/artifacturl"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sealing"
	"github.com/muster-dev/muster/internal/store"
)

// enrolled opens the sessions of a worker with what it is bound to.
type enrolled struct {
	link.SessionHandler

	enrolment link.Enrolment
	secret    []byte // of the worker's session token; nil for the bearer key of an earlier version
	keys      store.EnrolmentStore
	url       string // of the server for the worker's tasks
}

// Open implements link.SessionHandler.
func (h enrolled) Open(ctx context.Context, hello *link.Hello, send func(*link.ToWorker)) (_ link.Session, _ *link.Welcome, err error) {
	if h.secret == nil {
		return nil, nil, muster.Errorf(muster.Forbidden, "worker %s uses a bearer key of an earlier version: a worker of this version registers its own key first", hello.Worker)
	}
	hello.Enrolment, hello.ServerURL = h.enrolment, h.url
	if hello.Enrolment.Reserved, err = h.keys.BoundTags(ctx); err != nil {
		return nil, nil, err
	}
	return h.SessionHandler.Open(ctx, hello, send)
}

// loadIdentity sets what this server signs with its identity key, which workers pin: their session tokens, and the URLs of artifacts.
func (s *Server) loadIdentity(ctx context.Context) error {
	keys, err := sealing.LoadKeys(ctx, sealing.Source{File: filepath.Join(s.cfg.Data, "server.key"), Name: "server's identity key", IfLost: "delete it and let all workers join again"})
	if err != nil {
		return err
	}
	s.sessions = sessiontoken.New(ed25519.NewKeyFromSeed(keys[0]))
	s.urls, err = artifacturl.New(keys[0])
	return err
}

// urlFor returns the URL of the server for the tasks of a worker that opens a session: the public one, else that to which the worker connected.
func (s *Server) urlFor(ctx context.Context) string {
	if s.cfg.URL != "" {
		return s.cfg.URL
	}
	if url := api.URLOfRequest(ctx); url != "" && url != dialect.LocalURL { // a worker in this process has none of use
		return url
	}
	return s.URL()
}

// quarantine refuses the identity of a worker that two processes used, until it is reset.
func (s *Server) quarantine(ctx context.Context, worker muster.WorkerID, why string) error {
	err := s.keys.Quarantine(ctx, worker, why)
	if err == nil {
		s.audit.Add(selfRecord(audit.OpQuarantine, "worker/"+string(worker), why))
	}
	return err
}
