package spec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/muster-dev/muster"
)

// yamlDocuments parses a file. It rejects input that would make the parser slow or
// overflow its stack before it runs. budget is the number of bytes that reading the
// documents may allocate. Nothing is returned if ctx ends.
func yamlDocuments(ctx context.Context, data string) (docs []*ast.DocumentNode, budget int, wrong *muster.FieldError) {
	defer func() {
		if r := recover(); r != nil { // the parser panics on some malformed input
			docs, budget, wrong = nil, 0, &muster.FieldError{Line: 1, Column: 1, Message: "cannot parse the file as YAML", Hint: "simplify it, or write JSON"}
		}
	}()
	tokens, cost, wrong := tokenize(ctx, data)
	if wrong != nil {
		return nil, 0, wrong
	}
	if wrong := checkTokenCount(tokens); wrong != nil {
		return nil, 0, wrong
	}
	more, wrong := checkLimits(tokens, maxCost-cost)
	if wrong != nil {
		return nil, 0, wrong
	}
	if ctx.Err() != nil {
		return nil, 0, nil
	}
	tokens, n := dropEmptyDocuments(tokens)
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, 0, syntaxError(err)
	}
	if len(file.Docs) < n {
		return nil, 0, &muster.FieldError{Line: 1, Column: 1, Message: fmt.Sprintf("cannot parse more than %d of the %d documents", len(file.Docs), n), Hint: "split the file"}
	}
	// Aliases are also limited by the size of the file: a small file must not allocate much.
	return file.Docs, min(aliasesOfAny+len(data)*aliasesOfByte, maxCost-cost-more), nil
}

// tokenize returns the tokens of a file, and an estimate of its total allocations.
func tokenize(ctx context.Context, data string) (tokens token.Tokens, cost int, wrong *muster.FieldError) {
	short, replaced := shorten(data)
	for _, s := range replaced {
		cost += jsonSize(s.text) * readCost
	}
	cost, wrong = estimateCost(short, cost)
	if wrong != nil {
		wrong.Line = replaced.originalPlace(wrong.Line, 1).line
		return nil, cost, wrong
	}
	if ctx.Err() != nil {
		return nil, cost, nil
	}
	tokens = lexer.Tokenize(short)
	if len(replaced) == 0 || replaced.restore(tokens) {
		return tokens, cost, nil
	}
	if cost, wrong = estimateCost(data, cost); wrong != nil {
		return nil, cost, wrong
	}
	return lexer.Tokenize(data), cost, nil
}

// dropEmptyDocuments removes documents without content, after which the parser would
// stop, and returns the number of others.
func dropEmptyDocuments(tokens token.Tokens) (all token.Tokens, n int) {
	var doc token.Tokens
	content := false
	flush := func() {
		if content {
			all = append(all, doc...)
			n++
		}
		doc, content = nil, false
	}
	for _, t := range tokens {
		switch t.Type {
		case token.DocumentHeaderType:
			flush()
		case token.CommentType, token.DocumentEndType:
		default:
			content = true
		}
		doc = append(doc, t)
	}
	flush()
	return all, n
}

func syntaxError(err error) *muster.FieldError {
	e := &muster.FieldError{Line: 1, Column: 1, Hint: `a string with ": " or " #" in it, or with a special first character, needs quotes`}
	at, ok := errors.AsType[yaml.Error](err)
	if !ok {
		e.Message = err.Error()
	} else { // its Error prints the whole file, in quadratic time
		e.Message = at.GetMessage()
		if tok := at.GetToken(); tok != nil && tok.Position != nil {
			e.Line, e.Column = tok.Position.Line, tok.Position.Column
		}
	}
	e.Message = "invalid YAML: " + e.Message
	return e
}

// yamlReader converts the parser's nodes of one document.
type yamlReader struct {
	*builder
	anchors map[string]ast.Node
	aliases int  // nesting depth of the aliases being read
	budget  *int // bytes that reading the values of aliases may allocate
}

func (b *builder) fromYAML(body ast.Node, budget *int) *node {
	r := &yamlReader{builder: b, anchors: make(map[string]ast.Node), budget: budget}
	return r.value(body, 0)
}

func placeOf(n ast.Node) place {
	if tok := n.GetToken(); tok != nil && tok.Position != nil {
		return place{tok.Position.Line, tok.Position.Column}
	}
	return place{1, 1}
}

