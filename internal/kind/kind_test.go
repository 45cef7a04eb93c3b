package kind_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/kind"
)

// TestEveryEmbeddedKindIsValid reads all embedded kinds, and checks their common properties.
func TestEveryEmbeddedKindIsValid(t *testing.T) {
	all := kind.Embedded()
	if len(all) == 0 {
		t.Fatal("no embedded kinds")
	}
	for _, k := range all {
		if len(k.Input) == 0 {
			continue
		}
		if wrong := k.CheckInput(json.RawMessage(`{"no_such_field_at_all": 1}`), true); len(wrong) == 0 && k.Name != "echo" {
			t.Errorf("%s accepts any field: set additionalProperties: false, or list the fields under properties", k.Name)
		}
		var input any
		if err := json.Unmarshal(k.Input, &input); err != nil {
			t.Fatal(err)
		}
		patterns(t, k.Name, input)
	}
}

// patterns checks that each pattern has examples that match it: messages show them.
func patterns(t *testing.T, at string, v any) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			patterns(t, at, part)
		}
	case map[string]any:
		for name, part := range v {
			patterns(t, at+"."+name, part)
		}
		pattern, is := v["pattern"].(string)
		if !is {
			return
		}
		examples, _ := v["examples"].([]any)
		if len(examples) == 0 {
			t.Errorf("%s has a pattern and no examples", at)
		}
		for _, e := range examples {
			if s, _ := e.(string); !regexp.MustCompile(pattern).MatchString(s) {
				t.Errorf("%s: the example %v does not match the pattern %s", at, e, pattern)
			}
		}
	}
}

// resize is a definition with all fields.
const resize = `
name: resize
about: Make images smaller.
entry: [python, -m, resize]
runtime: core
variants:
  - when: {engine: fast}
    runtime: torch
run: may
resources: {memory: 2GiB, gpus: {count: 1}}
checkpoint: true
models: true
warm: [python, -m, resize.host]
merge_key: [model, width]
env: {A: b}
input:
  type: object
  required: [width]
  properties:
    width: {type: integer, minimum: 1, maximum: 4096, multipleOf: 2}
    quality: {type: number, exclusiveMinimum: 0, exclusiveMaximum: 1}
    engine: {enum: [plain, fast, null]}
    model: {type: string, minLength: 1, maxLength: 10, pattern: "^[a-z]*$"}
    source: {type: string, format: uri}
    files: {type: array, minItems: 1, maxItems: 3, uniqueItems: true, items: {type: string}}
    also: {type: [string, "null"]}
    layers:
      type: array
      items: {type: object, additionalProperties: false, properties: {units: {type: integer}}}
    either: {anyOf: [{type: string}, {type: object, required: [a], properties: {a: {type: integer}}}]}
  oneOf:
    - required: [files]
    - required: [source]
  dependentRequired: {quality: [model]}
`

