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
