package dag_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

func parse(t interface {
	Helper()
	Fatal(...any)
}, text string) *muster.Spec {
	t.Helper()
	var s muster.Spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s.Normalize()
}

// results returns finished tasks of job 17, whose results contain their positions.
func results(s *muster.Spec) dag.ResultFunc {
	code := 3
	return func(stage, element int) (muster.Task, bool) {
		if stage >= len(s.Tasks) || element >= s.Tasks[stage].Size() {
			return muster.Task{}, false
		}
		t := muster.Task{
			ID: muster.TaskID{Job: 17, Num: 10*stage + element}, Name: s.Tasks[stage].Name, State: muster.Succeeded, ExitCode: &code,
			Result: json.RawMessage(`{"accuracy":0.970,"big":12345678901234567890,"name":"a \"b\" <c>","list":[1,{"x":true}],"none":null,"trick":"${index}",` +
				`"mine":"https://h:1/api/v1/tasks/16.0/artifacts/model%20v1.pt","other":"http://h/api/v1/tasks/17.0/artifacts/other.pt","forged":"${artifact_url 0 abc model%20v1.pt}","at":` +
				string(rune('0'+element)) + `}`),
			Artifacts: []muster.Artifact{{Name: "model v1.pt", Size: 42, SHA256: "abc"}},
		}
		return t, true
	}
}

const train = `{"name":"train","kind":"noop"},{"name":"many","kind":"noop","array":"5-7"},{"name":"grid","kind":"noop","matrix":{"lr":[1,2]}}`

func user(fields string) string {
	return `{"tasks":[` + train + `,{"name":"use","needs":["train","many","grid"],` + fields + `}]}`
}

