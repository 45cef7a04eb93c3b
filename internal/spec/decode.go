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

// decoder decodes a tree into Go values and records the places of all paths.
type decoder struct {
	extraCheck func(*muster.Spec) []muster.FieldError // additional check, or nil
	builder
	places map[string]place // by path
	raw    map[string]*node // values decoded as raw JSON, and lists of strings, by path; places in them are searched on demand
	short  bool             // accept a scalar for a list of strings, and a number of GPUs
	flat   bool             // flat form: problems have paths without "tasks[0]."
}

// report adds a problem at a path.
func (d *decoder) report(path string, at place, hint, format string, args ...any) {
	if d.tooManyProblems() {
		return
	}
	d.wrong = append(d.wrong, muster.FieldError{
		Path: d.displayPath(path), Line: int(at.line), Column: int(at.column), Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// displayPath returns a path as in the document.
func (d *decoder) displayPath(path string) string {
	if d.flat {
		return strings.TrimPrefix(path, "tasks[0].")
	}
	return path
}

// maxPath is the maximum length of a path in bytes. Values with longer paths get that of the value around
// them: names may be long, and every value below them would have a path with all of them.
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

// recordPlace records the place of a path. The first one wins: later ones with this path are within it.
func (d *decoder) recordPlace(path string, at place) {
	if _, known := d.places[path]; !known {
		d.places[path] = at
	}
}

// decode sets v, which is settable, to the value of n.
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
		d.report(path, n.at, "write a value, or remove the field", "the field has no value")
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
		if gpus, ok := reflect.TypeAssert[*muster.GPURequest](v.Addr()); ok && d.short && n.kind == number {
			d.decode(n, reflect.ValueOf(&gpus.Count).Elem(), joinPath(path, "count"))
			return
		}
		if n.kind != object {
			d.report(path, n.at, "", "expected an object with %s, got %s", strings.Join(fieldNames(v.Type()), ", "), n.describe())
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
			d.report(path, n.at, "", "expected true or false, got %s", n.describe())
			return
		}
		v.SetBool(strings.EqualFold(n.text, "true"))
	case reflect.Int:
		d.decodeInt(n, v, path)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.number, 64)
		if n.kind != number || err != nil || math.IsInf(f, 0) {
			d.report(path, n.at, "", "expected a number, got %s", n.describe())
			return
		}
		v.SetFloat(f)
	default:
		panic("spec: no rule for " + v.Type().String())
	}
}

// decodeField sets the field of one of the structs that f names.
func (d *decoder) decodeField(f field, path string, structs ...reflect.Value) {
	if d.tooManyProblems() { // formatting problems is expensive
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
	d.report(joinPath(path, muster.Truncate(f.name)), f.at, suggest(f.name, types), "unknown field")
}

// decodeMap fills a map of strings or structs.
func (d *decoder) decodeMap(n *node, v reflect.Value, path string) {
	if n.kind != object {
		d.report(path, n.at, "", "expected an object, such as {NAME: value}, got %s", n.describe())
		return
	}
	if len(n.fields) == 0 || d.tooMany(len(n.fields), n, path) {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.fields)))
	for _, f := range n.fields {
		at := joinPath(path, f.name)
		d.recordPlace(at, f.value.at)
		if v.Type().Elem().Kind() == reflect.Struct {
			member := reflect.New(v.Type().Elem()).Elem()
			d.decode(f.value, member, at)
			v.SetMapIndex(reflect.ValueOf(f.name), member)
		} else if s, ok := d.decodeText(f.value, at); ok {
			v.SetMapIndex(reflect.ValueOf(f.name), reflect.ValueOf(s))
		}
	}
}

// maxMembers is the maximum of members of a map, and of objects in a list other than the stages.
const maxMembers = 1_000

// tooMany reports a value with more members than any valid one.
func (d *decoder) tooMany(members int, n *node, path string) bool {
	if members > maxMembers {
		d.report(path, n.at, "", "%d entries are too many, the maximum is %d", members, maxMembers)
	}
	return members > maxMembers
}

