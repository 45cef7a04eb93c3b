package spec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
)

const template = `name: train-${params.opt}
params:
  lr: {type: number, minimum: 0, maximum: 1}
  n: {type: integer, default: 3}
  opt: {enum: [adam, sgd], default: adam}
  version: {type: string, default: 3.10}
  fast: false
kind: training
array: 1-${params.n}
timeout: ${params.n}m
python: {version: "${params.version}"}
resources: {cpus: "${params.n}"}
input: {lr: "${params.lr}", fast: "${params.fast}", list: ["x${params.version}", "$${params.lr}"], ref: "$$${params.n}"}
`

func TestParamsAreReplaced(t *testing.T) {
	specs, err := spec.ParseParams(t.Context(), []byte(template), "job.yaml", map[string]string{"lr": "0.5", "opt": "sgd", "other": "ignored"}, nil)
	if err != nil {
		t.Fatal(spec.Format(err, template))
	}
	got := specs[0]
	stage := &got.Tasks[0]
	array, cpus := stage.Array.String(), stage.Resources.CPUs
	have := []any{got.Name, array, stage.Timeout.String(), cpus, stage.Python.Version, string(stage.Input), string(got.Params["lr"].Value), string(got.Params["n"].Default)}
	want := []any{"train-sgd", "1-3", "3m0s", 3.0, "3.10", `{"lr":0.5,"fast":false,"list":["x3.10","$${params.lr}"],"ref":"$3"}`, "0.5", "3"}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}

	stored, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := spec.Parse(stored, "stored")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, again[0], cmp.Comparer(func(a, b muster.Array) bool { return a.String() == b.String() })); d != "" {
		t.Errorf("parsing the spec as it is stored changes it: %s", d)
	}
}

func TestScriptsKeepTheirText(t *testing.T) {
	for _, text := range []string{
		"params: {a: 1}\nscript: 'echo ${params.a}'\n",
		"params: {a: 1}\nscript: {text: 'echo ${params.a}'}\n",
		"params: {a: 1}\ntasks: [{script: 'echo ${params.a}'}]\n",
		"tasks: [{name: s, script: 'echo ${params.a}'}]\n",
	} {
		specs, err := spec.Parse([]byte(text), "job.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if got := specs[0].Tasks[0].Script.Text; got != "echo ${params.a}" {
			t.Errorf("%s\nhas the script %q", text, got)
		}
	}
}

// TestParamProblems checks that each mistake is one message, with the place of its cause.
func TestParamProblems(t *testing.T) {
	tests := []struct {
		name, declaration, use string
		given                  map[string]string
		want                   string
	}{
		{"missing", "lr: {type: number}", "${params.lr}", nil, "x.yaml:2:3: params.lr: the parameter lr has no value (give it when you submit: -p lr=…)"},
		{"over the maximum", "lr: {default: 0.1, maximum: 1}", "${params.lr}", map[string]string{"lr": "2"}, "x.yaml:2:7: params.lr: the parameter lr is 2: the maximum is 1"},
		{"below the minimum", "lr: {default: 0.1, minimum: 0}", "${params.lr}", map[string]string{"lr": "-2"}, "x.yaml:2:7: params.lr: the parameter lr is -2: the minimum is 0"},
		{"no number", "lr: {type: number, default: 0.1}", "${params.lr}", map[string]string{"lr": "fast"}, `x.yaml:2:7: params.lr: the parameter lr must be a number, got "fast"`},
		{"no integer", "n: {type: integer, default: 1}", "${params.n}", map[string]string{"n": "1.5"}, "x.yaml:2:6: params.n: the parameter n must be an integer, got 1.5"},
		{"no boolean", "b: true", "${params.b}", map[string]string{"b": "yes"}, `x.yaml:2:6: params.b: the parameter b must be a boolean, got "yes"`},
		{"not in enum", "o: {enum: [a, b], default: a}", "${params.o}", map[string]string{"o": "c"}, `x.yaml:2:6: params.o: the parameter o is "c": the allowed values are a, b`},
		{"wrong default", "o: {enum: [a, b], default: c}", "${params.o}", nil, `x.yaml:2:30: params.o: the parameter o is "c": the allowed values are a, b`},
		{"reference in a value", "o: a", "${params.o}", map[string]string{"o": "${x.result}"}, "x.yaml:2:6: params.o: the value of the parameter o contains ${: references are not allowed in it"},
		{"unknown type", "o: {type: text, default: a}", "${params.o}", nil, `x.yaml:2:13: params.o.type: unknown type "text": write string, integer, number, boolean`},
		{"unknown parameter", "rate: 1", "${params.rat}", nil, "x.yaml:3:6: run: ${params.rat}: there is no such parameter (did you mean rate?)"},
		{"bad name", "1x: 1", "echo", nil, "x.yaml:2:3: params.1x: invalid name of a parameter: use letters, digits, _ and -, beginning with a letter, at most 64"},
		{"unknown field", "a: {default: 1, max: 2}", "echo", nil, "x.yaml:2:19: params.a.max: unknown field (did you mean maximum?)"},
		{"too long", "a: b", "${params.a}", map[string]string{"a": strings.Repeat("x", 4097)}, "x.yaml:2:6: params.a: the value of the parameter a is 4097 bytes: the maximum is 4096 (pass large inputs as files)"},
	}
	for _, test := range tests {
		text := "params:\n  " + test.declaration + "\nrun: " + test.use + "\n"
		_, err := spec.ParseParams(t.Context(), []byte(text), "x.yaml", test.given, nil)
		got, _, _ := strings.Cut(spec.Format(err, text), "\n")
		if got != test.want || strings.Count(spec.Format(err, text), "x.yaml:") != 1 {
			t.Errorf("%s: got\n%s\nwant\n%s", test.name, spec.Format(err, text), test.want)
		}
	}
}

// TestExpandedSpecsAreLimited checks that references cannot make a document many times as large.
func TestExpandedSpecsAreLimited(t *testing.T) {
	text := `{"params": {"a": "` + strings.Repeat("x", 4000) + `"}, "run": "` + strings.Repeat("${params.a} ", 40_000) + `"}`
	_, err := spec.Parse([]byte(text), "x.yaml")
	if err == nil || !strings.Contains(err.Error(), "take more than 1MiB where they are used") {
		t.Errorf("got %v", err)
	}
}

func TestCheckParams(t *testing.T) {
	one := []*muster.Spec{{Params: map[string]muster.Param{"rate": {}}}, {}}
	for given, want := range map[string]string{
		"rate": "",
		"rat":  "no parameter rat: did you mean rate?",
		"zzz":  "no parameter zzz: the spec has rate",
	} {
		got := ""
		if err := spec.CheckParams(map[string]string{given: "1"}, one); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
	}
	if err := spec.CheckParams(map[string]string{"a": "1"}, one[1:]); err == nil || err.Error() != "no parameter a: the spec declares none; add params: {a: {type: string}}" {
		t.Errorf("got %v", err)
	}
}