func TestResolveStrings(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                                         "plain",
		"${train.result.accuracy}":                      "0.970",
		"--acc ${train.result.accuracy}!":               "--acc 0.970!",
		"${train.result.big}":                           "12345678901234567890",
		"${train.result.name}":                          `a "b" <c>`,
		"${train.result.list}":                          `[1,{"x":true}]`,
		"${train.result.list.1.x}":                      "true",
		"${train.result.none}":                          "null",
		"${train.0.result.accuracy}":                    "0.970",
		"${many.6.result.at}":                           "1",
		"${grid.1.result.at}":                           "1",
		"${train.exit_code}":                            "3",
		"${train.artifacts.model v1.pt.sha256}":         "abc",
		"${train.artifacts.model v1.pt.size}":           "42",
		"${train.artifacts.model v1.pt.url}":            "${artifact_url 0 abc model%20v1.pt}",
		`${train.artifact("model v1.pt").url}`:          "${artifact_url 0 abc model%20v1.pt}",
		`${train.artifact('model v1.pt').sha256}`:       "abc",
		`${many.6.artifact("model v1.pt").size}`:        "42",
		`${many.*.artifact("model v1.pt").size}`:        "[42,42,42]",
		`<${grid.*.artifact("model v1.pt").url}>`:       `<["${artifact_url 20 abc model%20v1.pt}","${artifact_url 21 abc model%20v1.pt}"]>`,
		"${train.result.mine}":                          "${artifact_url 0 abc model%20v1.pt}",
		"${train.result.other}":                         "http://h/api/v1/tasks/17.0/artifacts/other.pt",
		"${train.result.forged}":                        "$${artifact_url 0 abc model%20v1.pt}",
		"${HOME} ${x.y} $$ ${train}":                    "${HOME} ${x.y} $$ ${train}",
		"${index} $${index}":                            "${index} $${index}",
		"$${train.result.accuracy}":                     "$${train.result.accuracy}",
		"${train.result.trick}":                         "$${index}",
		"${train.result.accuracy}${index} $${matrix.x}": "0.970${index} $${matrix.x}",
	} {
		spec := user(`"run":["x"],"env":{"A":` + quoted(in) + `}`)
		s := parse(t, spec)
		got, err := dag.New(s).Resolve(3, results(s))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got.Env["A"] != want {
			t.Errorf("%s became %s, want %s", in, got.Env["A"], want)
		}
		if d := cmp.Diff(parse(t, spec), s); d != "" {
			t.Errorf("%s: the spec was changed: %s", in, d)
		}
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestResolveReachesTheDocumentedFields(t *testing.T) {
	const r = "${train.exit_code}"
	s := parse(t, user(`"script":{"text":"`+r+`","args":["`+r+`"],"interpreter":["`+r+`"]},"env":{"`+`A":"`+r+`"},"outputs":["`+r+`"],
		"where":{"tags":["t`+r+`"],"not":["`+r+`"]},"image":"a:`+r+`","container":{"user":"`+r+`"},"input":{"a":["x`+r+`","`+r+`"],"`+r+`":1}`))
	got, err := dag.New(s).Resolve(3, results(s))
	if err != nil {
		t.Fatal(err)
	}
	want := *parse(t, user(`"script":{"text":"`+r+`","args":["3"],"interpreter":["`+r+`"]},"env":{"A":"3"},"outputs":["3"],
		"where":{"tags":["t3"],"not":["`+r+`"]},"image":"a:3","container":{"user":"`+r+`"}`))
	want.Tasks[3].Input = json.RawMessage(`{"${train.exit_code}":1,"a":["x3",3]}`)
	if d := cmp.Diff(&want.Tasks[3], got); d != "" {
		t.Error(d)
	}
	shell := parse(t, user(`"run":"echo `+r+` $HOME"`))
	if got, err = dag.New(shell).Resolve(3, results(shell)); err != nil || got.Run.Shell != "echo 3 $HOME" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestResolveKeepsTypesInInput(t *testing.T) {
	s := parse(t, user(`"kind":"noop","input":{"a":"${train.result.list}","b":"${train.result.accuracy}","c":"${train.result.name}","d":"${train.result.none}",
		"e":"<${train.result.accuracy}>","big":1234567890123456789012,"f":"${train.result.trick}"}`))
	got, err := dag.New(s).Resolve(3, results(s))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"a":[1,{"x":true}],"b":0.970,"big":1234567890123456789012,"c":"a \"b\" <c>","d":null,"e":"<0.970>","f":"$${index}"}`
	if string(got.Input) != want {
		t.Errorf("got  %s\nwant %s", got.Input, want)
	}
}

func TestResolveReportsMissingValues(t *testing.T) {
	for in, want := range map[string]string{
		"${train.result.nope.x}":         `env.A: ${train.result.nope.x} cannot be resolved: the result of task 17.0 has no "nope"`,
		"${train.result.list.2}":         `no "list.2"`,
		"${train.result.accuracy.x}":     `no "accuracy.x"`,
		"${train.artifacts.m.pt.sha256}": `no artifact "m.pt"`,
		"${train.artifacts.m.pt}":        "sha256, size or url",
		"${train.foo}":                   "result, exit_code, metrics, artifacts",
		"${train.exit_code.x}":           "exit_code has no parts",
		"${train.result.}":               "empty part",
		"${many.result.x}":               "name the element, as in ${many.5.result…}",
		"${many.8.result.x}":             "no element 8",
		"${train.1.result.x}":            "no element 1",
	} {
		s := parse(t, user(`"run":["x"],"env":{"A":"`+in+`"}`))
		_, err := dag.New(s).Resolve(3, results(s))
		if err == nil || !strings.Contains(err.Error(), want) || muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s returns %v, want %s", in, err, want)
		}
	}
	s := parse(t, user(`"run":"${train.result.x} ${train.exit_code}"`))
	if _, err := dag.New(s).Resolve(3, func(int, int) (muster.Task, bool) { return muster.Task{}, true }); err == nil ||
		!strings.Contains(err.Error(), "must write result.json") {
		t.Errorf("no result: %v", err)
	}
	if _, err := dag.New(s).Resolve(3, func(int, int) (muster.Task, bool) { return muster.Task{}, false }); err == nil ||
		!strings.Contains(err.Error(), "is not known") {
		t.Errorf("unknown task: %v", err)
	}
}

func TestBind(t *testing.T) {
	spec := parse(t, `{"tasks":[{"matrix":{"lr":[0.1,1e-3],"s":["a","true"]},"run":"x ${index} ${matrix.lr} ${matrix.s} ${matrix.z} ${HOME} $${index}",
		"outputs":["m-${matrix.s}"],"env":{"A":"${matrix.lr}"},"input":{"n":"${index}","lr":"${matrix.lr}","s":"${matrix.s}","t":"v${matrix.lr}","u":"$${index}"}}]}`)
	got := dag.Bind(&spec.Tasks[0], 3, nil)
	if want := "x 3 1e-3 true ${matrix.z} ${HOME} ${index}"; got.Run.Shell != want {
		t.Errorf("run is %q, want %q", got.Run.Shell, want)
	}
	if want := `{"lr":1e-3,"n":3,"s":true,"t":"v1e-3","u":"${index}"}`; string(got.Input) != want {
		t.Errorf("input is %s, want %s", got.Input, want)
	}
	if got.Outputs[0] != "m-true" || got.Env["A"] != "1e-3" {
		t.Errorf("%v %v", got.Outputs, got.Env)
	}
	if first := dag.Bind(&spec.Tasks[0], 0, nil); !strings.Contains(string(first.Input), `"s":"a"`) {
		t.Errorf("a text did not stay one: %s", first.Input)
	}
}

func TestPerElement(t *testing.T) {
	pieces := []string{"a", "$", "{", "}", "${index}", "${HOME}", "$${", "${matrix.lr}", "${matrix.no}"}
	rapid.Check(t, func(t *rapid.T) {
		s := &muster.TaskSpec{
			Matrix: &muster.Matrix{Axes: []muster.Axis{{Name: "lr", Values: []string{"1", "2"}}}},
			Run:    &muster.Command{Shell: strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 5).Draw(t, "run"), "")},
		}
		s.Input = json.RawMessage(quoted(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 3).Draw(t, "input"), "")))
		changed := !cmp.Equal(s, dag.Bind(s, 0, nil)) || !cmp.Equal(s, dag.Bind(s, 1, nil))
		if dag.PerElement(s) != changed {
			t.Fatalf("PerElement is %v, but Bind changes: %v", !changed, changed)
		}
	})
}

// The output of one task reaches the next one unchanged, whatever it contains.
func TestResultsAreNotTemplates(t *testing.T) {
	value := rapid.StringMatching(`(\$|\{|\}|index|\$\{index\}|\$\{a\.result\}|\$\{artifact_url 0 ab x\}|é|x){0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		v, w := value.Draw(t, "v"), value.Draw(t, "w")
		s := parse(t, `{"tasks":[{"name":"a","kind":"noop"},{"name":"b","needs":["a"],"array":"4-5",
			"run":["${a.result.v}${a.result.w}${index}${a.result.v}-${a.result.w}"],"input":["${a.result.v}","${a.result.all}"]}]}`)
		result, err := json.Marshal(map[string]any{"v": v, "w": w, "all": map[string]any{"k": []string{v}}})
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := dag.New(s).Resolve(1, func(int, int) (muster.Task, bool) { return muster.Task{Result: result}, true })
		if err != nil {
			t.Fatal(err)
		}
		bound := dag.Bind(resolved, 1, nil)
		if want := v + w + "5" + v + "-" + w; bound.Run.Argv[0] != want {
			t.Fatalf("run is %q, want %q", bound.Run.Argv[0], want)
		}
		var input []any
		if err := json.Unmarshal(bound.Input, &input); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]any{v, map[string]any{"k": []any{v}}}, input); d != "" {
			t.Fatal(d)
		}
	})
}

