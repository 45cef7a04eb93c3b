package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/audit"
)

// Audit says when requests for an operation are recorded in the audit log. Denials always are.
type Audit int

// The values of Audit. The zero value records every operation whose method is not GET or HEAD, so that a new one cannot be forgotten.
const (
	AuditChange  Audit = iota // before the answer, unless the method is GET or HEAD
	AuditRead                 // before the answer, whatever the method
	AuditLater                // soon after the answer
	AuditCounted              // together with others of the same key and address
	AuditDenials              // it changes nothing: only its denials are recorded
)

// Audits returns when a request with a method is recorded.
func (rt *Route) Audits(method string) Audit {
	if rt.Audit == AuditChange && (method == http.MethodGet || method == http.MethodHead) {
		return AuditDenials
	}
	return rt.Audit
}

// RouteOf returns the operation of a request, zero if there is none.
func (rr *Router) RouteOf(r *http.Request) Route {
	_, pattern := rr.mux.Handler(r)
	return rr.byPattern[pattern]
}

// objects are the parameters of paths that name an object, and the prefixes of objects in the audit log.
var objects = []struct{ param, prefix string }{
	{"{task}", "task/"}, {"{job}", "job/"}, {"{key}", "key/"}, {"{worker}", "worker/"}, {"{sha256}", "blob/"}, {"{schedule}", "schedule/"}, {"{project}", "project/"},
	{"{kind}", "kind/"}, {"{cid}", "ipfs/"},
}

// describe sets the object of a request in its audit record.
func (rr *Router) describe(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	rt := routeOf(ctx.Operation())
	rec := caller.Audit(ctx.Context())
	for _, o := range objects {
		if !strings.Contains(rt.Path, o.param) || rt.Audit == AuditCounted {
			continue
		}
		value := ctx.Param(strings.Trim(o.param, "{}"))
		if o.prefix == "key/" && len(value) >= minToken {
			value = "(not an id)" // it may be a token by mistake
		}
		rec.Object = o.prefix + value
		switch o.prefix {
		case "project/":
			rec.Project = value
		case "schedule/":
			rec.Project = ctx.Param("project")
		case "job/", "task/":
			if rt.Audits(r.Method) != AuditDenials {
				rec.Project = rr.projectOfText(ctx.Context(), value, rec.Project)
			}
		}
		break
	}
	next(ctx)
}

// minToken is the least length of a token; ids of keys are shorter.
const minToken = 16

// projectOfText returns the project of a job or a task, fallback if it does not exist.
func (rr *Router) projectOfText(ctx context.Context, text, fallback string) string {
	job, _, _ := strings.Cut(text, ".")
	id, err := muster.ParseJobID(job)
	if err != nil {
		return fallback
	}
	project, err := rr.projectOf(ctx, id)
	if err != nil {
		return fallback
	}
	return project
}

// noteError adds an error to the audit record of a request: why it was denied, or only the code of another error, whose text may quote
// what the client has sent.
func noteError(ctx context.Context, err *muster.Error) {
	rec := caller.Audit(ctx)
	switch {
	case rec.Outcome == audit.Denied:
	case err.Code == muster.Unauthenticated, err.Code == muster.Forbidden:
		rec.Detail = err.Message
	default:
		rec.Detail = string(err.Code)
	}
}
