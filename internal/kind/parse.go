package kind

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
	"github.com/muster-dev/muster/internal/specvalidate"
	"github.com/muster-dev/muster/runtimes"
)

// Limits of definitions.
const (
	MaxFileSize   = 256 << 10 // bytes of a kind.yaml
	MaxCustomSize = 1 << 20   // bytes of all definitions that a worker tells of, see Write
)

const maxAbout = 300

// Core lists the kinds that are no definitions.
func Core() []string {
	return []string{muster.KindNoop, muster.KindProcess, muster.KindScript, muster.KindContainer}
}

// Custom is the kind that runs operations: see Kind.Operation.
const Custom = "custom"

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// Parse reads the definition in a folder and looks whether the files that it names are there. name stands for the
// folder in messages. Errors are those of ParseFile.
func Parse(dir fs.FS, name string) (*Kind, error) {
	file := path.Join(name, FileName)
	data, err := fs.ReadFile(dir, FileName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Invalid, "%s: there is no %s in this folder", name, FileName)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%s cannot be read: %w", file, err)
	}
	return mustParse(data, file, dir)
}

// ParseFile reads a kind.yaml; name stands for it in messages. If anything is wrong, the error is an InvalidSpec one with all that is
// wrong in Fields, with line and column, or a TooLarge one.
func ParseFile(data []byte, name string) (*Kind, error) { return mustParse(data, name, nil) }

func mustParse(data []byte, name string, dir fs.FS) (*Kind, error) {
	if len(data) > MaxFileSize {
		return nil, muster.Errorf(muster.TooLarge, "%s is %s: a definition is at most %s", name, muster.Size(len(data)), muster.Size(MaxFileSize))
	}
	k := new(Kind)
	if err := spec.DecodeObject(data, name, k, func() []muster.FieldError { return k.check(dir) }); err != nil {
		return nil, err
	}
	return k, nil
}

// EncodeList returns definitions as a worker tells the server of them. What only the worker needs is left out.
func EncodeList(kinds []*Kind) (json.RawMessage, error) {
	list := make([]Kind, 0, len(kinds))
	for _, k := range kinds {
		t := *k
		t.Env = nil
		list = append(list, t)
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "kinds cannot be written: %w", err)
	}
	if len(b) > MaxCustomSize {
		return nil, muster.Errorf(muster.TooLarge, "the kinds of a worker have %s: all together may have %s", muster.Size(len(b)), muster.Size(MaxCustomSize))
	}
	return b, nil
}