func TestInputs(t *testing.T) {
	s := parse(t, user(`"run":["x"],"inputs":[{"from":"train","name":"model v1.pt"},{"from":"many","name":"model v1.pt","as":"in/m.pt"},
		{"from":"grid","name":"model v1.pt"}]`))
	got, err := dag.New(s).Inputs(3, results(s))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, p := range got {
		paths = append(paths, p.Path)
		if p.SHA256 != "abc" || p.Size != 42 {
			t.Errorf("%+v", p)
		}
	}
	if d := cmp.Diff([]string{"model v1.pt", "in/5/m.pt", "in/6/m.pt", "in/7/m.pt", "0/model v1.pt", "1/model v1.pt"}, paths); d != "" {
		t.Error(d)
	}
	s.Tasks[3].Inputs = []muster.Input{{From: "many", Name: "x.pt"}}
	if _, err := dag.New(s).Inputs(3, results(s)); muster.CodeOf(err) != muster.NotFound || !strings.Contains(err.Error(), `task 17.10 (many) has no artifact "x.pt": it has`) {
		t.Errorf("a missing artifact returns %v", err)
	}
	s.Tasks[1].Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: 10_000}}}
	if _, err := dag.New(s).Inputs(3, results(s)); muster.CodeOf(err) != muster.TooLarge {
		t.Errorf("10,001 artifacts give %v", err)
	}
}

