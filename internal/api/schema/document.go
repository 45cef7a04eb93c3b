package schema

import (
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-dev/muster/internal/api/wire"
)

// Patterns of strings in requests, for the document only: the handlers check the strings and return better errors. The number of
// digits is limited so that all matching values are accepted.
const (
	jobPattern         = `^[1-9][0-9]{0,17}$`
	taskPattern        = `^[1-9][0-9]{0,17}\.(0|[1-9][0-9]{0,6})$`
	cursorPattern      = `^[0-9]{1,18}$`
	tasksCursorPattern = `^[1-9][0-9]{0,17}\.[0-9]{0,18}$` // for the tasks of all jobs
	logPositionPattern = `^([0-9]{1,9}-[0-9]{1,18})?$`
	namePattern        = `^[^/]+$`
	labelPattern       = `=`
	sha256Pattern      = `^[0-9a-f]{64}$`
	spansPattern       = `^[0-9]{1,7}(-[0-9]{1,7})?(,[0-9]{1,7}(-[0-9]{1,7})?)*$`
	cidPattern         = `^(Qm[P-Za-e][1-9A-HJ-NP-Za-km-z]{43}|bafybei[a-h][a-z2-7]{50}[aeimquy4])$`
	durationPattern    = `^([0-9]{1,9}|([0-9]{1,5}(\.[0-9]{1,9})?(ms|s|m|h)){1,4}|[0-9]{1,4}(\.[0-9]{1,6})?d)$`
	sizePattern        = `^[0-9]{1,6}(\.[0-9]{1,6})? ?([KMGTkmgt]([Ii]?[Bb])?|[Bb])?$`

	maxSeconds = 100 * 365 * 24 * 3600 // of a duration
	maxBytes   = 1 << 62               // of a size

	// Links are valid for at most 30 days; drains and pauses end within a year.
	maxShare        = 30 * 24 * 3600
	sharePattern    = `^([0-9]{1,6}|([0-9]{1,2}(\.[0-9]{1,9})?(ms|s|m|h)){1,4}|[12]?[0-9](\.[0-9]{1,6})?d)$`
	maxDeadline     = 365 * 24 * 3600
	deadlinePattern = `^([0-9]{1,7}|([0-9]{1,3}(\.[0-9]{1,9})?(ms|s|m|h)){1,4}|[0-9]{1,2}(\.[0-9]{1,6})?d)$`
)

// parameterPatterns are the patterns of parameters, by location and name.
var parameterPatterns = map[string]string{
	"path job": jobPattern, "query job": jobPattern, "path task": taskPattern, "query cursor": cursorPattern, "query tasks": spansPattern,
	"path worker": namePattern, "path kind": namePattern, "path key": namePattern, "path cid": cidPattern, "query label": labelPattern,
}

// Refine completes the OpenAPI document. Huma has created its validators before, so that it does not check these patterns.
func Refine(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	// Huma registers its own error types for every operation, but no answer has them.
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	w := walker{seen: map[*huma.Schema]bool{}, visit: refineSchema}
	for _, schema := range schemas {
		w.walk(schema)
	}
	for _, field := range []struct {
		name, field, pattern string
		maximum              float64
	}{
		{"Drain", "deadline", deadlinePattern, maxDeadline}, {"Pause", "for", deadlinePattern, maxDeadline}, {"NewShare", "ttl", sharePattern, maxShare},
	} {
		if body := schemas[field.name]; body != nil {
			duration := body.Properties[field.field].AnyOf
			duration[0].Maximum, duration[1].Pattern = new(field.maximum), field.pattern
		}
	}
	for path, item := range doc.Paths {
		for _, op := range Operations(item) {
			for _, p := range op.Parameters {
				w.walk(p.Schema)
				refineParameter(path, p)
			}
			if op.RequestBody == nil {
				continue
			}
			media := op.RequestBody.Content["application/json"]
			if yaml := op.RequestBody.Content["application/yaml"]; yaml != nil && media != nil {
				yaml.Schema = media.Schema
			} else if media != nil && media.Schema != nil && media.Schema.Ref != "" {
				allowNulls(schemas[strings.TrimPrefix(media.Schema.Ref, "#/components/schemas/")])
			}
		}
	}
	if hashes := schemas["Hashes"]; hashes != nil {
		hashes.Properties["sha256"].Items.Pattern = sha256Pattern
	}
	if selection := schemas["Selection"]; selection != nil {
		selection.Properties["tasks"].Pattern = spansPattern + "|^$"
	}
}