func (r *yamlReader) value(y ast.Node, depth int) *node {
	if y == nil {
		return &node{at: place{1, 1}}
	}
	n := &node{at: placeOf(y)}
	if r.countNode(n.at, depth) {
		return n
	}
	r.charge(n.at, valueCost)
	switch y := y.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		n.kind, n.text = boolean, y.Token.Value
	case *ast.IntegerNode:
		r.number(n, y.Token.Value, fmt.Sprint(y.Value))
	case *ast.FloatNode:
		r.number(n, y.Token.Value, strconv.FormatFloat(y.Value, 'g', -1, 64))
	case *ast.InfinityNode:
		r.text(n, y.Token.Value)
	case *ast.NanNode:
		r.text(n, y.Token.Value)
	case *ast.StringNode:
		if y.Token.Type == token.StringType && jsonNumber(y.Value) { // 1e-3, which the parser reads as a string
			r.number(n, y.Value, y.Value)
			break
		}
		r.text(n, y.Value)
	case *ast.LiteralNode:
		r.text(n, y.Value.Value)
	case *ast.SequenceNode:
		n.kind = list
		for _, item := range y.Values {
			if r.nodes >= maxNodes {
				break
			}
			if whole, ok := colonText(item); ok {
				n.items = append(n.items, &node{kind: text, at: placeOf(whole.Key), text: whole.Key.GetToken().Value + ":" + whole.Value.GetToken().Value})
				continue
			}
			n.items = append(n.items, r.value(item, depth+1))
		}
	case *ast.MappingNode:
		if !y.IsFlowStyle && len(y.Values) > 0 {
			n.at = placeOf(y.Values[0].Key)
		}
		r.object(n, y.Values, depth)
	case *ast.MappingValueNode:
		n.at = placeOf(y.Key)
		r.object(n, []*ast.MappingValueNode{y}, depth)
	case *ast.AnchorNode:
		n = r.value(y.Value, depth+1)
		r.anchors[y.Name.GetToken().Value] = y.Value // only now, so that it cannot contain itself
	case *ast.AliasNode:
		return r.alias(n, y, depth)
	case *ast.TagNode:
		r.addProblem(n.at, "put strings in quotes", "the tag "+muster.Truncate(y.Start.Value)+" is not supported")
		n.kind = reported
	default:
		r.addProblem(n.at, "", "this YAML feature is not supported in a job spec")
		n.kind = reported
	}
	return n
}

// colonText recognizes a plain scalar with a colon, such as exit:75, as an item of a
// list in brackets: in YAML it is a string, but the parser reads an object.
func colonText(y ast.Node) (*ast.MappingValueNode, bool) {
	if m, ok := y.(*ast.MappingNode); ok && len(m.Values) == 1 && m.Start.Type != token.MappingStartType {
		y = m.Values[0]
	}
	m, ok := y.(*ast.MappingValueNode)
	if !ok {
		return nil, false
	}
	key, colon, value := m.Key.GetToken(), m.Start, m.Value.GetToken()
	if key.Type != token.StringType || colon.Position.Line != value.Position.Line {
		return nil, false
	}
	if _, scalar := m.Value.(ast.ScalarNode); !scalar {
		return nil, false
	}
	plain := value.Indicator != token.QuotedScalarIndicator
	return m, plain && value.Position.Column == colon.Position.Column+1
}

func (r *yamlReader) alias(n *node, y *ast.AliasNode, depth int) *node {
	name := y.Value.GetToken().Value
	target, ok := r.anchors[name]
	if !ok {
		r.addProblem(n.at, "a string that begins with * needs quotes", "unknown anchor "+muster.Truncate(name))
		n.kind = reported
		return n
	}
	r.aliases++
	defer func() { r.aliases-- }()
	return r.value(target, depth+1)
}

// charge counts allocations for the values of aliases; those for the rest of the file were estimated before.
func (r *yamlReader) charge(at place, bytes int) {
	if r.aliases == 0 || r.nodes >= maxNodes {
		return
	}
	if *r.budget -= bytes; *r.budget < 0 {
		r.addProblem(at, "aliases count each time they are used", "the aliases of the file expand to too much")
		r.nodes = maxNodes
	}
}

// text sets a string, which must be UTF-8 although YAML has escapes for any byte.
func (r *yamlReader) text(n *node, s string) {
	if !utf8.ValidString(s) {
		r.addProblem(n.at, "", "the string is not UTF-8")
		s = strings.ToValidUTF8(s, "�")
	}
	n.kind, n.text = text, s
	r.charge(n.at, jsonSize(s)*readCost)
}

// number sets a number by its spelling and the parser's value.
func (r *yamlReader) number(n *node, spelled, value string) {
	n.kind, n.text, n.number = number, spelled, value
	digits := strings.TrimLeft(spelled, "+-")
	switch {
	case jsonNumber(spelled):
		n.number = spelled
	case len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9':
		// Octal in one YAML version, decimal in another: only valid as a string, such as a date.
		n.kind = text
	case !jsonNumber(value):
		n.kind = text
	}
}

func jsonNumber(s string) bool {
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') || !json.Valid([]byte(s)) {
		return false
	}
	f, err := strconv.ParseFloat(s, 64)
	return err == nil && !math.IsInf(f, 0)
}

// object adds the members of a mapping. Members of the mapping override those merged
// with <<.
func (r *yamlReader) object(n *node, members []*ast.MappingValueNode, depth int) {
	n.kind = object
	seen := make(map[string]bool)
	var merged []*node
	for _, m := range members {
		if r.nodes >= maxNodes {
			return
		}
		if m.Key.IsMergeKey() {
			merged = append(merged, r.merge(m.Value, depth)...)
			continue
		}
		name, ok := r.key(m.Key)
		if !ok {
			continue
		}
		r.addField(n, seen, field{name: name, at: placeOf(m.Key), value: r.value(m.Value, depth+1)})
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
func (r *yamlReader) merge(y ast.Node, depth int) []*node {
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

func (r *yamlReader) key(y ast.MapKeyNode) (string, bool) {
	n := &node{at: placeOf(y)}
	switch y := y.(type) {
	case *ast.StringNode:
		r.text(n, y.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		r.text(n, y.GetToken().Value)
	default:
		r.addProblem(n.at, "", "the name of a field must be a plain string")
		return "", false
	}
	return n.text, true
}
