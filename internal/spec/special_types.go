package spec

import (
	"encoding/json"
	"reflect"

	"github.com/muster-dev/muster"
)

// decodeSpecial sets v if its type has a JSON form of its own, and reports whether it has.
// The forms themselves are known to package muster only; here the parts are
// looked at one by one, so that a problem gets its exact place.
func (d *decoder) decodeSpecial(n *node, v reflect.Value, path string) bool {
	target, ok := reflect.TypeAssert[json.Unmarshaler](v.Addr())
	if !ok {
		return false
	}
	switch target := target.(type) {
	case *muster.Script, *muster.Checkpoint, *muster.Gang, *muster.Mount:
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
	case *muster.Matrix:
		if n.kind == object {
			d.decodeMatrix(n, target, path)
			return true
		}
	}
	d.unmarshal(n, target, path)
	return true
}

// unmarshal lets a type read a node as JSON.
func (d *decoder) unmarshal(n *node, target json.Unmarshaler, path string) {
	if err := target.UnmarshalJSON(n.json()); err != nil {
		d.report(path, n.at, "", "%.1000s", err) // it may quote what is in the document
	}
}

// decodeMatrix reads axis by axis.
func (d *decoder) decodeMatrix(n *node, m *muster.Matrix, path string) {
	if len(n.fields) > muster.MaxStages {
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
