package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// decoder lays a tree over Go values and notes where everything stands.
type decoder struct {
	extraCheck func(*muster.Spec) []muster.FieldError // one more check; nil for none
	builder
	places map[string]place // by path
	raw    map[string]*node // values that are taken as they are, by path: what is in them is looked for when it is asked for
	flat   bool             // paths of the only task are shown without "tasks[0]."
}

// report notes a problem at a path.
func (d *decoder) report(path string, at place, hint, format string, args ...any) {
	if d.tooManyProblems() {
		return
	}
	d.wrong = append(d.wrong, muster.FieldError{
		Path: d.displayPath(path), Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// displayPath returns a path as the document has it.
func (d *decoder) displayPath(path string) string {
	if d.flat {
		return strings.TrimPrefix(path, "tasks[0].")
	}
	return path
}

// maxPath is how long a path may be in bytes. Beyond it a path names the thing around: the names in a
// document may be long, and every value below them would have a path with all of them.
const maxPath = 250

func joinPath(path, name string) string {
	switch {
	case len(path)+len(name) > maxPath:
		return path
	case path == "":
		return name
	default:
		return path + "." + name
	}
}

func indexPath(path string, i int) string {
	if len(path) > maxPath {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
}

// recordPlace remembers where the thing at a path stands. The first one counts: others with this path are within it.
func (d *decoder) recordPlace(path string, at place) {
	if _, known := d.places[path]; !known {
		d.places[path] = at
	}
}

// decode sets v, which is settable, to what n says.
func (d *decoder) decode(n *node, v reflect.Value, path string) {
	d.recordPlace(path, n.at)
	if n.kind == reported {
		return
	}
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes(n.json())
		d.raw[path] = n
		return
	}
	if n.kind == null {
		d.report(path, n.at, "write a value, or take the field out", "there is no value")
		return
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		d.decode(n, p.Elem(), path)
		v.Set(p)
		return
	}
	if d.decodeSpecial(n, v, path) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if n.kind != object {
			d.report(path, n.at, "", "%s cannot stand here: write an object with %s", n.describe(), strings.Join(fieldNames(v.Type()), ", "))
			return
		}
		for _, f := range n.fields {
			d.decodeField(f, path, v)
		}
	case reflect.Map:
		d.decodeMap(n, v, path)
	case reflect.Slice:
		d.decodeList(n, v, path)
	case reflect.String:
		if s, ok := d.decodeText(n, path); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		if n.kind != boolean {
			d.report(path, n.at, "", "%s cannot stand here: write true or false", n.describe())
			return
		}
		v.SetBool(strings.EqualFold(n.text, "true"))
	case reflect.Int:
		d.decodeInt(n, v, path)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.number, 64)
		if n.kind != number || err != nil || math.IsInf(f, 0) {
			d.report(path, n.at, "", "%s cannot stand here: write a number", n.describe())
			return
		}
		v.SetFloat(f)
	default:
		panic("spec: no rule for " + v.Type().String())
	}
}

// decodeField sets the field of one of the structs that f names.
func (d *decoder) decodeField(f field, path string, structs ...reflect.Value) {
	if d.tooManyProblems() { // a field costs little, what is said about it much more
		return
	}
	for _, v := range structs {
		if i, ok := fieldIndex(v.Type(), f.name); ok {
			d.decode(f.value, v.Field(i), joinPath(path, f.name))
			if v.Field(i).Kind() == reflect.Slice && f.value.kind == list && len(f.value.items) == 0 && keepsEmpty(v.Type().Field(i)) {
				v.Field(i).Set(reflect.MakeSlice(v.Field(i).Type(), 0, 0))
			}
			return
		}
	}
	types := make([]reflect.Type, len(structs))
	for i, v := range structs {
		types[i] = v.Type()
	}
	d.report(joinPath(path, truncate(f.name)), f.at, suggest(f.name, types), "there is no such field")
}

// decodeMap fills a map of texts.
func (d *decoder) decodeMap(n *node, v reflect.Value, path string) {
	if n.kind != object {
		d.report(path, n.at, "", "%s cannot stand here: write an object, such as {NAME: value}", n.describe())
		return
	}
	if len(n.fields) == 0 {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.fields)))
	for _, f := range n.fields {
		at := joinPath(path, f.name)
		d.recordPlace(at, f.value.at)
		if s, ok := d.decodeText(f.value, at); ok {
			v.SetMapIndex(reflect.ValueOf(f.name), reflect.ValueOf(s))
		}
	}
}

