package api

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/traceparent"
)

// Auditor records requests in the audit log.
type Auditor interface {
	// Ready returns an error if changes must not be made now, because they could not be recorded.
	Ready() error
	// Write records a change and returns when its record is on disk, if that is possible.
	Write(ctx context.Context, r audit.Record)
	// Add records a change, whose record is on disk soon.
	Add(r audit.Record)
	// Count records a denial, a failure or an upload, of which identical ones are one record.
	Count(r audit.Record)
}

// withAudit records all denials and changes. It is around everything that can deny a request. A change is recorded when its
// handler begins to answer, so before the client knows that it was made.
func (s *server) withAudit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt := s.router.RouteOf(r)
		rec := &audit.Record{At: muster.NewTime(time.Now()), Operation: rt.ID, Address: link.RemoteIPOf(r)}
		if rt.ID == "" {
			rec.Operation, rt.Audit = audit.OpOther, rest.AuditDenials // there is nothing to change
		}
		if o := caller.OriginOf(r.Context()); o.Gateway != "" {
			rec.Address, rec.Via = o.Address, o.Gateway
		}
		if parent, ok := traceparent.Parse(r.Header.Get("Traceparent")); ok {
			rec.Request = hex.EncodeToString(parent.Trace[:])
		}
		when := rt.Audits(r.Method)
		if when == rest.AuditChange || when == rest.AuditRead || when == rest.AuditLater {
			if err := s.Audit.Ready(); err != nil {
				s.router.WriteError(w, r, err)
				return
			}
		}
		r = r.WithContext(caller.WithAudit(r.Context(), rec))
		aw := &auditWriter{ResponseWriter: w, record: func(status int) { s.record(r.Context(), rec, when, status) }} //nolint:contextcheck // it is the request's own
		defer aw.begin(http.StatusOK)                                                                                // of a handler that writes nothing
		next.ServeHTTP(aw, r)
	})
}

// record records a request that is answered with a status.
func (s *server) record(ctx context.Context, rec *audit.Record, when rest.Audit, status int) {
	rec.Status = status
	switch {
	case rec.Outcome == audit.Denied: // also with a redirect to a page that says so
	case status < http.StatusBadRequest:
		rec.Outcome = audit.Allowed
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		rec.Outcome = audit.Denied
	default:
		rec.Outcome = audit.Failed
	}
	switch {
	case rec.Outcome == audit.Denied, rec.Outcome == audit.Failed && when != rest.AuditDenials, when == rest.AuditCounted:
		s.Audit.Count(*rec)
	case rec.Outcome == audit.Failed, when == rest.AuditDenials:
	case when == rest.AuditLater:
		s.Audit.Add(*rec)
	default:
		s.Audit.Write(ctx, *rec)
	}
}

// auditWriter calls record before the answer begins.
type auditWriter struct {
	http.ResponseWriter

	record func(status int)
	begun  bool
}

// Unwrap is for http.ResponseController.
func (w *auditWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *auditWriter) begin(status int) {
	if !w.begun {
		w.begun = true
		w.record(status)
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *auditWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *auditWriter) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom lets the kernel copy from a file if it can.
func (w *auditWriter) ReadFrom(r io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}