// DecodeList returns what Write was given. Nothing of one list is used if anything is wrong with it.
func DecodeList(raw json.RawMessage) ([]*Kind, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > MaxCustomSize {
		return nil, muster.Errorf(muster.TooLarge, "the kinds of a worker have %s: all together may have %s", muster.Size(len(raw)), muster.Size(MaxCustomSize))
	}
	var each []json.RawMessage
	if err := json.Unmarshal(raw, &each); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the kinds of a worker are no list of definitions: %w", err)
	}
	var kinds []*Kind
	for _, item := range each {
		k, err := ParseFile(item, "a kind of a worker")
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// checker collects what is wrong with a definition.
type checker struct {
	k     *Kind
	dir   fs.FS // nil: files are not looked for
	wrong []muster.FieldError
}

func (k *Kind) check(dir fs.FS) []muster.FieldError {
	c := &checker{k: k, dir: dir}
	c.name()
	if k.About == "" {
		c.add("about", "", "it is missing: write in one sentence what tasks of this kind do")
	} else if len(k.About) > maxAbout || strings.ContainsAny(k.About, "\r\n") {
		c.add("about", "", "write one sentence of at most %d bytes, in one line", maxAbout)
	}
	c.entry("entry", k.Entry, true)
	c.entry("warm", k.ModelHost, false)
	c.runtimes()
	c.stageFields()
	if !slices.Contains([]string{"", RunNo, RunOptional, RunRequired}, k.Run) {
		c.add("run", didYouMean(k.Run, []string{RunNo, RunOptional, RunRequired}), "%q cannot stand here: write no, may or must", k.Run)
	}
	if len(k.ModelHost) > 0 && len(k.MergeKey) == 0 {
		c.add("warm", "write merge_key: [model]", "it does not say which tasks can be served by one loaded model")
	}
	c.input()
	return c.wrong
}

func (c *checker) add(at, hint, format string, args ...any) {
	c.wrong = append(c.wrong, muster.FieldError{Path: at, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (c *checker) name() {
	switch n := c.k.Name; {
	case n == "":
		c.add("name", "", "it is missing: write how jobs name this kind")
	case !namePattern.MatchString(n) || len(n) > muster.MaxNameSize:
		c.add("name", "", "%q is not a name: write lower-case words, such as resize or resize_images", truncate(n))
	case slices.Contains(Core(), n):
		c.add("name", "", "%s is a kind that every worker has: choose another name", n)
	}
}

// entry checks a command: its first word says what is executed.
func (c *checker) entry(at string, argv []string, required bool) {
	if len(argv) == 0 {
		if required {
			c.add(at, "such as [./resize] for a program in this folder, or [python, -m, resize]", "it is missing: write what is executed, as a list")
		}
		return
	}
	first := argv[0]
	name, inFolder := strings.CutPrefix(first, "./")
	switch {
	case first == "":
		c.add(at+"[0]", "", "the list begins with the program")
	case first == EntryPython && c.k.Runtime == "" && c.k.Python == nil:
		c.add(at, "write runtime: core, or python: {packages: […]}", "it does not say of which Python environment the interpreter is")
	case inFolder && (!fs.ValidPath(name) || name == "."):
		c.add(at+"[0]", "", "%q is not a file of the kind's folder", truncate(first))
	case inFolder && c.dir != nil:
		c.program(at+"[0]", name)
	case !inFolder && strings.HasPrefix(first, "."):
		c.add(at+"[0]", "", "%q is not a file of the kind's folder: write ./ and its path in the folder", truncate(first))
	}
}

// program looks whether a file of the folder can be executed.
func (c *checker) program(at, name string) {
	info, err := fs.Stat(c.dir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.add(at, "", "there is no file %s in the kind's folder", name)
	case err != nil:
		c.add(at, "", "%s cannot be looked at: %s", name, err)
	case !info.Mode().IsRegular():
		c.add(at, "", "%s is no file", name)
	case info.Mode()&0o111 == 0 && runtime.GOOS != "windows":
		c.add(at, "", "%s is not executable: set its x bit (chmod +x), or write its interpreter first", name)
	}
}

// runtimes checks what the interpreter is of.
func (c *checker) runtimes() {
	if c.k.Runtime != "" && c.k.Python != nil {
		c.add("python", "keep one of them", "the kind has both runtime and python")
	}
	c.runtime("runtime", c.k.Runtime)
	if p := c.k.Python; p != nil && p.Requirements != "" && fs.ValidPath(p.Requirements) && c.dir != nil {
		if info, err := fs.Stat(c.dir, p.Requirements); err != nil || !info.Mode().IsRegular() {
			c.add("python.requirements", "", "there is no file %s in the kind's folder", p.Requirements)
		}
	}
	for i, v := range c.k.Variants {
		at := fmt.Sprintf("variants[%d]", i)
		if v.Runtime == "" {
			c.add(at+".runtime", "", "it is missing: write the name of a runtime")
		}
		c.runtime(at+".runtime", v.Runtime)
		var when map[string]any
		if json.Unmarshal(v.When, &when) != nil || len(when) == 0 {
			c.add(at+".when", "", "write an object of fields of the input and the value that each must have, such as {engine: vllm}")
			continue
		}
		c.fields(at+".when", sortedKeys(when))
	}
	for i, name := range c.k.MergeKey {
		c.fields(fmt.Sprintf("merge_key[%d]", i), []string{name})
	}
}

func (c *checker) runtime(at, name string) {
	known := Runtimes()
	if name != "" && !slices.Contains(known, name) {
		c.add(at, didYouMean(name, known), "there is no runtime %s: there are %s", truncate(name), strings.Join(known, ", "))
	}
}

// fields checks that the input has these.
func (c *checker) fields(at string, names []string) {
	known := c.k.Fields()
	for _, name := range names {
		if !slices.Contains(known, name) {
			c.add(at, didYouMean(name, known), "the input has no field %s", truncate(name))
		}
	}
}

// stageFields checks what a kind has in common with a stage as that of a stage.
func (c *checker) stageFields() {
	s := muster.Spec{Tasks: []muster.TaskSpec{{Name: "it", Kind: "it", Python: c.k.Python, Env: c.k.Env, Resources: c.k.Resources}}}
	for _, e := range specvalidate.Spec(&s) {
		if e.Path = strings.TrimPrefix(e.Path, "tasks[0]."); e.Path != "kind" {
			c.wrong = append(c.wrong, e)
		}
	}
}

func (c *checker) input() {
	if len(c.k.Input) == 0 {
		return
	}
	var err error
	if c.k.schema, c.k.schemaParts, err = compile(c.k.Input); err != nil {
		c.add("input", "", "it is not a JSON Schema: %s", err)
	}
}

// Runtimes lists those that come with Muster.
func Runtimes() []string {
	found, err := fs.Glob(runtimes.Files(), "python/*/pyproject.toml")
	if err != nil {
		panic("kind: " + err.Error()) // the pattern is a constant
	}
	names := []string{"core"}
	for _, f := range found {
		if name := path.Base(path.Dir(f)); name != "core" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func didYouMean(name string, known []string) string {
	if near := muster.Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// truncate shortens what a user wrote to what fits into a message.
func truncate(s string) string {
	const limit = 60
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}

// decode keeps numbers as they are spelled.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
