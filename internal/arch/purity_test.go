package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// clock lists what of package time depends on the moment at which it is called.
var clock = []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep"}

// checkPurity checks that pure packages get the time as an argument and start no goroutine. rules_test.go has the imports that they may not
// have.
func checkPurity(t *testing.T, f file) {
	t.Helper()
	if r, ok := rules[f.pkg]; !ok || r.ring > pure || f.test {
		return
	}
	for _, use := range impurities(f.ast) {
		t.Errorf("%s: package %q is pure, and must not use %s", f.path, f.pkg, use)
	}
}

// impurities names the uses of the clock and of goroutines in a file.
func impurities(f *ast.File) []string {
	var found []string
	var names []string // of package time in this file
	for _, imp := range f.Imports {
		if imp.Path.Value != `"time"` {
			continue
		}
		name := "time"
		if imp.Name != nil {
			name = imp.Name.Name
		}
		if name == "." {
			found = append(found, "package time without its name")
		}
		names = append(names, name)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, "a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(names, x.Name) && slices.Contains(clock, n.Sel.Name) {
				found = append(found, "time."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

func TestImpurities(t *testing.T) {
	for src, want := range map[string]string{
		`import "time"; var d = time.Second; func f(now time.Time) time.Time { return now.Add(d) }`: "[]",
		`import "time"; func f() time.Time { return time.Now() }`:                                   "[time.Now]",
		`import "time"; var now = time.Now`:                                                         "[time.Now]",
		`import clock "time"; func f() { clock.Sleep(1) }`:                                          "[time.Sleep]",
		`import . "time"; func f() { Sleep(1) }`:                                                    "[package time without its name]",
		`func f() { go f() }`:                                                                       "[a goroutine]",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(impurities(f)); got != want {
			t.Errorf("%s: %s, want %s", src, got, want)
		}
	}
}
