package serverd

import (
	"context"

	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

// enrolled opens the sessions of a worker with what it is bound to.
type enrolled struct {
	link.SessionHandler

	enrolment link.Enrolment
	keys      store.EnrolmentStore
}

// Open implements link.SessionHandler.
func (h enrolled) Open(ctx context.Context, hello *link.Hello, send func(*link.ToWorker)) (_ link.Session, _ *link.Welcome, err error) {
	hello.Enrolment = h.enrolment
	if hello.Enrolment.Reserved, err = h.keys.BoundTags(ctx); err != nil {
		return nil, nil, err
	}
	return h.SessionHandler.Open(ctx, hello, send)
}
