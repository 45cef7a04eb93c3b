package caller

import (
	"context"

	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/auth"
)

type auditKey struct{}

// WithAudit returns a context with the audit record of its request, to which handlers add what they know.
func WithAudit(ctx context.Context, r *audit.Record) context.Context {
	return context.WithValue(ctx, auditKey{}, r)
}

// Audit returns the audit record of a request. Only the goroutine of the request may use it. Without one it returns a record that is not used.
func Audit(ctx context.Context) *audit.Record {
	if r, ok := ctx.Value(auditKey{}).(*audit.Record); ok {
		return r
	}
	return &audit.Record{}
}

// Identify sets the caller of a request in its audit record.
func Identify(r *audit.Record, p auth.Principal) {
	r.Key, r.KeyName, r.Role, r.Worker = p.KeyID, p.Name, string(p.Role), string(p.Worker)
	if r.Project == "" {
		r.Project = p.Project
	}
}

// Deny marks a request as denied for a reason, also if the answer is that the object does not exist.
func Deny(ctx context.Context, reason error) {
	r := Audit(ctx)
	r.Outcome, r.Detail = audit.Denied, reason.Error()
}

type originKey struct{}

// Origin is where a request comes from that a gateway of this server sends.
type Origin struct {
	Address string // of the gateway's client
	Gateway string
}

// WithOrigin returns a context with the origin of a request.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf returns the origin of a request, zero if it does not come from a gateway.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}
