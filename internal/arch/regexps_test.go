package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checkRegexps checks that no regular expression is compiled when the program starts, and that those which are compiled later are valid.
func checkRegexps(t *testing.T, f file) {
	t.Helper()
	if strings.HasPrefix(f.pkg, "gen/") || f.pkg == "testreport" || f.test { // programs of their own
		return
	}
	for _, problem := range regexpProblems(f.ast) {
		t.Errorf("%s: %s", f.path, problem)
	}
}

func regexpProblems(f *ast.File) []string {
	var found []string
	for _, d := range f.Decls {
		vars, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		ast.Inspect(vars, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				_, function := n.(*ast.FuncLit)
				return !function
			}
			switch name(call.Fun) {
			case "regexp.MustCompile", "regexp.Compile", "regexp.MustCompilePOSIX":
				found = append(found, "a regular expression is compiled whenever the program starts: use lazyregexp.New")
			case "lazyregexp.New":
				text, constant := stringValue(call.Args[0])
				if _, err := regexp.Compile(text); err != nil {
					found = append(found, err.Error())
				} else if !constant {
					found = append(found, "the argument of lazyregexp.New is no constant string, and cannot be checked")
				}
			}
			return true
		})
	}
	return found
}

// name returns the name of a function of a package, or "".
func name(e ast.Expr) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + sel.Sel.Name
}

// stringValue evaluates literals and their sums.
func stringValue(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, ok := stringValue(e.X)
		b, ok2 := stringValue(e.Y)
		return a + b, ok && ok2 && e.Op == token.ADD
	default:
		return "", false
	}
}

func TestRegexpProblems(t *testing.T) {
	for src, want := range map[string]int{
		"var a = lazyregexp.New(`^a` +\n \"b$\")":                    0,
		"var a = lazyregexp.New(`(`)":                                1,
		"var a = lazyregexp.New(b)":                                  1,
		"var a = regexp.MustCompile(`a`)":                            1,
		"var a = []any{regexp.MustCompile(`a`)}":                     1,
		"var a = func() any { return regexp.MustCompile(`a`) }":      0,
		"func f() bool { return regexp.MustCompile(`a`) != nil }":    0,
		"func f() { var a = regexp.MustCompile(`a`); a.Longest() }":  0,
		"type a struct{}; var ( b = 1; c = regexp.MustCompile(`b`))": 1,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := regexpProblems(f); len(got) != want {
			t.Errorf("%s: %s, want %d problems", src, slices.Clip(got), want)
		}
	}
}
