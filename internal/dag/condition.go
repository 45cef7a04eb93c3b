package dag

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"

	"github.com/muster-dev/muster"
)

// Limits of conditions, in bytes. Checking one takes about 1 µs and 100 bytes of memory per byte.
const (
	MaxCondition  = 1 << 10   // of a stage
	MaxConditions = 256 << 10 // of a job
)

// Condition evaluates the condition of a stage whose needs have ended: an expression in a part of the language of
// github.com/expr-lang/expr without loops, in which references such as ${train.result.accuracy} stand for values. It takes time and memory
// in proportion to the sizes of the expression and the values. It is true for a stage without an expression. An error says why it has
// no value: a result is missing, or the types do not fit.
func (g *Graph) Condition(stage int, result ResultFunc) (bool, error) {
	text := g.spec.Tasks[stage].WhenExpression()
	if text == "" {
		return true, nil
	}
	fail := func(err error) (bool, error) {
		return false, muster.Errorf(muster.Invalid, "when: %s: %w", text, err)
	}
	program, bodies, err := compileCondition(text)
	if err != nil {
		return fail(err)
	}
	g.forget()
	values := make(map[string]any, len(bodies))
	for i, body := range bodies {
		v, err := g.resolveRef(body, result)
		if err != nil {
			return fail(fmt.Errorf("${%s}: %w", body, err))
		}
		values[variable(i)] = plainValue(withoutURLs(v))
	}
	v, err := expr.Run(program, values)
	if err != nil {
		return fail(firstLine(err))
	}
	met, ok := v.(bool)
	if !ok {
		return fail(fmt.Errorf("the value is %s, not true or false", muster.Truncate(fmt.Sprint(v))))
	}
	return met, nil
}

// compileCondition compiles an expression, and returns the bodies of its references, which are the variables of the program.
func compileCondition(text string) (*vm.Program, []string, error) {
	var source strings.Builder
	var bodies []string
	for _, p := range split(text, func(string) bool { return true }) {
		if !p.ref {
			source.WriteString(p.text)
			continue
		}
		if quoted(source.String()) {
			return nil, nil, muster.Errorf(muster.Invalid, "write ${%s} without quotes", p.text)
		}
		source.WriteString(variable(len(bodies)))
		bodies = append(bodies, p.text)
	}
	tree, err := parser.Parse(source.String())
	if err != nil {
		return nil, nil, firstLine(err)
	}
	var check languageCheck
	if ast.Walk(&tree.Node, &check); check.refused != "" { // before Compile, which evaluates constants
		return nil, nil, muster.Errorf(muster.Invalid, "%s is not available in a condition", check.refused)
	}
	// Without the types of the values: they are known only when the stages have ended.
	program, err := expr.Compile(source.String(), expr.AllowUndefinedVariables())
	if err != nil {
		return nil, nil, firstLine(err)
	}
	return program, bodies, nil
}

// What a condition may have. No part of it is repeated, and its value depends on those of the references only.
var (
	conditionOperators = []string{"==", "!=", "<", "<=", ">", ">=", "and", "&&", "or", "||", "in", "+", "-", "*", "/", "%", "contains", "startsWith", "endsWith", "??"}
	conditionFunctions = []string{"len", "min", "max", "sum", "mean", "median", "abs", "round", "floor", "ceil", "int", "float", "lower", "upper", "trim"}
)

const otherPart = "a part that calls, repeats or defines something"

// languageCheck finds the first part of an expression that conditions may not have.
type languageCheck struct{ refused string }

// Visit implements ast.Visitor.
func (c *languageCheck) Visit(node *ast.Node) {
	refuse := func(what string) {
		if c.refused == "" {
			c.refused = what
		}
	}
	switch n := (*node).(type) {
	case *ast.NilNode, *ast.IdentifierNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode,
		*ast.UnaryNode, *ast.ConditionalNode, *ast.ChainNode, *ast.MemberNode, *ast.SliceNode, *ast.ArrayNode:
	case *ast.BinaryNode:
		if !slices.Contains(conditionOperators, n.Operator) {
			refuse("the operator " + n.Operator)
		}
	case *ast.BuiltinNode:
		if !slices.Contains(conditionFunctions, n.Name) {
			refuse("the function " + n.Name)
		}
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok && slices.Contains(conditionFunctions, callee.Value) {
			return
		}
		refuse(otherPart)
	default:
		refuse(otherPart)
	}
}

func variable(i int) string { return "ref_" + strconv.Itoa(i) }

// quoted reports whether source ends within a string.
func quoted(source string) bool {
	var open byte
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case open != 0 && open != '`' && c == '\\':
			i++
		case c == open:
			open = 0
		case open == 0 && (c == '"' || c == '\'' || c == '`'):
			open = c
		}
	}
	return open != 0
}

// firstLine returns an error of the library without the picture of the source, which has other names than the spec.
func firstLine(err error) error {
	line, _, _ := strings.Cut(err.Error(), "\n")
	if i := strings.LastIndex(line, " ("); i > 0 && strings.HasSuffix(line, ")") { // the position
		line = line[:i]
	}
	return muster.Errorf(muster.Invalid, "%s", line)
}

// plainValue returns a decoded JSON value with numbers that expressions compute with.
func plainValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.Atoi(v.String()); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = plainValue(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainValue(v[k])
		}
	}
	return v
}
