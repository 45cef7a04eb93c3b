package spec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// yamlDocuments returns the contents of the documents of a file that are not empty, at most maxDocuments+1. It returns nothing
// if ctx ends.
func yamlDocuments(ctx context.Context, data string) ([]*yaml.Node, *muster.FieldError) {
	if tooMuch := checkCost(data, 1, len(data)); tooMuch != nil {
		o := newOutline(data)
		if wrong := checkCost(o.text, 2, len(data)); wrong != nil {
			return nil, o.originalLine(wrong)
		}
		docs, err := loadYAML(ctx, o.text)
		if err != nil {
			return nil, o.originalLine(syntaxError(err, o.text))
		}
		if !o.matches(docs) { // a line in quotes looks like the header of a block scalar
			return nil, tooMuch
		}
	}
	docs, err := loadYAML(ctx, data)
	if err != nil {
		return nil, syntaxError(err, data)
	}
	return docs, nil
}

// depthLimit is a yaml.LoaderLimitsPlugin. What the library does for a level takes time for each token within it.
type depthLimit struct{}

// CheckDepth implements yaml.LoaderLimitsPlugin. A level of a spec has at most three of the library.
func (depthLimit) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > 3*maxDepth {
		return errTooDeep
	}
	return nil
}

// CheckAlias implements yaml.LoaderLimitsPlugin. The nodes that aliases expand to are counted here, not by the library.
func (depthLimit) CheckAlias(int, int) error { return nil }

var errTooDeep = fmt.Errorf("the nesting is deeper than %d levels", maxDepth)

// yamlVersion matches a directive with a version of YAML. The library accepts only 1.1, and reads all versions alike.
var yamlVersion = lazyregexp.New(`(?m)^%(YAML +1\.\d+\s*)$`)

func loadYAML(ctx context.Context, data string) (docs []*yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil { // a bug of the library must not end the server
			docs, err = nil, fmt.Errorf("it cannot be read: %v", r)
		}
	}()
	if strings.Contains(data, "%YAML") {
		data = yamlVersion.Get().ReplaceAllString(data, "#$1")
	}
	loader, err := yaml.NewLoader(strings.NewReader(data), yaml.WithPlugin(depthLimit{}))
	if err != nil {
		return nil, err
	}
	for len(docs) <= maxDocuments && ctx.Err() == nil {
		var doc yaml.Node
		if err := loader.Load(&doc); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return nil, err
		}
		if len(doc.Content) == 1 && doc.Content[0].ShortTag() != "!!null" {
			docs = append(docs, doc.Content[0])
		}
	}
	return docs, nil
}

// syntaxError translates an error of the library. Its place is where a bracket or quote is opened that is not closed, or
// else where the library stopped.
func syntaxError(err error, data string) *muster.FieldError {
	e := &muster.FieldError{Line: 1, Column: 1, Message: "invalid YAML: " + err.Error(), Hint: `a string with ": " or " #" in it, or with a special first character, needs quotes`}
	bad, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return e
	}
	if bad.Message == errTooDeep.Error() {
		return &muster.FieldError{Line: bad.Mark.Line, Column: bad.Mark.Column, Message: bad.Message}
	}
	e.Message = "invalid YAML: " + bad.Message
	if bad.ContextMsg != "" {
		e.Message += ", " + bad.ContextMsg
	}
	switch bad.Stage {
	case yaml.ReaderStage:
		mark := len(data) - len(strings.TrimPrefix(data, "\uFEFF")) // at the beginning it is allowed
		if i := strings.IndexFunc(data[mark:], isForbidden); i >= 0 {
			at := placeOf([]byte(data[mark : mark+i]))
			e.Line, e.Column, e.Hint = int(at.line), int(at.column), `write such characters in double quotes, as "\x1b"`
		}
	case yaml.ComposerStage: // an unknown anchor
		e.Hint = "a string that begins with * needs quotes"
	default:
	}
	at := bad.Mark
	if at.Line > 0 && runeAt(data, at.Index) == '\t' {
		return &muster.FieldError{Line: at.Line, Column: at.Column, Message: "a tab indents the line", Hint: "use spaces"}
	}
	if opened := bad.ContextMark; opened.Line > 0 && (opened.Line < at.Line || runeAt(data, at.Index) == 0) &&
		(strings.ContainsRune(`[{"'`, runeAt(data, opened.Index)) || bad.Stage == yaml.ScannerStage && runeAt(data, at.Index) != '\t') {
		at = opened
	}
	if at.Line > 0 {
		e.Line, e.Column = at.Line, at.Column
	}
	return e
}

