package rest

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

const (
	maxBody     = 1 << 20 // bytes of requests other than uploads
	bodyTimeout = 2 * time.Minute
	routeMeta   = "route" // key of the Route in an operation's metadata
)

// Content types of answers.
const (
	AnyType         = "*/*"
	OctetStreamType = "application/octet-stream"
	EventStreamType = "text/event-stream"
	JSONSchemaType  = "application/schema+json"
)

// Route describes an operation, for its registration and its documentation.
type Route struct {
	ID, Method, Path string
	Tag, Summary     string
	Verb             auth.Verb    // required permission; "" means that any key may use it
	Status           int          // of success; 0 means the usual one
	ContentType      string       // content type of success, if it is not JSON
	JSONType         reflect.Type // of success, if the handler writes its JSON itself
	Events           bool         // it can also answer with server-sent events
	Wildcard         bool         // the last path parameter may have slashes
	Body             *huma.RequestBody
	Public           bool // no key is needed
	Shared           bool // a key for one job may use it: the answer is about that job only
	Audit            Audit
}

// routeOf returns the route of an operation.
func routeOf(op *huma.Operation) Route {
	rt, _ := op.Metadata[routeMeta].(Route)
	return rt
}

func (rr *Router) operation(rt Route) huma.Operation {
	path := rt.Path
	if rt.Wildcard {
		path = wildcardPath(path)
	}
	rr.register(rt, rt.Method+" "+path)
	op := huma.Operation{
		OperationID: rt.ID, Method: rt.Method, Path: rt.Path, Tags: []string{rt.Tag}, Summary: rt.Summary,
		DefaultStatus: rt.Status, MaxBodyBytes: maxBody + 1, BodyReadTimeout: bodyTimeout,
		RequestBody: rt.Body, SkipValidateBody: rt.Body != nil,
		Metadata: map[string]any{routeMeta: rt},
		Responses: map[string]*huma.Response{"default": {
			Description: "An error",
			Content: map[string]*huma.MediaType{problemType: {
				Schema: rr.schemaOf(reflect.TypeFor[wire.Problem]()),
			}},
		}},
	}
	if rt.Public {
		op.Security = []map[string][]string{}
	}
	content := map[string]*huma.MediaType{}
	switch rt.ContentType {
	case "":
	case AnyType, JSONSchemaType:
		content[rt.ContentType] = &huma.MediaType{} // of any schema
	case OctetStreamType:
		content[OctetStreamType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	default:
		content[rt.ContentType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	if rt.JSONType != nil {
		content["application/json"] = &huma.MediaType{Schema: rr.schemaOf(rt.JSONType)}
	}
	if rt.Events {
		content[EventStreamType] = &huma.MediaType{}
	}
	if len(content) > 0 {
		op.Responses["200"] = &huma.Response{Description: "OK", Content: content}
	}
	return op
}

func (rr *Router) schemaOf(t reflect.Type) *huma.Schema {
	return rr.Document().Components.Schemas.Schema(t, true, "")
}

func (rr *Router) register(rt Route, pattern string) {
	rr.routes = append(rr.routes, rt)
	rr.byPattern[pattern] = rt
}

// Handle registers an operation that answers with JSON.
func Handle[I, O any](rr *Router, rt Route, h func(ctx context.Context, in *I) (*O, error)) {
	huma.Register(rr.huma, rr.operation(rt), func(ctx context.Context, in *I) (*O, error) {
		err := rr.authorize(ctx, rt, in)
		var out *O
		if err == nil {
			out, err = h(ctx, in)
		}
		if err != nil {
			p := rr.problem(RequestOf(ctx), err)
			return nil, huma.ErrorWithHeaders(p, problemHeaders(p.Code))
		}
		return out, nil
	})
}

// Stream registers an operation that writes its answer itself. h returns an error
// only if it has written nothing.
func Stream[I any](rr *Router, rt Route, h func(w http.ResponseWriter, r *http.Request, in *I) error) {
	huma.Register(rr.huma, rr.operation(rt), func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			r, w := humago.Unwrap(hc)
			err := rr.authorize(ctx, rt, in)
			if err == nil {
				err = h(w, r, in)
			}
			if err != nil {
				rr.WriteError(w, r, err)
			}
		}}, nil
	})
}

// Raw registers an operation that is not in the OpenAPI document, of any method if rt has none. The caller must have a key unless rt is public.
func Raw(rr *Router, rt Route, h http.Handler) {
	pattern := strings.TrimSpace(rt.Method + " " + rt.Path)
	rr.register(rt, pattern)
	rr.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := rr.authorize(r.Context(), rt, nil); err != nil {
			rr.WriteError(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// pathInput is an input with a job or a task in its path.
type pathInput interface {
	// resolve parses the id and checks that the caller may do verb to it.
	resolve(ctx context.Context, rr *Router, verb auth.Verb) error
}

// authorize checks that the caller may do the route's verb, also to the job or task in the path.
func (rr *Router) authorize(ctx context.Context, rt Route, in any) error {
	if rt.Verb != "" {
		if err := auth.Can(caller.FromContext(ctx), rt.Verb, auth.Object{}); err != nil {
			return err
		}
	}
	if p, ok := in.(pathInput); ok {
		return p.resolve(ctx, rr, rt.Verb)
	}
	return nil
}

type requestKey struct{}

// WithRequest returns a request whose context has the request itself, for RequestOf.
func WithRequest(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), requestKey{}, r))
}

// RequestOf returns the request of a handler's context.
func RequestOf(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}