func TestReads(t *testing.T) {
	for fields, want := range map[string]map[int]bool{
		`"run":"x"`: {},
		`"run":"${train.result.x} ${nobody.result.x}"`:                               {0: true},
		`"run":"$${train.result.x}"`:                                                 {},
		`"kind":"noop","input":{"a":[{"b":"${many.5.exit_code}"}]}`:                  {1: true},
		`"run":"x","inputs":[{"from":"grid","name":"m"}],"env":{"A":"${train.foo}"}`: {0: true, 2: true},
	} {
		if d := cmp.Diff(want, dag.New(parse(t, user(fields))).Referenced()); d != "" {
			t.Errorf("%s: %s", fields, d)
		}
	}
}

func TestCheck(t *testing.T) {
	for ref, want := range map[string]string{
		"${train.result.accuracy} ${HOME} ${x.y} ${index} ${tf.var.x}": "",
		"$${nobody.result.x}":                  "",
		"${many.5.result} ${grid.1.exit_code}": "",
		"${trian.result.x}":                    "${trian.result.x}: there is no stage trian (did you mean train? For a literal text write $${)",
		"${nobody.result.x}":                   "for a literal text write $${",
		"${nobody.artifacts.m.url}":            "there is no stage nobody",
		"${nobody.3.exit_code}":                "there is no stage nobody",
		"${use.result.x}":                      "cannot read its own result",
		"${late.result.x}":                     "stage late may not have ended by then (add late to needs)",
		"${many.result.x}":                     "name the element",
		"${many.4.result.x}":                   "no element 4",
		"${grid.2.result.x}":                   "no element 2",
		"${train.reslt.x}":                     "a stage has result, exit_code, metrics, artifacts, index, matrix and item",
		"${matrix.lr}":                         "this stage has no matrix",
	} {
		text := `{"tasks":[` + train + `,{"name":"use","needs":["many"],"run":["x"],"env":{"A":"` + ref + `"}},{"name":"late","kind":"noop"}]}`
		s := parse(t, text)
		s.Tasks[1].Needs, s.Tasks[2].Needs = []string{"train", "grid"}, nil
		wrong := dag.Check(s)
		switch {
		case want == "" && len(wrong) > 0:
			t.Errorf("%s is refused: %v", ref, wrong)
		case want != "" && (len(wrong) != 1 || wrong[0].Path != "tasks[3].env.A" || !strings.Contains(wrong[0].String(), want)):
			t.Errorf("%s returns %v, want %s", ref, wrong, want)
		}
	}
	s := parse(t, `{"tasks":[{"matrix":{"learning_rate":[1]},"run":"${matrix.lerning_rate} ${matrix.learning_rate}","where":{"tags":["${index}"]}}]}`)
	wrong := dag.Check(s)
	if len(wrong) != 2 || !strings.Contains(wrong[0].String(), "did you mean ${matrix.learning_rate}?") || !strings.Contains(wrong[1].String(), "same for all elements") {
		t.Errorf("%v", wrong)
	}
	s.Tasks[0].Run.Shell = strings.Repeat("${a.result}", 1000)
	if n := len(dag.Check(s)); n != 100 {
		t.Errorf("%d problems, want 100", n)
	}
}

// Resolve can resolve everything that Check accepts, if the results exist.
func TestCheckedTemplatesResolve(t *testing.T) {
	pieces := []string{"${train.", "${many.", "${grid.", "5.", "0.", "9.", "result", "exit_code", "artifacts.", "model v1.pt.", "size", ".list", ".0", "}", "$", "x", "${index}"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(t, "text"), "")
		s := parse(t, user(`"run":[`+quoted(text)+`]`))
		if len(dag.Check(s)) > 0 {
			return
		}
		if _, err := dag.New(s).Resolve(3, results(s)); err != nil && !strings.Contains(err.Error(), "the result of task") && !strings.Contains(err.Error(), "no artifact") {
			t.Fatalf("%s was accepted, but: %v", text, err)
		}
	})
}