// isForbidden reports whether a character must not be in a YAML file.
func isForbidden(r rune) bool {
	return r < ' ' && !strings.ContainsRune("\t\r\n", r) || r >= '\u007F' && r < '\u00A0' && r != '\u0085' || r == '\uFEFF' || r == '\uFFFE' || r == '\uFFFF'
}

func runeAt(data string, index int) rune {
	for _, c := range data {
		if index == 0 {
			return c
		}
		index--
	}
	return 0
}

// yamlReader converts the library's nodes of one document.
type yamlReader struct {
	*builder
	open map[*yaml.Node]bool // values of the anchors that are being read
}

func (b *builder) fromYAML(y *yaml.Node) *node {
	r := yamlReader{builder: b, open: make(map[*yaml.Node]bool)}
	return r.value(y, 0)
}

func (r *yamlReader) value(y *yaml.Node, depth int) *node {
	n := &node{at: newPlace(y.Line, y.Column)}
	if r.countNode(n.at, depth) {
		return n
	}
	switch {
	case y.Style&yaml.TaggedStyle != 0:
		r.addProblem(n.at, "put strings in quotes", "the tag "+muster.Truncate(y.Tag)+" is not supported")
		n.kind = reported
	case y.Kind == yaml.ScalarNode:
		r.scalar(n, y)
	case y.Kind == yaml.SequenceNode:
		n.kind = list
		for _, item := range y.Content {
			if r.tooManyNodes() {
				break
			}
			n.items = append(n.items, r.value(item, depth+1))
		}
	case y.Kind == yaml.MappingNode:
		r.object(n, y.Content, depth)
	case r.open[y.Alias]:
		r.addProblem(n.at, "", "the value of the anchor "+muster.Truncate(y.Value)+" contains itself")
		n.kind = reported
	default: // an alias
		r.open[y.Alias] = true
		n = r.value(y.Alias, depth+1)
		delete(r.open, y.Alias)
	}
	return n
}

func (r *yamlReader) scalar(n *node, y *yaml.Node) {
	n.kind, n.text = text, y.Value
	switch y.ShortTag() {
	case "!!null":
		n.kind = null
	case "!!bool":
		n.kind = boolean
	case "!!int", "!!float":
		if s, ok := jsonNumber(y.Value); ok {
			n.kind, n.number = number, s
		}
	}
}

// jsonNumber returns a YAML number as JSON. A number that begins with 0 is octal in one YAML version, and decimal in another;
// it is only valid as a string, such as a date.
func jsonNumber(s string) (string, bool) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsInf(f, 0) && json.Valid([]byte(s)) {
		return s, true
	}
	s = strings.ReplaceAll(s, "_", "")
	if digits := strings.TrimLeft(s, "+-"); len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		return "", false
	}
	if i, err := strconv.ParseInt(s, 0, 64); err == nil {
		return strconv.FormatInt(i, 10), true
	}
	f, err := strconv.ParseFloat(s, 64)
	return strconv.FormatFloat(f, 'g', -1, 64), err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
}

// object adds the members of a mapping, whose names and values alternate. Members of the mapping override those merged
// with <<.
func (r *yamlReader) object(n *node, content []*yaml.Node, depth int) {
	n.kind = object
	seen := make(map[string]bool)
	var merged []*node
	for i := 0; i+1 < len(content) && !r.tooManyNodes(); i += 2 {
		key, value := content[i], content[i+1]
		at := newPlace(key.Line, key.Column)
		switch {
		case key.Kind != yaml.ScalarNode || key.Style&yaml.TaggedStyle != 0:
			r.addProblem(at, "", "the name of a field must be a plain string")
		case key.ShortTag() == "!!merge":
			merged = append(merged, r.merge(value, depth)...)
		default:
			r.addField(n, seen, field{name: key.Value, at: at, value: r.value(value, depth+1)})
		}
	}
	for _, o := range merged {
		for _, f := range o.fields {
			if !seen[f.name] {
				seen[f.name] = true
				n.fields = append(n.fields, f)
			}
		}
	}
}

// merge returns the objects that << refers to, in order of precedence.
func (r *yamlReader) merge(y *yaml.Node, depth int) []*node {
	n := r.value(y, depth+1)
	sources := []*node{n}
	if n.kind == list {
		sources = n.items
	}
	for _, s := range sources {
		if s.kind != object {
			r.addProblem(n.at, "", "<< needs an alias of an object, or a list of these")
			return nil
		}
	}
	return sources
}
