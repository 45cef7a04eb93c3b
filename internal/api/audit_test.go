package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/audit"
)

// brokenAuditor cannot record anything.
type brokenAuditor struct{ t *testing.T }

func (brokenAuditor) Ready() error {
	return muster.Errorf(muster.StorageFull, "no space left")
}
func (b brokenAuditor) Write(context.Context, audit.Record) { b.t.Error("a change was recorded") }
func (b brokenAuditor) Add(audit.Record)                    { b.t.Error("a change was recorded") }
func (brokenAuditor) Count(audit.Record)                    {}

// While the audit log cannot be written, no change reaches its handler, and reads, plans and uploads do.
func TestNoChangeWithoutARecord(t *testing.T) {
	none := http.NotFoundHandler()
	s := newServer(Config{LinkSocket: none, LinkPoll: none, LinkExec: none, LinkExecPoll: none, Metrics: none, Log: slog.New(slog.DiscardHandler), Audit: brokenAuditor{t}})
	refused := 0
	for _, rt := range s.router.Routes() {
		path := strings.NewReplacer("{", "", "}", "").Replace(rt.Path)
		method := rt.Method
		if method == "" {
			method = http.MethodPost
		}
		reached := false
		h := s.withAudit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			reached = true
			w.WriteHeader(http.StatusForbidden)
		}))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		when := rt.Audits(method)
		want := when == rest.AuditDenials || when == rest.AuditCounted
		if reached != want || !want && rec.Code != http.StatusInsufficientStorage {
			t.Errorf("%s %s: it reaches its handler: %t, status %d", method, path, reached, rec.Code)
		}
		if !reached {
			refused++
		}
	}
	if refused < 25 {
		t.Errorf("only %d operations are refused", refused)
	}
}
