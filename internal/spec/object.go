package spec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// DecodeObject reads one object of a YAML or JSON file into what v points to, a struct with the types that
// specs are made of. What check finds afterwards, by the paths of the fields, gets its place in the file; it is told together with
// the fields that cannot be read, but for what these explain. Errors are those of Parse.
func DecodeObject(data []byte, name string, v any, check func() []muster.FieldError) error {
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if at, problem := findInvalidUTF8(data); problem {
		return invalid(name, []muster.FieldError{{Line: at.line, Column: at.column, Message: "the file is not UTF-8 text"}})
	}
	d := newDecoder(nil)
	n, problem := d.singleDocument(data)
	if problem != nil {
		return invalid(name, []muster.FieldError{*problem})
	}
	d.decode(n, reflect.ValueOf(v).Elem(), "")
	if d.nodes < maxNodes && n.kind == object {
		misread := slices.Clone(d.wrong)
		for _, e := range check() {
			at, exact := d.find(e.Path)
			e.Line, e.Column = at.line, at.column
			explains := func(w muster.FieldError) bool {
				return strings.HasPrefix(w.Path, e.Path) || exact && w.Line == e.Line && w.Column == e.Column || w.Hint == didYouMean(e.Path)
			}
			if !slices.ContainsFunc(misread, explains) {
				d.wrong = append(d.wrong, e)
			}
		}
	}
	if len(d.wrong) == 0 {
		return nil
	}
	slices.SortStableFunc(d.wrong, func(a, b muster.FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return invalid(name, d.wrong)
}

// singleDocument returns the one document of a file.
func (d *decoder) singleDocument(data []byte) (*node, *muster.FieldError) {
	if json.Valid(data) {
		return d.fromJSON(data), nil
	}
	docs, budget, bad := yamlDocuments(context.Background(), string(data))
	if bad != nil {
		return nil, bad
	}
	docs = slices.DeleteFunc(docs, isEmptyDocument)
	if len(docs) != 1 {
		return nil, &muster.FieldError{Line: 1, Column: 1, Message: "the file has to hold one document, and it holds " + [...]string{"none", "several"}[min(len(docs), 1)]}
	}
	return d.fromYAML(docs[0].Body, &budget), nil
}
