package serverd

import (
	"context"
	"crypto/ed25519"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/sessiontoken"
	"github.com/muster-dev/muster/internal/audit"
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
}

// Open implements link.SessionHandler.
func (h enrolled) Open(ctx context.Context, hello *link.Hello, send func(*link.ToWorker)) (_ link.Session, _ *link.Welcome, err error) {
	if h.secret == nil {
		return nil, nil, muster.Errorf(muster.Forbidden, "worker %s uses a bearer key of an earlier version: a worker of this version registers its own key first", hello.Worker)
	}
	hello.Enrolment = h.enrolment
	if hello.Enrolment.Reserved, err = h.keys.BoundTags(ctx); err != nil {
		return nil, nil, err
	}
	return h.SessionHandler.Open(ctx, hello, send)
}

// sessionIssuer returns the issuer of workers' session tokens, with the identity of this server, which workers pin.
func (s *Server) sessionIssuer(ctx context.Context) (*sessiontoken.Issuer, error) {
	keys, err := sealing.LoadKeys(ctx, sealing.Source{File: filepath.Join(s.cfg.Data, "server.key"), Name: "server's identity key", IfLost: "delete it and let all workers join again"})
	if err != nil {
		return nil, err
	}
	return sessiontoken.New(ed25519.NewKeyFromSeed(keys[0])), nil
}

// quarantine refuses the identity of a worker that two processes used, until it is reset.
func (s *Server) quarantine(ctx context.Context, worker muster.WorkerID, why string) error {
	err := s.keys.Quarantine(ctx, worker, why)
	if err == nil {
		s.audit.Add(selfRecord(audit.OpQuarantine, "worker/"+string(worker), why))
	}
	return err
}
