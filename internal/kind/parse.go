package kind

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
	"github.com/muster-dev/muster/internal/spec"
	"github.com/muster-dev/muster/internal/specvalidate"
	"github.com/muster-dev/muster/runtimes"
)

// Limits of definitions.
const (
	MaxFileSize   = 256 << 10 // bytes of a kind.yaml
	MaxCustomSize = 1 << 20   // bytes of all custom definitions of a worker, see EncodeList
)

const maxAbout = 300

// Core lists the kinds without definitions.
func Core() []string {
	return []string{muster.KindNoop, muster.KindProcess, muster.KindScript, muster.KindContainer}
}

// Custom is the kind that runs operations: see Kind.Operation.
const Custom = "custom"

var namePattern = lazyregexp.New(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// Parse reads the definition in a folder and checks that its files exist. name is the folder's name in messages.
// Errors are those of ParseFile.
func Parse(dir fs.FS, name string) (*Kind, error) {
	file := path.Join(name, FileName)
	data, err := fs.ReadFile(dir, FileName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Invalid, "%s: the folder has no %s", name, FileName)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot read %s: %w", file, err)
	}
	return mustParse(data, file, dir)
}

// ParseFile reads a kind.yaml; name is its name in messages. Errors are TooLarge, or InvalidSpec with all problems in
// Fields, with line and column.
func ParseFile(data []byte, name string) (*Kind, error) { return mustParse(data, name, nil) }

func mustParse(data []byte, name string, dir fs.FS) (*Kind, error) {
	if len(data) > MaxFileSize {
		return nil, muster.Errorf(muster.TooLarge, "%s is too large: %s, the maximum is %s", name, muster.Size(len(data)), muster.Size(MaxFileSize))
	}
	k := new(Kind)
	if err := spec.DecodeObject(data, name, k, func() []muster.FieldError { return k.check(dir) }); err != nil {
		return nil, err
	}
	return k, nil
}

// EncodeList encodes definitions for the server, without fields that only the worker needs.
func EncodeList(kinds []*Kind) (json.RawMessage, error) {
	list := make([]Kind, 0, len(kinds))
	for _, k := range kinds {
		t := *k
		t.Env = nil
		list = append(list, t)
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot encode kinds: %w", err)
	}
	return b, checkCustomSize(b)
}

func checkCustomSize(list []byte) error {
	if len(list) > MaxCustomSize {
		return muster.Errorf(muster.TooLarge, "the kinds of a worker are too large: %s, the maximum is %s", muster.Size(len(list)), muster.Size(MaxCustomSize))
	}
	return nil
}

