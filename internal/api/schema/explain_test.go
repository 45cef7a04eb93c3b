package schema

import (
	"reflect"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"pgregory.net/rapid"
)

type limits struct {
	Jobs string `json:"jobs,omitempty"`
	Age  int    `json:"age,omitempty"`
}

type order struct {
	Limits *limits           `json:"limits,omitempty"`
	Items  []limits          `json:"items,omitempty"`
	ByName map[string]limits `json:"by_name,omitempty"`
	Amount int               `json:"amount,omitempty"`
}

func newOrder() (huma.Registry, *huma.Schema) {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	body := registry.Schema(reflect.TypeFor[order](), true, "")
	s := registry.SchemaFromRef(body.Ref)
	allowNulls(s)
	s.Properties["items"].Items = &huma.Schema{AnyOf: []*huma.Schema{s.Properties["items"].Items, null()}}
	s.Properties["amount"] = &huma.Schema{AnyOf: []*huma.Schema{{Type: huma.TypeInteger, Minimum: new(0.0), Maximum: new(9.0)}, {Type: huma.TypeString}}}
	return registry, body
}

// explain validates a value as huma does and explains the errors.
func explain(v any) []string {
	registry, body := newOrder()
	var result huma.ValidateResult
	path := huma.NewPathBuffer(nil, 0)
	path.Push("body")
	huma.Validate(registry, body, path, huma.ModeWriteToServer, v, &result)
	var lines []string
	for _, err := range result.Errors {
		detail, _ := err.(*huma.ErrorDetail) //nolint:errorlint // huma does not wrap them
		for _, d := range Explain(registry, body, detail) {
			lines = append(lines, d.Location+": "+d.Message)
		}
	}
	return lines
}

func TestExplain(t *testing.T) {
	type object = map[string]any
	for want, v := range map[string]any{
		"":                                          object{"limits": object{"jobs": "7"}, "items": []any{nil, object{"age": 3.0}}, "amount": "9"},
		"body.limits.job: unexpected property":      object{"limits": object{"job": "7"}},
		"body.limits.jobs: expected string":         object{"limits": object{"jobs": 7.0}},
		"body.limits: expected object or null":      object{"limits": "7"},
		"body.items[1].x: unexpected property":      object{"items": []any{nil, object{"x": 1.0}}},
		"body.items[0]: expected object or null":    object{"items": []any{[]any{}}},
		"body.amount: expected integer from 0 to 9": object{"amount": 10.0},
		"body.amount: expected integer or string":   object{"amount": true},
		"body.by_name.a.b.jobs: expected string":    object{"by_name": object{"a.b": object{"jobs": 1.0}}},
		"body.more: unexpected property":            object{"more": 1.0},
	} {
		if got := strings.Join(explain(v), "\n"); got != want {
			t.Errorf("%v:\n%s\nwant\n%s", v, got, want)
		}
	}
}

// A client chooses the names in a path.
func TestExplainAnyPath(t *testing.T) {
	registry, body := newOrder()
	rapid.Check(t, func(rt *rapid.T) {
		path := rapid.StringOf(rapid.SampledFrom([]rune("[].1limtsei_by"))).Draw(rt, "path")
		d := &huma.ErrorDetail{Location: "body." + path, Message: validation.MsgExpectedMatchAtLeastOneSchema, Value: rapid.SampledFrom([]any{nil, 1.0, "x", map[string]any{"x": 1.0}}).Draw(rt, "value")}
		if len(Explain(registry, body, d)) == 0 {
			rt.Fatal("no error is left")
		}
	})
}
