package api

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

const (
	maxBody     = 1 << 20 // of requests other than uploads
	bodyTimeout = 2 * time.Minute
	// restParam marks, in an operation's metadata, that the last path parameter
	// takes slashes too.
	restParam = "rest"
)

// Content types of answers.
const (
	anyType         = "*/*"
	octets          = "application/octet-stream"
	eventStreamType = "text/event-stream"
	schemaType      = "application/schema+json"
)

// route says what an endpoint is, for its registration and its documentation.
type route struct {
	id, method, path string
	tag, summary     string
	verb             auth.Verb    // what its key must be allowed; "" means that any key will do
	status           int          // of success; 0 means the usual one
	answers          string       // content type of success, where it is not JSON
	json             reflect.Type // of success, where the handler writes its JSON itself
	events           bool         // it answers server-sent events, too
	rest             bool         // the last path parameter takes slashes
	body             *huma.RequestBody
	open             bool // no key is needed
}

func (s *server) operation(rt route) huma.Operation {
	op := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path, Tags: []string{rt.tag}, Summary: rt.summary,
		DefaultStatus: rt.status, MaxBodyBytes: maxBody + 1, BodyReadTimeout: bodyTimeout,
		RequestBody: rt.body, SkipValidateBody: rt.body != nil,
		Metadata: map[string]any{restParam: rt.rest},
		Responses: map[string]*huma.Response{"default": {
			Description: "An error",
			Content: map[string]*huma.MediaType{problemType: {
				Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Problem](), true, ""),
			}},
		}},
	}
	if rt.open {
		op.Security = []map[string][]string{}
	}
	content := map[string]*huma.MediaType{}
	switch rt.answers {
	case "":
	case anyType, schemaType:
		content[rt.answers] = &huma.MediaType{} // of any schema
	case octets:
		content[octets] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	default:
		content[rt.answers] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	if rt.json != nil {
		content["application/json"] = &huma.MediaType{Schema: s.api.OpenAPI().Components.Schemas.Schema(rt.json, true, "")}
	}
	if rt.events {
		content[eventStreamType] = &huma.MediaType{}
	}
	if len(content) > 0 {
		op.Responses["200"] = &huma.Response{Description: "OK", Content: content}
	}
	return op
}

// router lets the last parameter of a path take slashes: ServeMux wants that
// said, OpenAPI does not know it.
type router struct{ huma.Adapter }

// Handle registers a handler.
func (a router) Handle(op *huma.Operation, handler func(huma.Context)) {
	if rest, ok := op.Metadata[restParam].(bool); ok && rest {
		longer := *op
		longer.Path = op.Path[:len(op.Path)-1] + "...}"
		op = &longer
	}
	a.Adapter.Handle(op, handler)
}

// handle registers an endpoint that answers JSON.
func handle[I, O any](s *server, rt route, h func(ctx context.Context, in *I) (*O, error)) {
	huma.Register(s.api, s.operation(rt), func(ctx context.Context, in *I) (*O, error) {
		err := s.may(ctx, rt)
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
// only as long as it has written nothing.
func stream[I any](s *server, rt route, h func(w http.ResponseWriter, r *http.Request, in *I) error) {
	huma.Register(s.api, s.operation(rt), func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			r, w := humago.Unwrap(hc)
			err := s.may(ctx, rt)
			if err == nil {
				err = h(w, r, in)
			}
			if err != nil {
				s.refuse(w, r, err)
			}
		}}, nil
	})
}

func (s *server) may(ctx context.Context, rt route) error {
	if rt.verb == "" {
		return nil
	}
	return auth.Authorize(principalOf(ctx), rt.verb, auth.Object{})
}

// Page is the cursor and the size of a page.
type Page struct {
	Cursor string `query:"cursor" maxLength:"200" doc:"next of the page before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"rows of this page"`
}

// JobPath names a job in a path.
type JobPath struct {
	Job string `path:"job" example:"17" doc:"job number"`
}

// TaskPath names a task in a path.
type TaskPath struct {
	Task string `path:"task" example:"17.3" doc:"task id"`
}

// body is a JSON answer.
type body[T any] struct{ Body T }

func answer[T any](v T) *body[T] { return &body[T]{Body: v} }

// job reads a job's number and checks that its caller may do verb to it.
func (s *server) job(ctx context.Context, text string, verb auth.Verb) (muster.JobID, error) {
	id, err := muster.ParseJobID(text)
	if err != nil {
		return 0, err
	}
	return id, s.mayTouch(ctx, id, verb)
}

// task reads a task's id and checks that its caller may do verb to it.
func (s *server) task(ctx context.Context, text string, verb auth.Verb) (muster.TaskID, error) {
	id, err := muster.ParseTaskID(text)
	if err != nil {
		return muster.TaskID{}, err
	}
	return id, s.mayTouch(ctx, id.Job, verb)
}