// Operations returns the operations of a path.
func Operations(item *huma.PathItem) []*huma.Operation {
	all := []*huma.Operation{item.Get, item.Head, item.Post, item.Put, item.Delete}
	return slices.DeleteFunc(all, func(op *huma.Operation) bool { return op == nil })
}

func refineParameter(path string, p *huma.Param) {
	schema := *p.Schema // a copy: huma validates with the original
	p.Schema = &schema
	pattern := parameterPatterns[p.In+" "+p.Name]
	switch {
	case p.In == "header" && p.Name == "Last-Event-ID" && strings.Contains(path, "{task}"):
		pattern = logPositionPattern
	case p.In == "query" && p.Name == "cursor" && path == wire.Prefix+"/tasks":
		pattern = tasksCursorPattern
	case p.In == "query" && p.Name == "cursor" && path == wire.Prefix+"/workers":
		pattern = "" // the id of a worker
	}
	if schema.Items != nil {
		items := *schema.Items
		if items.Pattern = pattern; pattern == "" && items.Enum == nil {
			items.MinLength = new(1)
		}
		schema.Items = &items
	}
	switch {
	case pattern == "" || schema.Items != nil:
	case schema.Pattern == "":
		schema.Pattern = pattern
		if pattern != spansPattern && pattern != namePattern { // the others limit the length themselves
			schema.MaxLength = nil
		}
	}
	if p.In == "path" && schema.MinLength == nil && schema.Pattern == "" && schema.Type == huma.TypeString {
		schema.MinLength = new(1)
	}
}

// refineSchema adds limits to durations and sizes, which are a number or a string.
func refineSchema(schema *huma.Schema) {
	if len(schema.AnyOf) != 2 || schema.AnyOf[0].Minimum == nil || schema.AnyOf[1].Type != huma.TypeString || schema.AnyOf[1].Enum != nil {
		return
	}
	number, text := schema.AnyOf[0], schema.AnyOf[1]
	switch number.Type {
	case huma.TypeNumber:
		number.Maximum, text.Pattern = new(float64(maxSeconds)), durationPattern
	case huma.TypeInteger:
		number.Maximum, text.Pattern = new(float64(maxBytes)), sizePattern
	}
}

// null is the schema of null. The enum makes huma refuse all else: it does not know the type.
func null() *huma.Schema { return &huma.Schema{Type: "null", Enum: []any{nil}} }

// allowNulls allows null for optional fields of a request: huma treats it as absent.
func allowNulls(schema *huma.Schema) {
	if schema == nil {
		return
	}
	for name, property := range schema.Properties {
		switch {
		case slices.Contains(schema.Required, name):
		case property.Ref != "":
			schema.Properties[name] = &huma.Schema{Description: property.Description, AnyOf: []*huma.Schema{{Ref: property.Ref}, null()}}
		case len(property.AnyOf) > 0:
			property.AnyOf = append(property.AnyOf, null())
		case !property.Nullable:
			property.Nullable = true
			if len(property.Enum) > 0 {
				property.Enum = append(property.Enum, nil)
			}
		}
	}
}

// walker visits a schema and all below it once.
type walker struct {
	seen  map[*huma.Schema]bool
	visit func(*huma.Schema)
}

func (e *walker) walk(schema *huma.Schema) {
	if schema == nil || e.seen[schema] {
		return
	}
	e.seen[schema] = true
	e.visit(schema)
	e.walk(schema.Items)
	for _, p := range schema.Properties {
		e.walk(p)
	}
	if additional, ok := schema.AdditionalProperties.(*huma.Schema); ok {
		e.walk(additional)
	}
	for _, s := range slices.Concat(schema.AnyOf, schema.OneOf, schema.AllOf) {
		e.walk(s)
	}
}
