// Package jobschema generates the JSON Schema (2020-12) of job files. Fields come from the Go types; descriptions and limits come
// from the tables of docs/job-spec.md.
package jobschema

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
)

// Source is the page that describes the fields, Target the generated file, relative to the root of the repository.
const (
	Source = "docs/job-spec.md"
	Target = "docs/job.schema.json"
)

// Document returns the schema for a page.
func Document(page string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	whole := job(parsePage(page))
	allowParams(whole["$defs"])
	err := e.Encode(whole)
	return b.Bytes(), err
}

// object is a JSON object; encoding/json sorts its names.
type object = map[string]any

// text is the schema of a string. Numbers, true and false are also read as strings.
func text() object { return object{"type": []any{"string", "number", "boolean"}} }

const (
	sizePattern     = `^ *[0-9]*\.?[0-9]+ *([KMGTkmgt]([iI]?[bB])?|[bB])? *$`
	durationPattern = `^([0-9]*\.?[0-9]+|([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+|[0-9]*\.?[0-9]+d)$`
	arrayPattern    = `^ *[0-9]+ *(- *[0-9]+ *(: *[0-9]+ *)?)?(, *[0-9]+ *(- *[0-9]+ *(: *[0-9]+ *)?)?)*(% *[0-9]+ *)?$`
	namePattern     = `^[A-Za-z0-9_-]{1,64}$`
	maxList         = 1_000
)

// itemWords are the allowed entries of lists.
var itemWords = map[string][]string{"notify.on": muster.NotifyOn}

// job returns the schema of a file.
func job(p page) object {
	whole := fields(reflect.TypeFor[muster.Spec](), "", p.job)
	stage := fields(reflect.TypeFor[muster.TaskSpec](), "", p.stage)
	flat := maps.Clone(stage)
	maps.Copy(flat, whole)
	delete(flat, "tasks")
	whole["tasks"] = annotate(object{"type": "array", "minItems": 1, "maxItems": muster.MaxStages, "items": object{"$ref": "#/$defs/stage"}}, p.job["tasks"])
	extra := object{"^x-": object{"description": "ignored: for YAML anchors"}}
	return object{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "Muster job",
		"description": "A job file of Muster. Generated from docs/job-spec.md and the Go types by make gen.",
		"type":        "object",
		"if":          object{"required": []any{"tasks"}},
		"then":        object{"$ref": "#/$defs/job"},
		"else":        object{"$ref": "#/$defs/flat"},
		"$defs": object{
			"job": object{
				"description": "A job with its stages", "type": "object", "required": []any{"tasks"}, "properties": whole, "patternProperties": extra, "additionalProperties": false,
			},
			"flat": object{
				"description": "A job with a single stage, whose fields are next to those of the job", "type": "object", "properties": flat, "patternProperties": extra,
				"additionalProperties": false, "anyOf": workFields(),
			},
			"stage": object{"description": "A task, or several that are alike", "type": "object", "properties": stage, "additionalProperties": false, "anyOf": workFields()},
		},
	}
}

// allowParams lets every property below v that is not any text also be a text with a reference to a parameter.
func allowParams(v any) {
	reference := object{"type": "string", "pattern": `\$\{params\.`}
	switch v := v.(type) {
	case object:
		properties, _ := v["properties"].(object)
		for name, p := range properties {
			if name == "params" {
				continue
			}
			allowParams(p)
			p, _ := p.(object)
			kind, _ := p["type"].(string)
			if forms, ok := p["anyOf"].([]any); ok {
				if !reflect.DeepEqual(forms[len(forms)-1], reference) { // the flat form and a stage share their properties
					p["anyOf"] = append(slices.Clone(forms), reference)
				}
			} else if slices.Contains([]string{"integer", "number", "boolean", "string"}, kind) || p["enum"] != nil || p["pattern"] != nil {
				inner := maps.Clone(p)
				delete(inner, "description")
				for key := range inner {
					delete(p, key)
				}
				p["anyOf"] = []any{inner, reference}
			}
		}
		for key, inner := range v {
			if key != "properties" {
				allowParams(inner)
			}
		}
	case []any:
		for _, inner := range v {
			allowParams(inner)
		}
	}
}

// workFields returns the alternatives of which a stage needs at least one.
func workFields() []any {
	var all []any
	for _, name := range []string{"run", "script", "kind", "image", "files", "python"} {
		all = append(all, object{"required": []any{name}})
	}
	return all
}

// fields returns the properties of a struct. prefix is its path with a dot.
func fields(t reflect.Type, prefix string, rows map[string]row) object {
	all := object{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		path := prefix + name
		r := rows[path]
		all[name] = annotate(schemaOf(f.Type, path, rows), r)
	}
	return all
}

