// Package spec parses job specs as users write them: YAML or JSON, one or several
// jobs per file, a job with its tasks or a single task in flat form. It reports all
// problems at once, each with its place and, if possible, a suggestion.
//
// A document becomes a tree of nodes with places (yaml.go, json.go); outline.go limits
// the memory that this takes. The tree is decoded into the structs of package muster by
// reflection (decode.go), so that there is no second list of fields. Then
// specvalidate.Normalized and dag.Check check the whole spec, and their problems get the
// places of their fields (parse.go).
//
// The input is limited: the size of a file, its nesting, the number of documents and
// of nodes after aliases are expanded. Scalars keep their spelling where a string is
// expected, so version: 3.10 is not 3.1.
package spec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/specvalidate"
)

// MaxFile is the maximum size of a file of specs, in bytes.
const MaxFile = muster.MaxSpecSize

const maxWrong = 100 // problems reported at once

// Parse reads all jobs of a YAML or JSON file. The specs are valid, but not
// normalized. name is the file's name in messages. Errors are TooLarge, or
// InvalidSpec with all problems in Fields, in the order of the file, each with line
// and column.
func Parse(data []byte, name string) ([]*muster.Spec, error) {
	return ParseContext(context.Background(), data, name, nil)
}

// ParseContext is Parse with an additional check of each job, which may be nil. The check may modify the job; its problems get
// their places, too. If ctx ends, it returns an Unavailable error at the next step. The steps are the passes over the file, of
// which the library's two cannot be interrupted, and each document; a step takes at most about a tenth of a second.
func ParseContext(ctx context.Context, data []byte, name string, check func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error) {
	return ParseParams(ctx, data, name, nil, check)
}

// ParseParams is ParseContext with values for the parameters that the jobs declare, in place of those in the file. A value is read
// as the type of its parameter. Those that no job declares are ignored: see CheckParams.
func ParseParams(ctx context.Context, data []byte, name string, given map[string]string, check func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error) {
	if len(data) > MaxFile {
		return nil, muster.Errorf(muster.TooLarge, "%s is larger than the maximum of %d bytes: pass data as files or input artifacts", name, MaxFile)
	}
	data, err := checkUTF8(data, name)
	if err != nil {
		return nil, err
	}
	specs, wrong := parseDocuments(ctx, data, given, check)
	if err := ctx.Err(); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "parsing %s was cancelled: %w", name, err)
	}
	if len(wrong) > 0 {
		return nil, invalid(name, wrong)
	}
	return specs, nil
}

// parseDocuments parses each document of a file, until ctx ends.
func parseDocuments(ctx context.Context, data []byte, given map[string]string, check func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, []muster.FieldError) {
	if json.Valid(data) {
		d := newDecoder(check)
		s := d.decodeJob(d.fromJSON(data), given)
		return []*muster.Spec{s}, d.wrong
	}
	docs, bad := yamlDocuments(ctx, string(data))
	if bad != nil {
		return nil, []muster.FieldError{*bad}
	}
	var specs []*muster.Spec
	var wrong []muster.FieldError
	nodes := 0
	for _, doc := range docs {
		if ctx.Err() != nil {
			return nil, nil
		}
		d := newDecoder(check)
		d.nodes, d.short = nodes, true
		s := d.decodeJob(d.fromYAML(doc), given)
		specs, wrong = append(specs, s), append(wrong, d.wrong...)
		if nodes = d.nodes; d.tooManyNodes() || len(wrong) > maxWrong {
			break
		}
	}
	switch {
	case len(specs) == 0:
		wrong = append(wrong, muster.FieldError{Line: 1, Column: 1, Message: "the file has no job", Hint: "write at least run: and a command"})
	case len(specs) > maxDocuments:
		wrong = append(wrong, muster.FieldError{Line: 1, Column: 1, Message: fmt.Sprintf("the file has more than %d documents", maxDocuments)})
	}
	return specs, wrong
}

func newDecoder(extraCheck func(*muster.Spec) []muster.FieldError) *decoder {
	return &decoder{builder: builder{maxNodes: maxNodes}, places: make(map[string]place), raw: make(map[string]*node), extraCheck: extraCheck}
}

// decodeJob decodes and checks one job, with the given values of its parameters.
func (d *decoder) decodeJob(n *node, given map[string]string) *muster.Spec {
	s := new(muster.Spec)
	if n.kind != object {
		hint := ""
		if n.kind == list {
			hint = "write the stages under tasks:, and put --- between several jobs"
		}
		d.report("", n.at, hint, "%s is not a job: write an object with run or tasks", n.describe())
		return s
	}
	d.places[""] = n.at
	used := node{at: n.at, fields: slices.DeleteFunc(slices.Clone(n.fields), func(f field) bool { return strings.HasPrefix(f.name, "x-") })}
	if d.tooLarge(&used) {
		return s
	}
	d.flat = n.field("tasks") == nil
	n, ok := d.expandParams(n, given)
	if !ok || d.tooLarge(n) {
		d.sortProblems()
		return s
	}
	job := reflect.ValueOf(s).Elem()
	structs := []reflect.Value{job}
	path := ""
	if d.flat {
		s.Tasks = make([]muster.TaskSpec, 1)
		d.places["tasks[0]"] = n.at
		structs = append(structs, reflect.ValueOf(&s.Tasks[0]).Elem())
		path = "tasks[0]"
	}
	for _, f := range n.fields {
		_, ofJob := fieldIndex(job.Type(), f.name)
		switch {
		case strings.HasPrefix(f.name, "x-"): // for anchors
		case ofJob:
			d.decodeField(f, "", job)
		default:
			d.decodeField(f, path, structs...)
		}
	}
	if !d.tooManyNodes() {
		d.checkJob(s)
	}
	d.sortProblems()
	return s
}

