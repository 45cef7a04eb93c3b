package kind

import (
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

// embedded are the definitions that come with Muster.
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
			panic("kind: " + err.Error()) // it was found
		}
		k, err := Parse(dir, path.Dir(f))
		if err != nil {
			panic("kind: " + err.Error()) // a test holds that each is valid
		}
		k.schemaParts = 0
		all = append(all, k)
	}
	return all
})

// Embedded returns the definitions that come with Muster, by name. The list is the caller's.
func Embedded() []*Kind { return slices.Clone(embedded()) }

// Known returns Embedded and Foreign. The list is the caller's.
func Known() []*Kind { return append(Embedded(), foreign()) }

// Catalog is what kinds there are: those that come with Muster, and others. It is not changed.
type Catalog struct {
	all    []*Kind // by name
	byName map[string][]*Kind
}

// NewCatalog returns the definitions of Known with others. Of several ones of a name each counts; those of a name that is taken do not.
func NewCatalog(others ...*Kind) *Catalog {
	c := &Catalog{byName: map[string][]*Kind{}}
	for _, k := range Known() {
		c.byName[k.Name] = []*Kind{k}
		c.all = append(c.all, k)
	}
	for _, k := range others {
		if IsReserved(k.Name) {
			continue
		}
		c.byName[k.Name] = append(c.byName[k.Name], k)
		c.all = append(c.all, k)
	}
	slices.SortStableFunc(c.all, func(a, b *Kind) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// IsEmbedded reports whether a kind of this name comes with Muster.
func IsEmbedded(name string) bool {
	return slices.ContainsFunc(embedded(), func(k *Kind) bool { return k.Name == name })
}

// IsReserved reports whether no owner may define a kind of this name: one comes with Muster, or it is an operation of kind custom that does, which
// would mean something else in others' jobs.
func IsReserved(name string) bool {
	return IsEmbedded(name) || name == Foreign || slices.Contains(operations(), name)
}

// operations are those of kind custom that come with Muster, as its definition lists them.
var operations = sync.OnceValue(func() []string {
	var names []string
	for _, k := range embedded() {
		if k.Name != Custom {
			continue
		}
		var input struct {
			Properties struct {
				Name struct {
					Enum []string `json:"enum"`
				} `json:"name"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(k.Input, &input); err != nil {
			panic("kind: " + err.Error()) // it is a schema
		}
		names = input.Properties.Name.Enum
	}
	return names
})

// Names lists the kinds that a job may name, without the core ones.
func (c *Catalog) Names() []string {
	var names []string
	for _, k := range c.all {
		names = append(names, k.Name)
	}
	return slices.Compact(names)
}

// Find returns the definitions of a name: none, one, or several if workers differ.
func (c *Catalog) Find(name string) []*Kind { return slices.Clone(c.byName[name]) }

// Check tells what is wrong with how a stage uses its kind, with paths within the stage, such as input.epochs. With several
// definitions of its kind it is right if one of them has it so. The stage is normalized.
func (c *Catalog) Check(t *muster.TaskSpec) []muster.FieldError {
	if slices.Contains(Core(), t.Kind) {
		if len(t.Input) > 0 && !isEmpty(t.Input) {
			return []muster.FieldError{{Path: "input", Message: fmt.Sprintf("a task of kind %s takes none", t.Kind), Hint: "pass values with env or with the arguments of run"}}
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

// fewestProblems returns the problems with the definition that fits best.
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

// prefixPaths says that an input stands deeper.
func prefixPaths(wrong []muster.FieldError, at string) []muster.FieldError {
	for i, e := range wrong {
		if rest, ok := strings.CutPrefix(e.Path, "input"); ok {
			wrong[i].Path = at + rest
		}
	}
	return wrong
}

// checkStage tells what is wrong with a stage of the kind.
func (k *Kind) checkStage(t *muster.TaskSpec) []muster.FieldError {
	var wrong []muster.FieldError
	add := func(at, hint, format string, args ...any) {
		wrong = append(wrong, muster.FieldError{Path: at, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	switch {
	case t.Run != nil && k.Run != RunOptional && k.Run != RunRequired:
		add("run", "say what is wanted with input", "the kind %s brings its own program: leave run out", k.Name)
	case t.Run == nil && k.Run == RunRequired:
		add("run", "write run: a command; with muster run, -- CMD ARG… behind the options", "it is missing: a task of kind %s runs a command", k.Name)
	}
	if t.Script != nil {
		add("script", "use kind script", "the kind %s brings its own program: leave script out", k.Name)
	}
	if t.Python != nil && k.Run != RunOptional && k.Run != RunRequired { // which would run in it
		add("python", "use kind script for an environment of your own", "the kind %s has a Python environment of its own: leave python out", k.Name)
	}
	return append(wrong, k.CheckInput(t.Input, false)...)
}

func (c *Catalog) unknown(name string) muster.FieldError {
	known := slices.Concat(Core(), c.Names())
	e := muster.FieldError{Path: "kind", Message: fmt.Sprintf("there is no kind %s", truncate(name)), Hint: didYouMean(name, known)}
	if e.Hint == "" {
		e.Hint = "there are " + strings.Join(known, ", ")
	}
	return e
}

// operation returns the definitions of the operation that a stage of kind custom names, and its input.
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

// ApplyDefaults writes into a stage what its kind says where the stage says nothing of that sort. An operation that a
// stage of kind custom names becomes the stage's kind, so that it is given to a worker that has it.
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
	if r.CPUs == 0 {
		r.CPUs = d.CPUs
	}
	if r.Memory == 0 {
		r.Memory = d.Memory
	}
	if r.Disk == 0 {
		r.Disk = d.Disk
	}
	if r.PIDs == 0 {
		r.PIDs = d.PIDs
	}
	if r.GPUs == (muster.GPURequest{}) {
		r.GPUs = d.GPUs
	}
	if k.Checkpoint && t.Checkpoint == nil {
		t.Checkpoint = &muster.Checkpoint{}
	}
}
