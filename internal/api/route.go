package api

import (
	"context"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/schema"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

const (
	maxBody     = 1 << 20 // bytes of requests other than uploads
	bodyTimeout = 2 * time.Minute
	// wildcardParam marks, in an operation's metadata, that the last path parameter
	// may have slashes.
	wildcardParam = "rest"
)

// Content types of answers.
const (
	anyType         = "*/*"
	octetStreamType = "application/octet-stream"
	eventStreamType = "text/event-stream"
	jsonSchemaType  = "application/schema+json"
)

// route describes an endpoint, for its registration and its documentation.
type route struct {
	id, method, path string
	tag, summary     string
	verb             auth.Verb    // required permission; "" means that any key may use it
	status           int          // of success; 0 means the usual one
	contentType      string       // content type of success, if it is not JSON
	jsonType         reflect.Type // of success, if the handler writes its JSON itself
	events           bool         // it can also answer with server-sent events
	wildcard         bool         // the last path parameter may have slashes
	body             *huma.RequestBody
	public           bool // no key is needed
}

func (s *server) operation(rt route) huma.Operation {
	op := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path, Tags: []string{rt.tag}, Summary: rt.summary,
		DefaultStatus: rt.status, MaxBodyBytes: maxBody + 1, BodyReadTimeout: bodyTimeout,
		RequestBody: rt.body, SkipValidateBody: rt.body != nil,
		Metadata: map[string]any{wildcardParam: rt.wildcard},
		Responses: map[string]*huma.Response{"default": {
			Description: "An error",
			Content: map[string]*huma.MediaType{problemType: {
				Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Problem](), true, ""),
			}},
		}},
	}
	if rt.public {
		op.Security = []map[string][]string{}
	}
	content := map[string]*huma.MediaType{}
	switch rt.contentType {
	case "":
	case anyType, jsonSchemaType:
		content[rt.contentType] = &huma.MediaType{} // of any schema
	case octetStreamType:
		content[octetStreamType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	default:
		content[rt.contentType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	if rt.jsonType != nil {
		content["application/json"] = &huma.MediaType{Schema: s.api.OpenAPI().Components.Schemas.Schema(rt.jsonType, true, "")}
	}
	if rt.events {
		content[eventStreamType] = &huma.MediaType{}
	}
	if len(content) > 0 {
		op.Responses["200"] = &huma.Response{Description: "OK", Content: content}
	}
	return op
}

// router registers wildcard parameters with ServeMux's "..." suffix, which OpenAPI
// does not know.
type router struct{ huma.Adapter }

// Handle registers a handler.
func (a router) Handle(op *huma.Operation, handler func(huma.Context)) {
	if wildcard, ok := op.Metadata[wildcardParam].(bool); ok && wildcard {
		withWildcard := *op
		withWildcard.Path = op.Path[:len(op.Path)-1] + "...}"
		op = &withWildcard
	}
	a.Adapter.Handle(op, handler)
}

// handle registers an endpoint that answers with JSON.
func handle[I, O any](s *server, rt route, h func(ctx context.Context, in *I) (*O, error)) {
	huma.Register(s.api, s.operation(rt), func(ctx context.Context, in *I) (*O, error) {
		err := s.authorize(ctx, rt, in)
		var out *O
		if err == nil {
			out, err = h(ctx, in)
		}
		if err != nil {
			p := s.problem(requestOf(ctx), err)
			return nil, huma.ErrorWithHeaders(p, problemHeaders(p.Code))
		}
		return out, nil
	})
}

// stream registers an endpoint that writes its answer itself. h returns an error
// only if it has written nothing.
func stream[I any](s *server, rt route, h func(w http.ResponseWriter, r *http.Request, in *I) error) {
	huma.Register(s.api, s.operation(rt), func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			r, w := humago.Unwrap(hc)
			err := s.authorize(ctx, rt, in)
			if err == nil {
				err = h(w, r, in)
			}
			if err != nil {
				s.writeError(w, r, err)
			}
		}}, nil
	})
}

// pathInput is an input with a job or a task in its path.
type pathInput interface {
	// resolve parses the id and checks that the caller may do verb to it.
	resolve(ctx context.Context, s *server, verb auth.Verb) error
}