func (d *decoder) decodeList(n *node, v reflect.Value, path string) {
	if d.short && n.scalar() && TakesScalar(v.Type(), path) {
		n = &node{kind: list, at: n.at, items: []*node{n}}
	}
	if n.kind != list {
		hint := ""
		if n.scalar() {
			hint = "such as [" + n.describe() + "]"
		}
		d.report(path, n.at, hint, "expected a list, got %s", n.describe())
		return
	}
	// No valid list of objects is as long, and each object takes much more memory than its text.
	stages := v.Type().Elem() == reflect.TypeFor[muster.TaskSpec]()
	if stages && len(n.items) > muster.MaxStages {
		d.report(path, n.at, "use array or matrix for tasks that are alike", "%d stages are too many, the maximum is %d", len(n.items), muster.MaxStages)
		return
	}
	if v.Type().Elem().Kind() == reflect.Struct && !stages && d.tooMany(len(n.items), n, path) {
		return
	}
	if len(n.items) == 0 {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	texts := v.Type().Elem() == reflect.TypeFor[string]()
	if texts {
		d.raw[path] = n
	}
	for i, item := range n.items {
		if texts && item.scalar() {
			v.Index(i).SetString(item.text)
		} else {
			d.decode(item, v.Index(i), indexPath(path, i))
		}
	}
}

// TakesScalar reports whether a field may also be written as the only entry of its list: any list of strings but a command line.
func TakesScalar(t reflect.Type, path string) bool {
	name := path[strings.LastIndexByte(path, '.')+1:]
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String && !slices.Contains([]string{"entrypoint", "interpreter", "args"}, name)
}

// decodeText reads a string, or the spelling of another scalar.
func (d *decoder) decodeText(n *node, path string) (string, bool) {
	switch {
	case n.scalar():
		return n.text, true
	case n.kind == reported:
	case n.kind == null:
		d.report(path, n.at, `write "" for an empty string`, "the field has no value")
	case n.kind == object:
		d.report(path, n.at, `a string with ": " in it needs quotes`, "expected a string, got an object")
	default:
		d.report(path, n.at, "", "expected a string, got %s", n.describe())
	}
	return "", false
}

func (d *decoder) decodeInt(n *node, v reflect.Value, path string) {
	i, err := strconv.ParseInt(n.number, 10, 64)
	if n.kind != number || err != nil || v.OverflowInt(i) {
		d.report(path, n.at, "", "expected a whole number, got %s", n.describe())
		return
	}
	v.SetInt(i)
}

// fieldIndex finds the field of t with this JSON name.
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

// keepsEmpty reports whether an empty list differs from an absent one in a field.
func keepsEmpty(f reflect.StructField) bool {
	return strings.HasSuffix(f.Tag.Get("json"), ",omitzero")
}

// fieldNames lists the JSON names of t's fields.
func fieldNames(t reflect.Type) []string {
	var all []string
	for f := range t.Fields() {
		if f.IsExported() {
			all = append(all, jsonName(f))
		}
	}
	return all
}

// foreignFields are the fields of a stage that other systems have under another name.
var foreignFields = map[string]string{ //nolint:gochecknoglobals // a constant
	"retry": "retries.max", "max_retries": "retries.max", "backoff_limit": "retries.max",
	"depends_on": "needs", "depends": "needs", "dependencies": "needs", "after": "needs",
	"command": "run", "cmd": "run", "args": "run", "entrypoint": "run", "exec": "run",
	"gpu": "resources.gpus", "cpu": "resources.cpus", "mem": "resources.memory", "ram": "resources.memory",
	"environment": "env", "variables": "env", "volumes": "container.mounts", "binds": "container.mounts",
	"requirements": "python.requirements", "pip": "python.packages",
	"time": "timeout", "time_limit": "timeout", "walltime": "timeout", "max_runtime": "timeout",
	"artifacts": "outputs", "replicas": "array", "parallelism": "array",
}

func didYouMean(name string) string { return "did you mean " + name + "?" }

// suggest returns a hint for an unknown field: a field with this name in a struct below,
// else a field with a similar name, else where the field belongs.
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
	if meant := foreignFields[name]; meant != "" && slices.Contains(structs, reflect.TypeFor[muster.TaskSpec]()) {
		return didYouMean(meant)
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
		return "known are " + strings.Join(known, ", ")
	default:
		return ""
	}
}

// decodeSpecial sets v if its type has a custom JSON form, and reports whether it has. Package
// muster reads the forms; here their parts are decoded one by one, so that a problem gets its
// exact place.
func (d *decoder) decodeSpecial(n *node, v reflect.Value, path string) bool {
	target, ok := reflect.TypeAssert[json.Unmarshaler](v.Addr())
	if !ok {
		return false
	}
	switch target := target.(type) {
	case *muster.Script, *muster.Checkpoint, *muster.Gang, *muster.Mount, *muster.Secret:
		if n.kind == object {
			return false // field by field
		}
	case *muster.Command:
		if n.kind == list {
			var argv []string
			d.decodeList(n, reflect.ValueOf(&argv).Elem(), path)
			*target = muster.Command{Argv: append([]string{}, argv...)}
			return true
		}
	case *muster.SweepParameter:
		if n.kind == list {
			d.decodeList(n, reflect.ValueOf(&target.Values).Elem(), path)
			return true
		}
		if n.kind == object {
			return false
		}
	case *muster.Matrix:
		if n.kind == object {
			d.decodeMatrix(n, target, path)
			return true
		}
	}
	d.unmarshal(n, target, path)
	return true
}

// unmarshal passes a node as JSON to target.
func (d *decoder) unmarshal(n *node, target json.Unmarshaler, path string) {
	if err := target.UnmarshalJSON(n.json()); err != nil {
		d.report(path, n.at, "", "%.1000s", err) // it may quote the document
	}
}

// decodeMatrix reads axis by axis.
func (d *decoder) decodeMatrix(n *node, m *muster.Matrix, path string) {
	if len(n.fields) > maxMembers {
		d.report(path, n.at, "", "%d axes are too many", len(n.fields))
		return
	}
	for _, f := range n.fields {
		at := joinPath(path, f.name)
		d.recordPlace(at, f.value.at)
		valid := true
		axis := &node{kind: f.value.kind, at: f.value.at, text: f.value.text, number: f.value.number, fields: f.value.fields}
		for i, item := range f.value.items {
			where := indexPath(at, i)
			d.recordPlace(where, item.at)
			s, ok := d.decodeText(item, where)
			valid = valid && ok
			axis.items = append(axis.items, &node{kind: text, at: item.at, text: s})
		}
		if !valid {
			continue
		}
		var one muster.Matrix
		d.unmarshal(&node{kind: object, at: f.value.at, fields: []field{{name: f.name, at: f.at, value: axis}}}, &one, at)
		m.Axes = append(m.Axes, one.Axes...)
	}
}