func (d *decoder) decodeList(n *node, v reflect.Value, path string) {
	if n.kind != list {
		hint := ""
		if n.scalar() {
			hint = "such as [" + n.describe() + "]"
		}
		d.report(path, n.at, hint, "%s cannot stand here: write a list", n.describe())
		return
	}
	if len(n.items) > muster.MaxStages && v.Type().Elem().Kind() == reflect.Struct {
		// No list of objects may be as long, and each object takes much more memory than its text.
		if v.Type().Elem() == reflect.TypeFor[muster.TaskSpec]() {
			d.report(path, n.at, "use array or matrix for tasks that are alike", "%d stages are too many: a job has at most %d", len(n.items), muster.MaxStages)
			return
		}
		d.report(path, n.at, "", "%d entries are too many: at most %d are allowed", len(n.items), muster.MaxStages)
		return
	}
	if len(n.items) == 0 {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		d.decode(item, v.Index(i), indexPath(path, i))
	}
}

// decodeText reads a text, or another scalar as it is spelled.
func (d *decoder) decodeText(n *node, path string) (string, bool) {
	switch {
	case n.scalar():
		return n.text, true
	case n.kind == reported:
	case n.kind == null:
		d.report(path, n.at, `write "" for an empty text`, "there is no value")
	case n.kind == object:
		d.report(path, n.at, `a text with ": " in it needs quotes`, "an object cannot stand here: write a text")
	default:
		d.report(path, n.at, "", "%s cannot stand here: write a text", n.describe())
	}
	return "", false
}

func (d *decoder) decodeInt(n *node, v reflect.Value, path string) {
	i, err := strconv.ParseInt(n.number, 10, 64)
	if n.kind != number || err != nil || v.OverflowInt(i) {
		d.report(path, n.at, "", "%s cannot stand here: write a whole number", n.describe())
		return
	}
	v.SetInt(i)
}

// fieldIndex finds the field of t with this name in JSON.
func fieldIndex(t reflect.Type, name string) (int, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && jsonName(f) == name {
			return i, true
		}
	}
	return 0, false
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// keepsEmpty reports whether an empty list means something else in a field than none.
func keepsEmpty(f reflect.StructField) bool {
	return strings.HasSuffix(f.Tag.Get("json"), ",omitzero")
}

// fieldNames lists the fields of t.
func fieldNames(t reflect.Type) []string {
	var all []string
	for f := range t.Fields() {
		if f.IsExported() {
			all = append(all, jsonName(f))
		}
	}
	return all
}

func didYouMean(name string) string { return "did you mean " + name + "?" }

// suggest says which field may be meant: one of the structs with a similar name,
// else one with just this name in a struct below them, or the other way around.
func suggest(name string, structs []reflect.Type) string {
	var known []string
	for _, t := range structs {
		known = append(known, fieldNames(t)...)
	}
	for _, t := range structs {
		for i := range t.NumField() {
			inner := t.Field(i).Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct && inner.NumField() > 0 && slices.Contains(fieldNames(inner), name) {
				return didYouMean(jsonName(t.Field(i)) + "." + name)
			}
		}
	}
	if near := muster.Nearest(name, known); near != "" {
		return didYouMean(near)
	}
	task, job := reflect.TypeFor[muster.TaskSpec](), reflect.TypeFor[muster.Spec]()
	switch {
	case slices.Contains(structs, job) && slices.Contains(fieldNames(task), name):
		return "it belongs to an entry of tasks"
	case slices.Contains(structs, task) && slices.Contains(fieldNames(job), name):
		return "it belongs to the job, outside tasks"
	case len(known) <= 10:
		return "there are " + strings.Join(known, ", ")
	default:
		return ""
	}
}
