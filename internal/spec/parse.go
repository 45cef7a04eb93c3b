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

	"github.com/goccy/go-yaml/ast"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/specvalidate"
)

// MaxFileSize is the most bytes of a file of specs.
const MaxFile = muster.MaxSpecSize

const maxWrong = 100 // problems reported at once

// Parse reads all jobs of a YAML or JSON file. The specs are as written: not
// normalized, but valid. name stands for the file in messages. If anything is
// wrong, nothing is returned but an InvalidSpec error with all that is wrong in
// Fields, in the order of the file, each with line and column; or a TooLarge
// one.
func Parse(data []byte, name string) ([]*muster.Spec, error) {
	return ParseContext(context.Background(), data, name, nil)
}

// ParseContext is Parse with one more check of each job, for what needs the machine on which the file is. The check may
// change the job; what it finds gets its place like everything else. Once ctx is done, it ends with an Unavailable error at the
// next step. The steps are the passes over the file, of which the library's two cannot be stopped, and each
// document; none takes more than a tenth of a second on a usual machine.
func ParseContext(ctx context.Context, data []byte, name string, check func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error) {
	if len(data) > MaxFile {
		return nil, muster.Errorf(muster.TooLarge, "%s is %s: a file of job specs is at most %s; bring data as files or input artifacts",
			name, muster.Size(len(data)), muster.Size(MaxFile))
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if at, bad := findInvalidUTF8(data); bad {
		return nil, invalid(name, []muster.FieldError{{Line: at.line, Column: at.column, Message: "the file is not UTF-8 text"}})
	}
	specs, wrong := parseDocuments(ctx, data, check)
	if err := ctx.Err(); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "%s was not read to its end: %w", name, err)
	}
	if len(wrong) > 0 {
		return nil, invalid(name, wrong)
	}
	return specs, nil
}

// parseDocuments reads each document of a file, until ctx is done.
func parseDocuments(ctx context.Context, data []byte, check func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, []muster.FieldError) {
	if json.Valid(data) {
		d := newDecoder(check)
		s := d.decodeJob(d.fromJSON(data))
		return []*muster.Spec{s}, d.wrong
	}
	docs, budget, bad := yamlDocuments(ctx, string(data))
	if bad != nil {
		return nil, []muster.FieldError{*bad}
	}
	var specs []*muster.Spec
	var wrong []muster.FieldError
	for _, doc := range docs {
		if ctx.Err() != nil {
			return nil, nil
		}
		if isEmptyDocument(doc) {
			continue
		}
		d := newDecoder(check)
		s := d.decodeJob(d.fromYAML(doc.Body, &budget))
		specs, wrong = append(specs, s), append(wrong, d.wrong...)
		if len(specs) > maxDocuments || len(wrong) > maxWrong {
			break
		}
	}
	switch {
	case len(specs) == 0:
		wrong = append(wrong, muster.FieldError{Line: 1, Column: 1, Message: "there is no job in this file", Hint: "write at least run: and a command"})
	case len(specs) > maxDocuments:
		wrong = append(wrong, muster.FieldError{Line: 1, Column: 1, Message: fmt.Sprintf("there are more than %d documents in this file", maxDocuments)})
	}
	return specs, wrong
}

func newDecoder(extraCheck func(*muster.Spec) []muster.FieldError) *decoder {
	return &decoder{places: make(map[string]place), raw: make(map[string]*node), extraCheck: extraCheck}
}

// isEmptyDocument reports whether a document has only comments or directives.
func isEmptyDocument(doc *ast.DocumentNode) bool {
	switch doc.Body.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode, *ast.DirectiveNode:
		return true
	default:
		return false
	}
}

// decodeJob reads one job and checks it.
func (d *decoder) decodeJob(n *node) *muster.Spec {
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
	size := 0
	for _, f := range n.fields {
		if !strings.HasPrefix(f.name, "x-") {
			size += jsonSize(f.name) + f.value.jsonSize()
		}
	}
	if size > 2*muster.MaxSpecSize { // there is no need to make it, which takes many times its size
		d.report("", n.at, "bring large inputs as files", "the spec is %s as JSON: at most %s are allowed", muster.Size(size), muster.Size(muster.MaxSpecSize))
		return s
	}
	d.flat = n.field("tasks") == nil
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
		case strings.HasPrefix(f.name, "x-"): // a place to put anchors
		case ofJob:
			d.decodeField(f, "", job)
		default:
			d.decodeField(f, path, structs...)
		}
	}
	if d.nodes < maxNodes {
		d.checkJob(s)
	}
	slices.SortStableFunc(d.wrong, func(a, b muster.FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return s
}

// checkJob adds what is wrong with the spec as a whole. After problems with
// single fields it keeps quiet about these, and about fields that are missing,
// because they may be the misspelled ones.
func (d *decoder) checkJob(s *muster.Spec) {
	misread := slices.Clone(d.wrong)
	n := s.Normalize()
	found := append(specvalidate.Spec(s), dag.Check(n)...)
	if d.extraCheck != nil {
		found = append(found, d.extraCheck(s)...)
	}
	for _, e := range found {
		at, exact := d.find(e.Path)
		e.Path, e.Line, e.Column = d.displayPath(e.Path), at.line, at.column
		explained := func(w muster.FieldError) bool {
			return strings.HasPrefix(w.Path, e.Path) || w.Line == e.Line && w.Column == e.Column
		}
		if len(misread) == 0 || exact && !slices.ContainsFunc(misread, explained) {
			d.wrong = append(d.wrong, e)
		}
	}
}

// find returns where the thing at a path stands, or else the nearest thing
// around it.
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

// invalid makes the error for a file.
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

func findInvalidUTF8(data []byte) (place, bool) {
	if utf8.Valid(data) {
		return place{}, false
	}
	at := place{1, 1}
	for len(data) > 0 {
		c, size := utf8.DecodeRune(data)
		if c == utf8.RuneError && size == 1 {
			break
		}
		at.column++
		if c == '\n' {
			at = place{at.line + 1, 1}
		}
		data = data[size:]
	}
	return at, true
}