// tooLarge reports a value that is too large to be decoded, which takes many times its size.
func (d *decoder) tooLarge(n *node) bool {
	const limit = 2 * muster.MaxSpecSize
	if n.jsonSize(limit) <= limit {
		return false
	}
	d.report("", n.at, "pass large inputs as files", "the spec is more than %s as JSON: the maximum is %s", muster.Size(limit), muster.Size(muster.MaxSpecSize))
	return true
}

func (d *decoder) sortProblems() {
	slices.SortStableFunc(d.wrong, func(a, b muster.FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// checkJob adds problems with the whole spec. After problems with single fields it
// omits problems of these and of missing fields, which may be misspelled ones.
func (d *decoder) checkJob(s *muster.Spec) {
	misread := slices.Clone(d.wrong)
	n := s.Normalize()
	found := append(specvalidate.Normalized(n), dag.Check(n)...)
	if d.extraCheck != nil {
		found = append(found, d.extraCheck(s)...)
	}
	for _, e := range found {
		at, exact := d.find(e.Path)
		e.Path, e.Line, e.Column = d.displayPath(e.Path), int(at.line), int(at.column)
		explained := func(w muster.FieldError) bool {
			return strings.HasPrefix(w.Path, e.Path) || w.Line == e.Line && w.Column == e.Column
		}
		if len(misread) == 0 || exact && !slices.ContainsFunc(misread, explained) {
			d.wrong = append(d.wrong, e)
		}
	}
}

// find returns the place of a path, or else that of the nearest value around it.
func (d *decoder) find(path string) (at place, exact bool) {
	p := path[:min(len(path), maxPath+len("[1000000]"))]
	for {
		if at, ok := d.places[p]; ok && d.raw[p] == nil {
			return at, p == path
		}
		if n := d.raw[p]; n != nil {
			return n.find(path[len(p):], d.places[p])
		}
		i := strings.LastIndexAny(p, ".[")
		if i < 0 {
			return d.places[""], false
		}
		p = p[:i]
	}
}

// invalid returns the error for a file with problems.
func invalid(name string, wrong []muster.FieldError) error {
	e := muster.Errorf(muster.InvalidSpec, "%s: %s", name, wrong[0])
	if len(wrong) > 1 {
		e = muster.Errorf(muster.InvalidSpec, "%s: %d problems; the first: %s", name, len(wrong), wrong[0])
	}
	if len(wrong) > maxWrong {
		e.Message = fmt.Sprintf("%s: more than %d problems; the first: %s", name, maxWrong, wrong[0])
		wrong = wrong[:maxWrong]
	}
	e.Fields = wrong
	return e
}

// checkUTF8 returns data without a byte order mark, or an error if it is not UTF-8.
func checkUTF8(data []byte, name string) ([]byte, error) {
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if utf8.Valid(data) {
		return data, nil
	}
	valid := 0
	for c, size := utf8.DecodeRune(data); c != utf8.RuneError || size > 1; c, size = utf8.DecodeRune(data[valid:]) {
		valid += size
	}
	at := placeOf(data[:valid])
	return nil, invalid(name, []muster.FieldError{{Line: int(at.line), Column: int(at.column), Message: "the file is not UTF-8 text"}})
}

// DecodeObject reads the object of a YAML or JSON file into the struct to which v points; its fields have types as in specs.
// The problems that check returns afterwards, by the paths of the fields, get their places in the file. They are reported
// together with those of the decoding, unless these explain them. Errors are those of Parse.
func DecodeObject(data []byte, name string, v any, check func() []muster.FieldError) error {
	data, err := checkUTF8(data, name)
	if err != nil {
		return err
	}
	d := newDecoder(nil)
	n, problem := d.singleDocument(data)
	if problem != nil {
		return invalid(name, []muster.FieldError{*problem})
	}
	if d.tooLarge(n) {
		return invalid(name, d.wrong)
	}
	d.decode(n, reflect.ValueOf(v).Elem(), "")
	if !d.tooManyNodes() && n.kind == object {
		misread := slices.Clone(d.wrong)
		for _, e := range check() {
			at, exact := d.find(e.Path)
			e.Line, e.Column = int(at.line), int(at.column)
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
	d.sortProblems()
	return invalid(name, d.wrong)
}

// singleDocument returns the one document of a file.
func (d *decoder) singleDocument(data []byte) (*node, *muster.FieldError) {
	if json.Valid(data) {
		return d.fromJSON(data), nil
	}
	docs, bad := yamlDocuments(context.Background(), string(data))
	if bad != nil {
		return nil, bad
	}
	if len(docs) != 1 {
		return nil, &muster.FieldError{Line: 1, Column: 1, Message: "the file must have one document, and has " + [...]string{"none", "several"}[min(len(docs), 1)]}
	}
	return d.fromYAML(docs[0]), nil
}