func mustParse(t *testing.T, text string) *kind.Kind {
	t.Helper()
	k, err := kind.ParseFile([]byte(text), "kind.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func message(wrong []muster.FieldError) string {
	var lines []string
	for _, e := range wrong {
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "\n")
}

// TestProblems checks the messages for users.
func TestProblems(t *testing.T) {
	k := mustParse(t, resize)
	for _, c := range []struct{ input, want string }{
		{`{"width": 2, "files": ["a"]}`, ""},
		{`{"width": 2.0, "files": ["a"], "also": null}`, ""},
		{`[]`, "input: expected an object of fields and values, got a list"},
		{`{"files": ["a"]}`, "input.width: required"},
		{`{"width": 0, "files": ["a"]}`, "input.width: 0 is too small: write at least 1"},
		{`{"width": 5000, "files": ["a"]}`, "input.width: 5000 is too large: write at most 4096"},
		{`{"width": 3, "files": ["a"]}`, "input.width: 3 is not a multiple of 2"},
		{`{"width": 2.5, "files": ["a"]}`, "input.width: expected a whole number, got 2.5"},
		{`{"width": 1e999999999, "files": ["a"]}`, "input.width: the number 1e999999999 is out of range"},
		{`{"width": 1e-999999999, "files": ["a"]}`, "input.width: the number 1e-999999999 is out of range"},
		{`{"width": "2", "files": ["a"]}`, `input.width: expected a whole number, got "2"`},
		{`{"width": 2, "files": ["a"], "quality": 0, "model": "m"}`, "input.quality: 0 is too small: write more than 0"},
		{`{"width": 2, "files": ["a"], "quality": 1, "model": "m"}`, "input.quality: 1 is too large: write less than 1"},
		{`{"width": 2, "files": ["a"], "quality": 0.5}`, "input.quality: it also needs model"},
		{`{"width": 2, "files": ["a"], "engine": "fats"}`, `input.engine: expected plain, fast or null, got "fats" (did you mean fast?)`},
		{`{"width": 2, "files": ["a"], "model": ""}`, "input.model: it must not be empty"},
		{`{"width": 2, "files": ["a"], "model": "abcdefghijk"}`, "input.model: it has 11 characters: write at most 10"},
		{`{"width": 2, "files": ["a"], "model": "A"}`, `input.model: "A" does not match the pattern ^[a-z]*$`},
		{`{"width": 2, "source": "::"}`, `input.source: "::" is not a valid uri`},
		{`{"width": 2, "files": []}`, "input.files: the list has 0 entries: write at least 1"},
		{`{"width": 2, "files": ["a", "b", "a"]}`, "input.files: the entries 0 and 2 are equal: keep one of them"},
		{`{"width": 2, "files": ["a", 1]}`, "input.files[1]: expected a string, got 1"},
		{`{"width": 2, "files": ["a"], "layers": [{}, {"unit": 3}]}`, "input.layers[1].unit: unknown field (did you mean units?)"},
		{`{"width": 2, "files": ["a"], "either": 3}`, "input.either: expected a string or an object, got 3"},
		{`{"width": 2, "files": ["a"], "either": {"a": "x"}}`, `input.either.a: expected a whole number, got "x"`},
		{`{"width": 2}`, "input: write files or source"},
		{`{"width": 2, "files": ["a"], "source": "http://a/b"}`, "input: files and source exclude each other: keep one of them"},
		{`{"width": 2, "files": ["a"], "widht": 3}`, "input.widht: unknown field (did you mean width?)"},
		{`{"widht": 2, "files": ["a"], "quality": 2, "model": "m"}`, "input.quality: 2 is too large: write less than 1\ninput.widht: unknown field (did you mean width?)\ninput.width: required"},
	} {
		if got := message(k.CheckInput(json.RawMessage(c.input), true)); got != c.want {
			t.Errorf("%s gives\n%s\nwant\n%s", c.input, got, c.want)
		}
	}
}

// TestPatternsAreExplained checks that messages explain which strings are valid.
func TestPatternsAreExplained(t *testing.T) {
	for _, c := range []struct{ kind, input, want string }{
		{"training", `{"dataset": "a.csv", "model": "resnet"}`, `input.model: expected a string such as cnn, mlp, gbt or net.py:Net, got "resnet"`},
		{"training", `{"dataset": "a.csv", "device": "cudda"}`, `input.device: expected a string such as auto, cpu, cuda, cuda:1 or mps, got "cudda" (did you mean cuda?)`},
		{"api", `{"url": "ftp://x"}`, `input.url: expected a string such as https://example.org/api, got "ftp://x"`},
		{"told", `{"a": "A"}`, `input.a: "A" does not match the description "small letters"`},
	} {
		custom := mustParse(t, "name: told\nabout: Tell.\nentry: [true]\ninput: {type: object, properties: {a: {type: string, pattern: '^[a-z]*$', description: small letters}}}")
		k := kind.NewCatalog(custom).Find(c.kind)[0]
		if got := message(k.CheckInput(json.RawMessage(c.input), true)); got != c.want {
			t.Errorf("%s gives\n%s\nwant\n%s", c.input, got, c.want)
		}
	}
}

// TestFormats checks the formats that are patterns.
func TestFormats(t *testing.T) {
	for format, values := range map[string]struct{ valid, invalid []string }{
		"uri":       {[]string{"https://example.org/a?b#c", "urn:isbn:1"}, []string{"example.org", "http://a b", "::"}},
		"email":     {[]string{"a@b.c"}, []string{"a", "a@", "a b@c"}},
		"uuid":      {[]string{"0f8fad5b-d9cb-469f-a165-70867728950e"}, []string{"0f8fad5bd9cb469fa16570867728950e", ""}},
		"date":      {[]string{"2026-11-28"}, []string{"28.11.2026", "2026-13-01", "2026-00-10"}},
		"time":      {[]string{"10:05:59Z", "23:59:60+01:00", "10:05:59.25Z"}, []string{"24:00:00Z", "10:05"}},
		"date-time": {[]string{"2026-11-28T10:05:59Z"}, []string{"2026-11-28", "2026-11-28T10:05:59"}},
		"hostname":  {[]string{"a", "gpu-1.lab.example"}, []string{"-a", "a..b", "a_b"}},
		"ipv4":      {[]string{"10.0.0.1", "255.255.255.255"}, []string{"256.0.0.1", "10.0.0", "a"}},
		"ipv6":      {[]string{"::1", "fe80::1", "::ffff:10.0.0.1"}, []string{"10.0.0.1", "g::1", "1"}},
	} {
		k := mustParse(t, "name: one\nabout: Take one.\nentry: [true]\ninput: {type: object, properties: {a/b: {type: string, format: "+format+"}, a: {type: integer}}}")
		check := func(value, want string) {
			input, err := json.Marshal(map[string]string{"a/b": value})
			if err != nil {
				t.Fatal(err)
			}
			if got := message(k.CheckInput(input, true)); got != want {
				t.Errorf("%s %s gives %q", format, input, got)
			}
		}
		for _, value := range values.valid {
			check(value, "")
		}
		for _, value := range values.invalid {
			check(value, fmt.Sprintf("input.a/b: %q is not a valid %s", value, format))
		}
	}
}

// TestReferencesAreNotJudged checks that only values with a reference are not validated.
func TestReferencesAreNotJudged(t *testing.T) {
	k := mustParse(t, resize)
	for input, want := range map[string]string{
		`{"width": "${a.result.width}", "files": ["${index}.png"], "engine": "${matrix.engine}"}`: "",
		`{"width": "${a.result.width}", "files": ["a", "a"]}`:                                     "input.files: the entries 0 and 1 are equal: keep one of them",
		`{"width": "${a.result.width}", "fils": ["a"]}`:                                           "input.fils: unknown field (did you mean files?)",
		`{"width": "$width", "files": ["a"]}`:                                                     `input.width: expected a whole number, got "$width"`,
	} {
		if got := message(k.CheckInput(json.RawMessage(input), false)); got != want {
			t.Errorf("%s gives %q", input, got)
		}
	}
	listed := mustParse(t, "name: listed\nabout: List fields.\nentry: [true]\ninput: {type: object, properties: {top: {type: integer}, of: {oneOf: [{type: integer}, {type: object}]}}}")
	for input, want := range map[string]string{
		`{"top": "${a.result.top}", "of": {"a": "${index}"}}`: "",
		`{"top": "${a.result.top}", "tip": 1}`:                "input.tip: unknown field (did you mean top?)",
	} {
		if got := message(listed.CheckInput(json.RawMessage(input), false)); got != want {
			t.Errorf("%s gives %q", input, got)
		}
	}
}

// TestParseTells checks the messages for invalid definitions.
func TestParseTells(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "the file must have one document, and has none"},
		{"a: 1\n---\nb: 2\n", "one document, and has several"},
		{"name: a\nabout: b\nentry: [c]\nruntme: d\n", "line 4, column 1: runtme: unknown field (did you mean runtime?)"},
		{"about: b\nentry: [c]\n", "name: required"},
		{"name: Resize\nabout: b\nentry: [c]\n", `line 1, column 7: name: "Resize" is not a valid name`},
		{"name: process\nabout: b\nentry: [c]\n", "process is a core kind"},
		{"name: a\nentry: [c]\n", "about: required"},
		{"name: a\nabout: b\n", "entry: required"},
		{"name: a\nabout: b\nentry: [python, x.py]\n", "python needs a Python environment"},
		{"name: a\nabout: b\nentry: [./../x]\n", "is not a file of the kind's folder"},
		{"name: a\nabout: b\nentry: [c]\nruntime: toch\n", "runtime: unknown runtime toch: known are"},
		{"name: a\nabout: b\nentry: [c]\nruntime: core\npython: {packages: [x]}\n", "the kind has both runtime and python"},
		{"name: a\nabout: b\nentry: [c]\nrun: maybe\n", `run: expected no, may or must, got "maybe"`},
		{"name: a\nabout: b\nentry: [c]\nresources: {memory: lots}\n", "resources.memory"},
		{"name: a\nabout: b\nentry: [c]\nresources: {cpus: -1}\n", "resources.cpus"},
		{"name: a\nabout: b\nentry: [c]\nenv: {MUSTER_X: y}\n", "names that begin with MUSTER_ are reserved"},
		{"name: a\nabout: b\nentry: [c]\nmerge_key: [x]\n", "merge_key[0]: the input has no field x"},
		{"name: a\nabout: b\nentry: [c]\nwarm: [d]\n", "warm needs merge_key"},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: array}\n", "it must have type: object"},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, properties: {x: {type: int}}}\n", `at "/properties/x/type"`},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, properties: {x: {$ref: 'http://a/b'}}}\n", "does not refer to a part of the definition"},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, properties: {x: {$ref: 'file:///etc/passwd'}}}\n", "does not refer to a part of the definition"},
		{`{"name": "a", "about": "b", "entry": ["c"], "input": {"type": "object", "properties": {"x": {"minimum": 1e999999999}}}}`, "out of range"},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, properties: {x: {$ref: '#/$defs/y'}}}\n", "$ref #/$defs/y refers to nothing"},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, $schema: 'http://json-schema.org/draft-07/schema#'}\n", "$schema must be https://json-schema.org/draft/2020-12/schema"},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, properties: {x: {$id: y}}}\n", `at "/properties/x/$id": $id is not supported`},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, properties: {x: {items: [{type: string}]}}}\n", `at "/properties/x/items": expected a schema, got a list`},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, properties: {x: {pattern: '('}}}\n", `at "/properties/x/pattern": expected a regular expression`},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, patternProperties: {'(': {}}}\n", `at "/patternProperties": invalid pattern "("`},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, properties: {x: {minLength: -1}}}\n", `at "/properties/x/minLength": expected a whole number of 0 or more, got -1`},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, required: x}\n", `at "/required": expected a list of names, got "x"`},
		{"name: a\nabout: b\nentry: [c]\ninput: {type: object, anyOf: []}\n", `at "/anyOf": expected a list of schemas, got a list`},
		{"name: a\nabout: b\nentry: [./it]\n", "entry[0]: the kind's folder has no file it"},
		{"name: a\nabout: b\nentry: [./plain]\n", "plain is not executable: run chmod +x"},
		{"name: a\nabout: b\nentry: [c]\npython: {requirements: nothing.txt}\n", "the kind's folder has no file nothing.txt"},
	} {
		dir := fstest.MapFS{"kind.yaml": {Data: []byte(c.text)}, "plain": {Mode: 0o644}}
		_, err := kind.Parse(dir, "mine")
		e, ok := errors.AsType[*muster.Error](err)
		if !ok || e.Code != muster.InvalidSpec || !strings.Contains(e.Message+"\n"+message(e.Fields), c.want) {
			t.Errorf("%q gives %v, want %s", c.text, err, c.want)
		}
	}
	if _, err := kind.Parse(fstest.MapFS{}, "mine"); err == nil || err.Error() != "mine: the folder has no kind.yaml" {
		t.Errorf("an empty folder gives %v", err)
	}
}

