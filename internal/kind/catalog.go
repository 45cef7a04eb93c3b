package kind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/runtimes"
)

// embedded returns Muster's own definitions.
var embedded = sync.OnceValue(func() []*Kind {
	files := runtimes.Files()
	found, err := fs.Glob(files, "kinds/*/"+FileName)
	if err != nil {
		panic("kind: " + err.Error()) // the pattern is a constant
	}
	var all []*Kind
	for _, f := range found {
		dir, err := fs.Sub(files, path.Dir(f))
		if err != nil {
			panic("kind: " + err.Error()) // it exists
		}
		k, err := Parse(dir, path.Dir(f))
		if err != nil {
			panic("kind: " + err.Error()) // a test covers it
		}
		k.schemaParts = 0
		all = append(all, k)
	}
	return all
})

// Embedded returns Muster's own definitions, by name. The caller owns the slice.
func Embedded() []*Kind { return slices.Clone(embedded()) }

// Known returns Embedded and Foreign. The caller owns the slice.
func Known() []*Kind { return append(Embedded(), foreign()) }

// Catalog is a set of kinds: Muster's own, and others. It is immutable.
type Catalog struct {
	all    []*Kind // by name
	byName map[string][]*Kind
}

// NewCatalog returns a Catalog of Known and others. Several definitions may have the same name. Those with a reserved name are ignored.
func NewCatalog(others ...*Kind) *Catalog {
	others = slices.DeleteFunc(slices.Clone(others), func(k *Kind) bool { return IsReserved(k.Name) })
	c := &Catalog{all: append(Known(), others...), byName: map[string][]*Kind{}}
	for _, k := range c.all {
		c.byName[k.Name] = append(c.byName[k.Name], k)
	}
	slices.SortStableFunc(c.all, func(a, b *Kind) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// IsEmbedded reports whether a kind is one of Muster's own.
func IsEmbedded(name string) bool {
	return slices.ContainsFunc(embedded(), func(k *Kind) bool { return k.Name == name })
}

// IsReserved reports whether custom kinds cannot have this name: it is one of Muster's own kinds or an operation of kind custom, which
// would otherwise change its meaning in jobs.
func IsReserved(name string) bool {
	return IsEmbedded(name) || name == Foreign || slices.Contains(operations(), name)
}

// operations returns Muster's own operations of kind custom, as its definition lists them.
var operations = sync.OnceValue(func() []string {
	i := slices.IndexFunc(embedded(), func(k *Kind) bool { return k.Name == Custom })
	var input struct {
		Properties struct {
			Name struct {
				Enum []string `json:"enum"`
			} `json:"name"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(embedded()[i].Input, &input); err != nil {
		panic("kind: " + err.Error()) // it is a valid schema
	}
	return input.Properties.Name.Enum
})

// Names lists the kinds without the core ones.
func (c *Catalog) Names() []string {
	var names []string
	for _, k := range c.all {
		names = append(names, k.Name)
	}
	return slices.Compact(names)
}

// Find returns the definitions with a name: none, one, or several if workers differ.
func (c *Catalog) Find(name string) []*Kind { return slices.Clone(c.byName[name]) }

// Check returns the problems of how a normalized stage uses its kind, with paths within the stage, such as input.epochs. If its
// kind has several definitions, one of them must accept the stage.
func (c *Catalog) Check(t *muster.TaskSpec) []muster.FieldError {
	if slices.Contains(Core(), t.Kind) {
		if len(t.Input) > 0 && !isEmpty(t.Input) {
			return []muster.FieldError{{Path: "input", Message: fmt.Sprintf("kind %s takes no input", t.Kind), Hint: "pass values with env or with the arguments of run"}}
		}
		return nil
	}
	found := c.byName[t.Kind]
	if len(found) == 0 {
		return []muster.FieldError{c.unknown(t.Kind)}
	}
	if op, input, ok := c.operation(t); ok {
		found, t = op, &muster.TaskSpec{Kind: t.Kind, Run: t.Run, Script: t.Script, Python: t.Python, Input: input}
		return prefixPaths(fewestProblems(found, t), "input.parameters")
	}
	return fewestProblems(found, t)
}

// fewestProblems returns the problems of the best matching definition.
func fewestProblems(found []*Kind, t *muster.TaskSpec) []muster.FieldError {
	var best []muster.FieldError
	for i, k := range found {
		wrong := k.checkStage(t)
		if len(wrong) == 0 {
			return nil
		}
		if i == 0 || len(wrong) < len(best) {
			best = wrong
		}
	}
	return best
}

// prefixPaths replaces the prefix "input" of paths.
func prefixPaths(wrong []muster.FieldError, at string) []muster.FieldError {
	for i, e := range wrong {
		if rest, ok := strings.CutPrefix(e.Path, "input"); ok {
			wrong[i].Path = at + rest
		}
	}
	return wrong
}

// checkStage returns the problems of a stage of the kind.
func (k *Kind) checkStage(t *muster.TaskSpec) []muster.FieldError {
	var wrong []muster.FieldError
	add := func(at, hint, format string, args ...any) {
		wrong = append(wrong, muster.FieldError{Path: at, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	switch {
	case t.Run != nil && k.Run != RunOptional && k.Run != RunRequired:
		add("run", "use input for its parameters", "kind %s has its own program: remove run", k.Name)
	case t.Run == nil && k.Run == RunRequired:
		add("run", "write run: a command; with muster run, -- CMD ARG… behind the options", "required: a task of kind %s runs a command", k.Name)
	}
	if t.Script != nil {
		add("script", "use kind script", "kind %s has its own program: remove script", k.Name)
	}
	if t.Python != nil && k.Run != RunOptional && k.Run != RunRequired {
		add("python", "use kind script for your own environment", "kind %s has its own Python environment: remove python", k.Name)
	}
	return append(wrong, k.CheckInput(t.Input, false)...)
}

func (c *Catalog) unknown(name string) muster.FieldError {
	known := slices.Concat(Core(), c.Names())
	e := muster.FieldError{Path: "kind", Message: fmt.Sprintf("there is no kind %s", muster.Truncate(name)), Hint: muster.DidYouMean(name, known)}
	if e.Hint == "" {
		e.Hint = "known kinds are " + strings.Join(known, ", ")
	}
	return e
}

// operation returns the definitions of the operation of a stage of kind custom, and the operation's input.
func (c *Catalog) operation(t *muster.TaskSpec) ([]*Kind, json.RawMessage, bool) {
	if t.Kind != Custom {
		return nil, nil, false
	}
	var input struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(t.Input, &input) != nil {
		return nil, nil, false
	}
	found := slices.DeleteFunc(c.Find(input.Name), func(k *Kind) bool { return !k.Operation })
	return found, input.Parameters, len(found) > 0
}

// ApplyDefaults sets the kind's defaults in a stage. An operation of kind custom becomes the stage's kind, so that the
// stage is placed on a worker that has it.
func (c *Catalog) ApplyDefaults(t *muster.TaskSpec) {
	if op, input, ok := c.operation(t); ok {
		t.Kind, t.Input = op[0].Name, input
	}
	for _, k := range c.byName[t.Kind] {
		if len(c.byName[t.Kind]) == 1 || len(k.checkStage(t)) == 0 {
			k.applyDefaults(t)
			return
		}
	}
}

func (k *Kind) applyDefaults(t *muster.TaskSpec) {
	r, d := &t.Resources, &k.Resources
	r.CPUs, r.Memory, r.Disk = cmp.Or(r.CPUs, d.CPUs), cmp.Or(r.Memory, d.Memory), cmp.Or(r.Disk, d.Disk)
	r.PIDs, r.GPUs = cmp.Or(r.PIDs, d.PIDs), cmp.Or(r.GPUs, d.GPUs)
	if k.Checkpoint && t.Checkpoint == nil {
		t.Checkpoint = &muster.Checkpoint{}
	}
}

// Foreign is the kind of tasks that a client of another system submitted for that system's workers, which joined through a
// dialect. Tasks are passed on unchanged. Muster's own workers do not offer it. Such a stage has the tag of the dialect in where.tags.
const Foreign = "foreign"

var foreign = sync.OnceValue(func() *Kind {
	k, err := ParseFile([]byte(`
name: foreign
about: Pass a task of another system unchanged to a worker of that system. Muster's own workers do not offer it.
entry: [muster, builtin, foreign]
input:
  type: object
  additionalProperties: false
  required: [system, type]
  properties:
    system: {type: string, minLength: 1, maxLength: 64, description: "Name of the system's dialect."}
    type: {type: string, minLength: 1, maxLength: 256, description: "Type of the task in that system."}
    config: {type: object, description: "Configuration for the system's worker."}
`), Foreign)
	if err != nil {
		panic("kind: " + err.Error()) // the text is a constant
	}
	k.schemaParts = 0
	return k
})