// authorize checks that the caller may do the route's verb, also to the job or task in the path.
func (s *server) authorize(ctx context.Context, rt route, in any) error {
	if rt.verb != "" {
		if err := auth.Authorize(principalOf(ctx), rt.verb, auth.Object{}); err != nil {
			return err
		}
	}
	if p, ok := in.(pathInput); ok {
		return p.resolve(ctx, s, rt.verb)
	}
	return nil
}

// Page is the cursor and the size of a page.
type Page struct {
	Cursor string `query:"cursor" maxLength:"200" doc:"next of the previous page"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"maximum number of rows"`
}

// JobPath is a job in a path, which the caller may use.
type JobPath struct {
	Job string `path:"job" example:"17" doc:"job number"`
	id  muster.JobID
}

func (p *JobPath) resolve(ctx context.Context, s *server, verb auth.Verb) (err error) {
	p.id, err = s.authorizedJob(ctx, p.Job, verb)
	return err
}

// TaskPath is a task in a path, which the caller may use.
type TaskPath struct {
	Task string `path:"task" example:"17.3" doc:"task id"`
	id   muster.TaskID
}

func (p *TaskPath) resolve(ctx context.Context, s *server, verb auth.Verb) (err error) {
	if p.id, err = muster.ParseTaskID(p.Task); err != nil {
		return err
	}
	return s.authorizeJob(ctx, p.id.Job, verb)
}

// response is a JSON answer.
type response[T any] struct{ Body T }

func respond[T any](v T) *response[T] { return &response[T]{Body: v} }

// authorizedJob parses a job number and checks that the caller may do verb to the job.
func (s *server) authorizedJob(ctx context.Context, text string, verb auth.Verb) (muster.JobID, error) {
	id, err := muster.ParseJobID(text)
	if err != nil {
		return 0, err
	}
	return id, s.authorizeJob(ctx, id, verb)
}

// rejectEmptyParams rejects empty parameters that must not be empty: huma treats them as absent.
func (s *server) rejectEmptyParams(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	query := r.URL.Query()
	for _, p := range ctx.Operation().Parameters {
		values := query[p.Name]
		if p.In == "header" {
			values = r.Header.Values(p.Name)
		}
		if slices.Contains(values, "") && !allowsEmpty(p.Schema) {
			s.writeError(w, r, muster.Errorf(muster.Invalid, "invalid request: %s.%s is empty: set a value or omit the parameter", p.In, p.Name))
			return
		}
	}
	next(ctx)
}

// allowsEmpty reports whether a parameter may be an empty string. Elements of a list may not: huma treats a list whose first element is empty as absent.
func allowsEmpty(s *huma.Schema) bool {
	matchesEmpty, err := regexp.MatchString(s.Pattern, "")
	return s.Type == huma.TypeString && len(s.Enum) == 0 && s.Format == "" && matchesEmpty && err == nil
}

// indexLiteralPaths stores the methods of paths without parameters. Such a path may also match a pattern with parameters.
func (s *server) indexLiteralPaths() {
	s.literalMethods = map[string]string{}
	for path, item := range s.api.OpenAPI().Paths {
		if strings.Contains(path, "{") {
			continue
		}
		var allow []string
		for _, op := range schema.Operations(item) {
			allow = append(allow, op.Method)
			if op.Method == http.MethodGet {
				allow = append(allow, http.MethodHead)
			}
		}
		slices.Sort(allow)
		s.literalMethods[path] = strings.Join(slices.Compact(allow), ", ")
	}
}

// rejectMethod answers a request with a method that its path, without parameters, does not have.
func (s *server) rejectMethod(w http.ResponseWriter, r *http.Request) bool {
	allow, known := s.literalMethods[r.URL.Path]
	if !known || slices.Contains(strings.Split(allow, ", "), r.Method) {
		return false
	}
	methodNotAllowed(w, r, allow)
	return true
}

func methodNotAllowed(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	writeProblem(w, newProblem(http.StatusMethodNotAllowed, muster.Errorf(muster.Invalid, "method %s is not allowed for %s: use %s", r.Method, r.URL.Path, allow)))
}
