package api

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/schema"
)

// rejectEmptyParams refuses parameters without a value where a text cannot be empty: package huma takes them for absent.
func (s *server) rejectEmptyParams(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	query := r.URL.Query()
	for _, p := range ctx.Operation().Parameters {
		values := query[p.Name]
		if p.In == "header" {
			values = r.Header.Values(p.Name)
		}
		if slices.Contains(values, "") && !allowsEmpty(p.Schema) {
			s.writeError(w, r, muster.Errorf(muster.Invalid, "the request is not valid: %s.%s: there is no value; leave the parameter out", p.In, p.Name))
			return
		}
	}
	next(ctx)
}

// allowsEmpty reports whether a parameter may have an empty text. An element of a list may not: package huma takes a list whose first is empty for absent.
func allowsEmpty(s *huma.Schema) bool {
	switch s.Type {
	case huma.TypeString:
		matchesEmpty, err := regexp.MatchString(s.Pattern, "")
		return len(s.Enum) == 0 && s.Format == "" && matchesEmpty && err == nil
	default:
		return false
	}
}

// indexLiteralPaths remembers the methods of paths without parameters, which a path with one would take, too.
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

// rejectMethod answers a request for a path without parameters by a method that this path does not have.
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
	writeProblem(w, newProblem(http.StatusMethodNotAllowed, muster.Errorf(muster.Invalid, "%s %s is not possible: %s is", r.Method, r.URL.Path, allow)))
}