// TestAllErrorsAreReported checks that fields that cannot be decoded do not hide other problems, except those that they explain.
func TestAllErrorsAreReported(t *testing.T) {
	_, err := kind.ParseFile([]byte("name: A\nentri: [c]\ninput: {type: objct}\nfoo: 1\nmodels: 3\n"), "it")
	e, ok := errors.AsType[*muster.Error](err)
	if !ok {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range e.Fields {
		paths = append(paths, f.Path)
	}
	if want := []string{"about", "name", "entri", "input", "foo", "models"}; !slices.Equal(paths, want) {
		t.Errorf("problems with %s, want %s:\n%s", paths, want, message(e.Fields))
	}
}

func TestKeyAndRuntime(t *testing.T) {
	k := mustParse(t, resize)
	if a, b := k.ModelKey([]byte(`{"model": "m", "width": 2, "files": ["a"]}`)), k.ModelKey([]byte(`{"width": 2, "model": "m", "source": "x"}`)); a != b || a == "" {
		t.Errorf("%s is not %s", a, b)
	}
	if a, b := k.ModelKey([]byte(`{"model": "m", "width": 2}`)), k.ModelKey([]byte(`{"model": "m", "width": 4}`)); a == b {
		t.Errorf("both are %s", a)
	}
	for input, want := range map[string]string{`{"engine": "fast"}`: "torch", `{"engine": "plain"}`: "core", ``: "core"} {
		if got := k.RuntimeFor([]byte(input)); got != want {
			t.Errorf("the runtime for %s is %s", input, got)
		}
	}
}

func TestCatalog(t *testing.T) {
	wide := mustParse(t, resize)
	narrow := mustParse(t, strings.NewReplacer("4096", "8", "2GiB", "1GiB").Replace(resize))
	fake := mustParse(t, "name: echo\nabout: Take the name of another.\nentry: [./evil]\n")
	c := kind.NewCatalog(narrow, wide, fake)
	if found := c.Find("echo"); len(found) != 1 || found[0] == fake {
		t.Error("an embedded kind was replaced")
	}
	stage := func(width string) *muster.TaskSpec {
		return &muster.TaskSpec{Kind: "resize", Input: json.RawMessage(`{"files": ["a"], "width": ` + width + `}`)}
	}
	for width, memory := range map[string]muster.Size{"6": 1 << 30, "100": 2 << 30} {
		s := stage(width)
		if wrong := c.Check(s); len(wrong) > 0 {
			t.Errorf("width %s: %s", width, message(wrong))
		}
		c.ApplyDefaults(s)
		if s.Resources.Memory != memory || s.Resources.GPUs.Count != 1 || s.Checkpoint == nil {
			t.Errorf("width %s gets the defaults %+v", width, s)
		}
	}
	if got := message(c.Check(stage("5000"))); !strings.HasPrefix(got, "input.width: 5000 is too large") {
		t.Errorf("got %s", got)
	}
	asked := stage("6")
	asked.Resources = muster.Request{Memory: 5 << 30, GPUs: muster.GPURequest{Count: 2}}
	if c.ApplyDefaults(asked); asked.Resources.Memory != 5<<30 || asked.Resources.GPUs.Count != 2 {
		t.Errorf("the stage's resources are replaced: %+v", asked.Resources)
	}
	for _, s := range []struct {
		stage muster.TaskSpec
		want  string
	}{
		{muster.TaskSpec{Kind: "resiz"}, "kind: there is no kind resiz (did you mean resize?)"},
		{muster.TaskSpec{Kind: "process", Input: json.RawMessage(`{"a": 1}`)}, "input: kind process takes no input (pass values with env or with the arguments of run)"},
		{muster.TaskSpec{Kind: "echo", Run: &muster.Command{Shell: "x"}}, "run: kind echo has its own program: remove run (use input for its parameters)"},
		{muster.TaskSpec{Kind: "echo", Script: &muster.Script{Text: "x"}}, "script: kind echo has its own program: remove script (use kind script)"},
		{muster.TaskSpec{Kind: "echo", Python: &muster.Python{}}, "python: kind echo has its own Python environment: remove python (use kind script for your own environment)"},
	} {
		if got := message(c.Check(&s.stage)); got != s.want {
			t.Errorf("%+v gives %s", s.stage, got)
		}
	}
}

// TestWriteAndRead checks that a server decodes a worker's list, without fields that only the worker needs.
func TestWriteAndRead(t *testing.T) {
	k := mustParse(t, resize)
	raw, err := kind.EncodeList([]*kind.Kind{k})
	if err != nil {
		t.Fatal(err)
	}
	back, err := kind.DecodeList(raw)
	if err != nil || len(back) != 1 {
		t.Fatalf("%v, %v", back, err)
	}
	again, err := kind.EncodeList(back)
	if diff := cmp.Diff(string(raw), string(again)); err != nil || diff != "" || back[0].Env != nil {
		t.Error(diff, err)
	}
	if wrong := back[0].CheckInput([]byte(`{"width": 0, "files": ["a"]}`), true); len(wrong) != 1 {
		t.Errorf("got %s", message(wrong))
	}
	for _, bad := range []string{`{}`, `[{"name": "x"}]`, `[` + strings.Repeat(" ", kind.MaxCustomSize) + `]`} {
		if got, err := kind.DecodeList(json.RawMessage(bad)); err == nil || got != nil {
			t.Errorf("%.20s is decoded as %v", bad, got)
		}
	}
}

// FuzzParse checks that accepted definitions can be encoded, decoded and used for validation.
func FuzzParse(f *testing.F) {
	f.Add(resize, `{"width": 2, "files": ["a"]}`)
	for _, k := range kind.Embedded() {
		b, err := json.Marshal(k)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), `{"epochs": 0, "prompt": ["${a.b}"]}`)
	}
	f.Fuzz(func(t *testing.T, text, input string) {
		k, err := kind.ParseFile([]byte(text), "kind.yaml")
		if err != nil {
			return
		}
		raw, err := kind.EncodeList([]*kind.Kind{k})
		if err != nil {
			return // too much for one worker
		}
		if _, err := kind.DecodeList(raw); err != nil {
			t.Fatalf("the server cannot decode %s: %v", raw, err)
		}
		open, closed := k.CheckInput([]byte(input), false), k.CheckInput([]byte(input), true)
		if len(open) > len(closed) {
			t.Errorf("%s has more problems before its references are resolved: %s, then %s", input, message(open), message(closed))
		}
		if !slices.ContainsFunc(closed, func(e muster.FieldError) bool { return !strings.HasPrefix(e.Path, "input") }) {
			return
		}
		t.Errorf("a problem has another path: %s", message(closed))
	})
}