// DecodeList is the inverse of EncodeList. It returns an error if any definition is invalid.
func DecodeList(raw json.RawMessage) ([]*Kind, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if err := checkCustomSize(raw); err != nil {
		return nil, err
	}
	var each []json.RawMessage
	if err := json.Unmarshal(raw, &each); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the kinds of a worker are not a list of definitions: %w", err)
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

// checker collects the problems of a definition.
type checker struct {
	k     *Kind
	dir   fs.FS // nil: do not check files
	wrong []muster.FieldError
}

func (k *Kind) check(dir fs.FS) []muster.FieldError {
	c := &checker{k: k, dir: dir}
	c.name()
	if k.About == "" {
		c.add("about", "", "required: describe in one sentence what tasks of this kind do")
	} else if len(k.About) > maxAbout || strings.ContainsAny(k.About, "\r\n") {
		c.add("about", "", "use one sentence of at most %d bytes in one line", maxAbout)
	}
	c.entry("entry", k.Entry, true)
	c.entry("warm", k.ModelHost, false)
	c.runtimes()
	c.stageFields()
	if !slices.Contains([]string{"", RunNo, RunOptional, RunRequired}, k.Run) {
		c.add("run", muster.DidYouMean(k.Run, []string{RunNo, RunOptional, RunRequired}), "expected no, may or must, got %q", k.Run)
	}
	if len(k.ModelHost) > 0 && len(k.MergeKey) == 0 {
		c.add("warm", "write merge_key: [model]", "warm needs merge_key, by which tasks share a loaded model")
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
		c.add("name", "", "required: the name of the kind in jobs")
	case !namePattern.Get().MatchString(n) || len(n) > muster.MaxNameSize:
		c.add("name", "", "%q is not a valid name: use lower-case words, such as resize or resize_images", muster.Truncate(n))
	case slices.Contains(Core(), n):
		c.add("name", "", "%s is a core kind: use another name", n)
	}
}

// entry checks a command by its first word.
func (c *checker) entry(at string, argv []string, required bool) {
	if len(argv) == 0 {
		if required {
			c.add(at, "such as [./resize] for a program in this folder, or [python, -m, resize]", "required: the command as a list")
		}
		return
	}
	first := argv[0]
	name, inFolder := strings.CutPrefix(first, "./")
	switch {
	case first == "":
		c.add(at+"[0]", "", "the list must begin with the program")
	case first == EntryPython && c.k.Runtime == "" && c.k.Python == nil:
		c.add(at, "write runtime: core, or python: {packages: […]}", "python needs a Python environment")
	case inFolder && (!fs.ValidPath(name) || name == "."):
		c.add(at+"[0]", "", "%q is not a file of the kind's folder", muster.Truncate(first))
	case inFolder && c.dir != nil:
		c.program(at+"[0]", name)
	case !inFolder && strings.HasPrefix(first, "."):
		c.add(at+"[0]", "", "%q is not a file of the kind's folder: use ./ and its path in the folder", muster.Truncate(first))
	}
}

// program checks that a file of the folder is executable.
func (c *checker) program(at, name string) {
	info, err := fs.Stat(c.dir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.add(at, "", "the kind's folder has no file %s", name)
	case err != nil:
		c.add(at, "", "cannot read %s: %s", name, err)
	case !info.Mode().IsRegular():
		c.add(at, "", "%s is not a regular file", name)
	case info.Mode()&0o111 == 0 && runtime.GOOS != "windows":
		c.add(at, "", "%s is not executable: run chmod +x, or put its interpreter first", name)
	}
}

// runtimes checks the Python environments, variants and merge_key.
func (c *checker) runtimes() {
	if c.k.Runtime != "" && c.k.Python != nil {
		c.add("python", "keep one of them", "the kind has both runtime and python")
	}
	c.runtime("runtime", c.k.Runtime)
	if p := c.k.Python; p != nil && p.Requirements != "" && fs.ValidPath(p.Requirements) && c.dir != nil {
		if info, err := fs.Stat(c.dir, p.Requirements); err != nil || !info.Mode().IsRegular() {
			c.add("python.requirements", "", "the kind's folder has no file %s", p.Requirements)
		}
	}
	if p := c.k.Python; p != nil && p.UsesFiles() {
		c.add("python", "use requirements, or names of packages", "a kind cannot install a project or packages of a task's files")
	}
	for i, v := range c.k.Variants {
		at := fmt.Sprintf("variants[%d]", i)
		if v.Runtime == "" {
			c.add(at+".runtime", "", "required: the name of a runtime")
		}
		c.runtime(at+".runtime", v.Runtime)
		var when map[string]any
		if json.Unmarshal(v.When, &when) != nil || len(when) == 0 {
			c.add(at+".when", "", "expected an object of input fields and their values, such as {engine: vllm}")
			continue
		}
		c.fields(at+".when", slices.Sorted(maps.Keys(when)))
	}
	for i, name := range c.k.MergeKey {
		c.fields(fmt.Sprintf("merge_key[%d]", i), []string{name})
	}
}

func (c *checker) runtime(at, name string) {
	known := Runtimes()
	if name != "" && !slices.Contains(known, name) {
		c.add(at, muster.DidYouMean(name, known), "unknown runtime %s: known are %s", muster.Truncate(name), strings.Join(known, ", "))
	}
}

// fields checks that the input has these fields.
func (c *checker) fields(at string, names []string) {
	known := c.k.Fields()
	for _, name := range names {
		if !slices.Contains(known, name) {
			c.add(at, muster.DidYouMean(name, known), "the input has no field %s", muster.Truncate(name))
		}
	}
}

// stageFields checks the fields that a kind shares with a stage.
func (c *checker) stageFields() {
	s := muster.Spec{Tasks: []muster.TaskSpec{{Name: "it", Kind: "it", Files: ".", Python: c.k.Python, Env: c.k.Env, Resources: c.k.Resources}}}
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
		c.add("input", "", "invalid JSON Schema: %s", err)
	}
}

// Runtimes lists the embedded runtimes.
func Runtimes() []string {
	found, _ := fs.Glob(runtimes.Files(), "python/*/pyproject.toml") // the pattern is valid
	for i, f := range found {
		found[i] = path.Base(path.Dir(f))
	}
	return found
}

// decode decodes JSON and keeps the spelling of numbers.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