func structOf(t reflect.Type, path string, rows map[string]row) object {
	s := object{"type": "object", "properties": fields(t, path+".", rows), "additionalProperties": false}
	var required []any
	for f := range t.Fields() {
		if name, options, _ := strings.Cut(f.Tag.Get("json"), ","); !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	if required != nil {
		s["required"] = required
	}
	return s
}

// schemaOf returns the schema of a field's type as it is read, which accepts more than what is written.
func schemaOf(t reflect.Type, path string, rows map[string]row) object {
	switch t {
	case reflect.TypeFor[muster.Size]():
		return object{"anyOf": []any{object{"type": "number", "minimum": 0}, object{"type": "string", "pattern": sizePattern}}}
	case reflect.TypeFor[muster.Duration]():
		return object{"anyOf": []any{object{"type": "number", "minimum": 0, "maximum": 100 * 365 * 24 * 3600}, object{"type": "string", "pattern": durationPattern}}}
	case reflect.TypeFor[muster.CacheLifetime]():
		return object{"anyOf": []any{object{"type": "boolean"}, object{"type": "number", "minimum": 60, "maximum": muster.MaxCacheLifetime.Duration().Seconds()}, object{"type": "string", "pattern": durationPattern}}}
	case reflect.TypeFor[muster.Command]():
		return object{"anyOf": []any{object{"type": "string"}, object{"type": "array", "minItems": 1, "maxItems": maxList, "items": text()}}}
	case reflect.TypeFor[muster.Script](), reflect.TypeFor[muster.Checkpoint](), reflect.TypeFor[muster.Mount](), reflect.TypeFor[muster.Secret]():
		return object{"anyOf": []any{object{"type": "string"}, structOf(t, path, rows)}}
	case reflect.TypeFor[muster.Gang]():
		return object{"anyOf": []any{object{"type": "integer", "minimum": 1, "maximum": muster.MaxGangSize}, structOf(t, path, rows)}}
	case reflect.TypeFor[muster.GPURequest]():
		return object{"anyOf": []any{object{"type": "integer", "minimum": 0, "maximum": 1024}, structOf(t, path, rows)}}
	case reflect.TypeFor[muster.Array]():
		return object{"type": "string", "pattern": arrayPattern + `|^ *\$\{[^{}]+\} *(% *[0-9]+ *)?$`}
	case reflect.TypeFor[muster.Matrix]():
		axis := object{"anyOf": []any{object{"type": "string", "pattern": arrayPattern}, object{"type": "array", "minItems": 1, "items": text()}}}
		return object{"type": "object", "minProperties": 1, "propertyNames": object{"pattern": namePattern}, "additionalProperties": axis}
	case reflect.TypeFor[muster.SweepParameter]():
		values := object{"type": "array", "minItems": 1, "maxItems": muster.MaxAxisValues, "items": text()}
		declaration := structOf(t, path, rows)
		properties, _ := declaration["properties"].(object)
		properties["values"] = annotate(maps.Clone(values), rows[path+".values"])
		for _, name := range []string{"min", "max"} {
			properties[name] = annotate(object{"type": "number"}, rows[path+"."+name])
		}
		return object{"anyOf": []any{values, declaration}}
	case reflect.TypeFor[muster.Param]():
		declaration := structOf(t, path, rows)
		properties, _ := declaration["properties"].(object)
		for _, name := range []string{"default", "value"} { // scalars
			maps.Copy(properties, object{name: annotate(text(), rows[path+"."+name])})
		}
		properties["enum"] = annotate(object{"type": "array", "minItems": 1, "maxItems": maxList, "items": text()}, rows[path+".enum"])
		for _, name := range []string{"minimum", "maximum"} {
			properties[name] = annotate(object{"type": "number"}, rows[path+"."+name])
		}
		return object{"anyOf": []any{text(), declaration}}
	case reflect.TypeFor[json.RawMessage]():
		return object{"type": "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), path, rows)
	case reflect.Struct:
		return structOf(t, path, rows)
	case reflect.Slice:
		items := schemaOf(t.Elem(), path, rows)
		if known := itemWords[path]; known != nil {
			items = object{"enum": known}
		}
		array := object{"type": "array", "maxItems": maxList, "items": items}
		if spec.TakesScalar(t, path) {
			return object{"anyOf": []any{items, array}}
		}
		return array
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem(), path, rows)}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number", "minimum": 0}
	case reflect.String:
		return text()
	default:
		panic("no rule for " + t.String())
	}
}

// annotate adds the description and limits of a field.
func annotate(s object, r row) object {
	if d := r.description(); d != "" {
		s["description"] = d
	}
	minimum, maximum, bounded := r.bounds()
	kind, _ := s["type"].(string)
	if forms, _ := s["anyOf"].([]any); len(forms) == 2 && bounded {
		if array, _ := forms[1].(object); array["type"] == "array" && array["minItems"] == nil { // a list that may be written as a scalar
			array["minItems"], array["maxItems"] = minimum, maximum
		}
	}
	switch {
	case kind == "integer" && bounded:
		s["minimum"], s["maximum"] = minimum, maximum
	case kind == "array" && bounded:
		s["minItems"], s["maxItems"] = minimum, maximum
	case kind == "" && s["type"] != nil: // a string
		annotateText(s, r)
	}
	if literal := codePattern.FindStringSubmatch(r.defaultText); literal != nil && literal[0] == r.defaultText && s["enum"] != nil {
		s["default"] = literal[1]
	}
	if n, err := strconv.Atoi(r.defaultText); err == nil && kind == "integer" {
		s["default"] = n
	}
	return s
}

func annotateText(s object, r row) {
	if words := r.enum(); words != nil {
		delete(s, "type")
		s["enum"] = words
		return
	}
	if minBytes, maxBytes, ok := r.lengths(); ok {
		plain := s
		if m := sealedPattern.FindStringSubmatch(r.kind); m != nil {
			plain = object{}
			s["anyOf"] = []any{plain, object{"pattern": "(^|/#)" + muster.SealedPrefix, "maxLength": number(m[1])}}
		}
		plain["maxLength"] = maxBytes
		if minBytes > 0 {
			plain["minLength"] = minBytes
		}
	}
	switch {
	case r.kind == "name":
		s["pattern"] = namePattern
	case r.kind == "64 hex digits":
		s["pattern"] = "^[0-9a-fA-F]{64}$"
	case strings.HasPrefix(r.kind, "`https://…` or `http://…`"):
		s["type"], s["pattern"] = "string", "^https?://"
	}
}
