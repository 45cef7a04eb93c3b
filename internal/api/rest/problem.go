package rest

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/schema"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/backoff"
)

const problemType = "application/problem+json"

// errInternal replaces errors that are not a *muster.Error.
var errInternal = muster.Errorf(muster.Internal, "internal server error: see the server's log")

var statuses = map[muster.Code]int{
	muster.Invalid:         http.StatusBadRequest,
	muster.InvalidSpec:     http.StatusUnprocessableEntity,
	muster.Unauthenticated: http.StatusUnauthorized,
	muster.Forbidden:       http.StatusForbidden,
	muster.NotFound:        http.StatusNotFound,
	muster.Conflict:        http.StatusConflict,
	muster.TooLarge:        http.StatusRequestEntityTooLarge,
	muster.Unavailable:     http.StatusServiceUnavailable,
	muster.StorageFull:     http.StatusInsufficientStorage,
	muster.Undetermined:    http.StatusGatewayTimeout,
	muster.Internal:        http.StatusInternalServerError,
}

// problem is a problem document that implements huma's error interfaces.
type problem struct {
	wire.Problem

	retryAfter time.Duration // when the request may be repeated; 0 if that is not known
	header     http.Header   // further headers; may be nil
}

func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return problemType }

func newProblem(status int, err *muster.Error) *problem {
	return &problem{Problem: wire.Problem{
		Type: "about:blank", Title: statusText(status), Status: status,
		Detail: err.Message, Code: err.Code, Errors: err.Fields,
	}, retryAfter: backoff.DelayOf(err)}
}

// statusText returns the name of a status as in RFC 9110; package http has older names for two of them.
func statusText(status int) string {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return "Content Too Large"
	case http.StatusUnprocessableEntity:
		return "Unprocessable Content"
	default:
		return http.StatusText(status)
	}
}

// TooManyError is an Unavailable error without a backoff.DelayError, whose status is 429 as well, for a caller with too many requests at once: its status is 429.
type TooManyError struct{ error }

func (e TooManyError) Unwrap() error { return e.error }

// TooMany returns err with the status 429.
func TooMany(err error) error { return TooManyError{err} }

// HeaderError is an error whose answer has further headers.
type HeaderError struct {
	error

	header http.Header
}

// Unwrap returns the error.
func (e HeaderError) Unwrap() error { return e.error }

// WithHeader returns err with a header for its answer.
func WithHeader(err error, name, value string) error {
	h := http.Header{}
	h.Set(name, value)
	return HeaderError{err, h}
}

// problem translates an error, and logs internal ones.
func (rr *Router) problem(r *http.Request, err error) *problem {
	apiErr, ok := errors.AsType[*muster.Error](err)
	if !ok {
		apiErr = errInternal
	}
	if apiErr.Code == muster.Internal && r.Context().Err() == nil {
		rr.log.ErrorContext(r.Context(), "request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	noteError(r.Context(), apiErr)
	status, ok := statuses[apiErr.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	if _, ok := errors.AsType[TooManyError](err); ok || backoff.DelayOf(err) > 0 {
		status = http.StatusTooManyRequests
	}
	p := newProblem(status, apiErr)
	if h, ok := errors.AsType[HeaderError](err); ok {
		p.header = h.header
	}
	return p
}

// WriteError answers with an error. The caller must not have written anything.
func (rr *Router) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	writeProblem(w, rr.problem(r, err))
}

func writeProblem(w http.ResponseWriter, p *problem) {
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", problemType)
	maps.Copy(h, problemHeaders(p))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have left
}

// problemHeaders returns the headers of a problem.
func problemHeaders(p *problem) http.Header {
	h := http.Header{}
	maps.Copy(h, p.header)
	switch p.Code { //nolint:exhaustive // others have none
	case muster.Unauthenticated:
		h.Set("Www-Authenticate", `Bearer realm="muster"`)
	case muster.Unavailable:
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(p.retryAfter.Seconds())))))
	}
	return h
}

// convertHumaError converts huma's own errors, such as those of its validation.
func (rr *Router) convertHumaError(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	err := muster.Errorf(muster.Invalid, "%s", m.Detail)
	var details []string
	for _, d := range rr.explainUnions(ctx, m.Errors) {
		field := strings.TrimPrefix(d.Location, "body.")
		err.Fields = append(err.Fields, muster.FieldError{Path: field, Message: d.Message})
		details = append(details, field+": "+d.Message)
	}
	if len(details) > 0 {
		err.Message = "invalid request: " + strings.Join(details, "; ")
	}
	status := m.Status
	switch {
	case status == http.StatusRequestEntityTooLarge:
		err.Code = muster.TooLarge
	case status == http.StatusUnprocessableEntity: // reserved for specs
		status = http.StatusBadRequest
	case status >= http.StatusInternalServerError:
		err = errInternal
	}
	if c, ok := ctx.(*statusContext); ok {
		c.override = status
	}
	return newProblem(status, err), nil
}

// explainUnions explains errors of values in a JSON body that have alternatives.
func (rr *Router) explainUnions(ctx huma.Context, details []*huma.ErrorDetail) (all []*huma.ErrorDetail) {
	op := ctx.Operation()
	if op == nil || op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
		return details
	}
	for _, d := range details {
		all = append(all, schema.Explain(rr.Document().Components.Schemas, op.RequestBody.Content["application/json"].Schema, d)...)
	}
	return all
}

// humaContext is an alias so that embedding does not hide the method Context.
type humaContext = huma.Context

// statusContext is a huma.Context whose status convertHumaError can change.
type statusContext struct {
	humaContext
	override int
}

func withStatusOverride(ctx huma.Context, next func(huma.Context)) {
	next(&statusContext{humaContext: ctx})
}

// SetStatus writes the status line and sets a deadline for the rest of the answer, so that a client that does not
// read does not hold the connection.
func (r *statusContext) SetStatus(status int) {
	if r.override != 0 {
		status = r.override
	}
	_, w := humago.Unwrap(r.humaContext)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyTimeout)) // a test recorder has none
	r.humaContext.SetStatus(status)
}

// Unwrap implements what humago.Unwrap needs.
func (r *statusContext) Unwrap() huma.Context { return r.humaContext }
