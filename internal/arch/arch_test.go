package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	maxFile      = 600  // lines
	maxTestFile  = 900  // lines
	maxPackage   = 5000 // lines without tests
	maxInterface = 8    // methods
)

var bannedNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "shared", "manager"}

type file struct {
	path  string // from the root of the module, slash-separated
	pkg   string // its folder, without "internal/"; "" for the root
	test  bool
	lines int
	ast   *ast.File
	fset  *token.FileSet
}

// TestConventions checks every Go file of the module.
func TestConventions(t *testing.T) {
	files := parse(t, filepath.Join("..", ".."))
	if len(files) < 50 {
		t.Fatalf("only %d Go files found: the walk is broken", len(files))
	}
	size := map[string]int{}
	used := map[string]bool{}
	for _, f := range files {
		size[f.pkg] += f.lines * b2i(!f.test)
		used[f.pkg] = true
		checkImports(t, f)
		checkSize(t, f)
		checkNames(t, f)
		checkInterfaces(t, f)
		checkPurity(t, f)
		checkRegexps(t, f)
	}
	checkServer(t, files)
	for _, pkg := range slices.Sorted(maps.Keys(size)) {
		if size[pkg] > maxPackage && rules[pkg].ring != testOnly {
			t.Errorf("package %q has %d lines, the cap is %d: split it", pkg, size[pkg], maxPackage)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(rules)) {
		if !used[pkg] {
			t.Errorf("the rule for %q has no package: delete it", pkg)
		}
	}
}

func parse(t *testing.T, root string) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if n := d.Name(); rel != "." && (strings.HasPrefix(n, ".") || n == "testdata" || n == "node_modules" || n == "tools" || n == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(rel)), "internal/")
		if pkg == "." {
			pkg = ""
		}
		files = append(files, file{path: rel, pkg: pkg, test: strings.HasSuffix(rel, "_test.go"), lines: bytes.Count(src, []byte("\n")), ast: parsed, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func checkImports(t *testing.T, f file) {
	t.Helper()
	r, ok := rules[f.pkg]
	if !ok {
		t.Errorf("%s: package %q has no import rule: give it a ring in rules_test.go", f.path, f.pkg)
		return
	}
	if f.test {
		return
	}
	for _, imp := range f.ast.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !r.allowed(path) {
			t.Errorf("%s: package %q must not import %q", f.path, f.pkg, path)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, module+"/"), "internal/")
		if target, ok := rules[name]; ok && strings.HasPrefix(path, module+"/") && target.ring == testOnly && r.ring != testOnly {
			t.Errorf("%s: %q is for tests only", f.path, path)
		}
	}
}

// checkServer checks on what the server depends, also indirectly.
func checkServer(t *testing.T, files []file) {
	t.Helper()
	imports := map[string][]string{}
	for _, f := range files {
		for _, imp := range f.ast.Imports {
			name, ok := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"/internal/")
			if !ok || f.test {
				continue
			}
			imports[f.pkg] = append(imports[f.pkg], name)
			if slices.Contains(serverdOnly, name) && f.pkg != "serverd" && rules[f.pkg].ring != testOnly {
				t.Errorf("%s: only package serverd may import %q", f.path, name)
			}
		}
	}
	reached := map[string]bool{"serverd": true}
	for queue := []string{"serverd"}; len(queue) > 0; queue = queue[1:] {
		for _, name := range imports[queue[0]] {
			if listed(notInServer, name) {
				t.Errorf("the server depends on %q: package %q imports it", name, queue[0])
			}
			if !reached[name] {
				reached[name] = true
				queue = append(queue, name)
			}
		}
	}
	if !reached["api"] || !reached["engine"] {
		t.Error("package serverd imports neither api nor engine: the check is broken")
	}
}

func checkSize(t *testing.T, f file) {
	t.Helper()
	limit := maxFile
	if f.test || rules[f.pkg].ring == testOnly {
		limit = maxTestFile
	}
	if f.lines > limit {
		t.Errorf("%s has %d lines, the cap is %d", f.path, f.lines, limit)
	}
}

func checkNames(t *testing.T, f file) {
	t.Helper()
	stem := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(f.path), ".go"), "_test")
	for part := range strings.SplitSeq(f.pkg+"/"+stem, "/") {
		if slices.Contains(bannedNames, part) {
			t.Errorf("%s: %q is no name: say what it does", f.path, part)
		}
	}
}

func checkInterfaces(t *testing.T, f file) {
	t.Helper()
	ast.Inspect(f.ast, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if in, ok := spec.Type.(*ast.InterfaceType); ok && in.Methods.NumFields() > maxInterface {
			t.Errorf("%s: interface %s has %d methods, the cap is %d", f.path, spec.Name.Name, in.Methods.NumFields(), maxInterface)
		}
		return true
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
