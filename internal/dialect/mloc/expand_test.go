package mloc

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	got, err := Expand([]byte(`
apiVersion: mloc/v1
kind: Pipeline
metadata: {name: root, owner: me, annotations: {a: b}}
spec:
  taskType: sft
  model: {source: {identifier: m, revision: main}}
  training: {epochs: 1, list: [1, 2]}
  stages:
    - name: a
    - id: b
      spec: {taskType: lora_sft, model: {source: {revision: v2}}, training: {list: [3]}}
    - spec: {model: none}
      dependsOn: []
    - name: d
      dependsOn: [a, b, a]
`))
	if err != nil || len(got) != 4 {
		t.Fatalf("%d stages, %v", len(got), err)
	}
	b := got[1]
	if b.Name != "b" || !reflect.DeepEqual(b.Needs, []int{0}) || b.Doc.Metadata["name"] != "root:b" || TaskType(b.Doc) != "lora_sft" {
		t.Errorf("the second is %+v", b)
	}
	if EncodeString(b.Doc.Spec) != `{"model":{"source":{"identifier":"m","revision":"v2"}},"taskType":"lora_sft","training":{"epochs":1,"list":[3]}}` {
		t.Errorf("its spec is %s", EncodeString(b.Doc.Spec))
	}
	if c := got[2]; c.Name != "stage-3" || len(c.Needs) != 0 || c.Doc.Spec["model"] != "none" {
		t.Errorf("the third is %+v", c)
	}
	if !reflect.DeepEqual(got[3].Needs, []int{0, 1}) {
		t.Errorf("the fourth needs %v", got[3].Needs)
	}
	if a := got[0].Doc; EncodeString(a.Spec["training"]) != `{"epochs":1,"list":[1,2]}` || a.Metadata["owner"] != "me" {
		t.Errorf("the first became %s", EncodeString(a))
	}
}

func TestResourceRequest(t *testing.T) {
	t.Parallel()
	for hw, want := range map[string]muster.Request{
		`{"cpu": "4", "memory": "16Gi"}`:                             {CPUs: 4, Memory: 16 << 30},
		`{"cpu": 2, "memory": "16gb"}`:                               {CPUs: 2, Memory: 16 << 30},
		`{"cpu": "many", "memory": "1.5G"}`:                          {},
		`{"cpu": -1, "memory": "512"}`:                               {Memory: 512},
		`{"memory": "99999999999T"}`:                                 {},
		`{"gpu": {"count": 2, "type": "A100", "memory": "40GiB"}}`:   {GPUs: muster.GPURequest{Count: 2, Model: "A100", Memory: 40 << 30}},
		`{"gpu": {"type": "any", "memory": "8G"}}`:                   {GPUs: muster.GPURequest{Count: 1, Memory: 8 << 30}},
		`{"gpu": {"type": "auto"}}`:                                  {},
		`{"gpu": {"count": "1", "type": "*"}}`:                       {GPUs: muster.GPURequest{Count: 1}},
		`{"cpu": null, "gpu": "yes", "memory": {"min": 1}}`:          {},
		`{"cpu": 2.5, "memory": "12 K", "gpu": {"count": 99999999}}`: {Memory: 12 << 10},
	} {
		var v any
		if err := Decode([]byte(hw), 1000, &v); err != nil {
			t.Fatal(err)
		}
		if got := ResourceRequest(Object{"resources": Object{"hardware": v}}); got != want {
			t.Errorf("%s needs %+v, and not %+v", hw, got, want)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	var w Object
	if err := Decode([]byte(`{"task_id":"id-a","worker_id":"w1","result":{"n":1.50,"yes":true,"list":["x",{"k":null}],"text":"${b.result.n}"}}`), 1000, &w); err != nil {
		t.Fatal(err)
	}
	stages := map[string]Upstream{"a": {TaskID: "id-a", Done: true, Wrapper: w}, "b": {TaskID: "id-b"}, "gone": {Done: true}}
	for in, want := range map[string]string{
		`"${a.result.n}"`:               `1.50`,
		`"x ${a.result.n} y"`:           `"x 1.50 y"`,
		`"${a.result.list}"`:            `["x",{"k":null}]`,
		`"${a.result.list.0}"`:          `"x"`,
		`"${a..result..list.0}"`:        `"x"`,
		`"${a.result.yes}!"`:            `"True!"`,
		`"${a.worker_id}-${a.task_id}"`: `"w1-id-a"`,
		`"${b.task_id}"`:                `"id-b"`,
		`"${a.result.text}"`:            `"${b.result.n}"`, // what is brought in is not looked at again
		`"${"`:                          `"${"`,
		`"${}"`:                         `"${}"`,
		`"$a"`:                          `"$a"`,
		`"${b.result.n}"`:               `errPending`,
		`"${zz.result}"`:                `Unknown stage reference 'zz'`,
		`"${HOME}"`:                     `Invalid stage reference 'HOME'`,
		`"${a.result.list.7}"`:          `Missing value for reference 'a.result.list.7'`,
		`"${a.result.list.1.k}"`:        `Missing value for reference`,
		`"${gone.result}"`:              `was delivered elsewhere`,
	} {
		var v any
		if err := Decode([]byte(in), 1000, &v); err != nil {
			t.Fatal(err)
		}
		got, err := Resolve(Object{"v": []any{v}}, stages)
		switch {
		case want == "errPending":
			if err != ErrPending { //nolint:errorlint // it is this very value
				t.Errorf("%s: %v", in, err)
			}
		case err != nil:
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", in, err)
			}
		default:
			list, _ := got["v"].([]any)
			if EncodeString(list[0]) != want {
				t.Errorf("%s became %s", in, EncodeString(list[0]))
			}
			if Lookup(got, "_upstreamResults", "a", "result") == nil || Lookup(got, "_upstreamResults")["b"] != nil {
				t.Errorf("%s: upstream results are %s", in, EncodeString(got["_upstreamResults"]))
			}
		}
	}
	big := Upstream{Done: true, Wrapper: Object{"result": Object{"t": strings.Repeat("x", 1<<20)}}}
	if _, err := Resolve(Object{"v": strings.Repeat("${a.result.t}", 100)}, map[string]Upstream{"a": big}); err == nil || !strings.Contains(err.Error(), "pass them as files") {
		t.Errorf("a spec of 100 MiB: %v", err)
	}
}

// FuzzExpand holds that whatever is accepted is a graph that can be walked to its end, with different names, and within bounds.
func FuzzExpand(f *testing.F) {
	f.Add([]byte("apiVersion: mloc/v1\nspec: {taskType: echo}"))
	f.Add([]byte("apiVersion: mloc/v1\nspec: {taskType: echo, stages: [{name: a}, {id: b, dependsOn: [a], spec: {x: {y: 1}}}]}"))
	f.Add([]byte("apiVersion: mloc/v1\nspec: {taskType: echo, graph: {nodes: [{name: a, dependsOn: b}, {name: b}]}}"))
	f.Add([]byte(`{"apiVersion":"mloc/v1","metadata":{"name":"n"},"spec":{"taskType":"sft","dependsOn":["x"]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		stages, err := Expand(data)
		if err != nil {
			if code := muster.CodeOf(err); code != muster.InvalidSpec && code != muster.Invalid && code != muster.TooLarge {
				t.Fatalf("%s: %v", code, err)
			}
			return
		}
		needs := make([][]int, len(stages))
		for i, s := range stages {
			needs[i] = s.Needs
		}
		if _, acyclic := dag.TopoSort(needs); len(stages) == 0 || len(stages) > maxStages || !acyclic {
			t.Fatalf("%d stages", len(stages))
		}
		seen := map[string]bool{}
		for i, s := range stages {
			if seen[s.Name] || len(stages) > 1 && s.Name == "" {
				t.Fatalf("two stages %q", s.Name)
			}
			seen[s.Name] = true
			for _, j := range s.Needs {
				if j == i || j < 0 || j >= len(stages) {
					t.Fatalf("%d needs %d", i, j)
				}
			}
			if TaskType(s.Doc) == "" || s.Doc.Spec["stages"] != nil && len(stages) > 1 {
				t.Fatalf("a task is %s", EncodeString(s.Doc))
			}
			ResourceRequest(s.Doc.Spec)
			if stage, err := ToMuster(s.Doc, ""); err == nil && !json.Valid(stage.Input) {
				t.Fatalf("the input is %s", stage.Input)
			}
		}
	})
}

// FuzzResolve holds that a text without references stays as it is, that no reference is left that could be replaced, and that the spec is not changed.
func FuzzResolve(f *testing.F) {
	f.Add("x ${a.result.n} ${b.task_id}")
	f.Add("${a.result}")
	f.Add("$${a.result}}${")
	stages := map[string]Upstream{"a": {TaskID: "id", Done: true, Wrapper: Object{"result": Object{"n": json.Number("1")}}}, "b": {TaskID: "id-b"}}
	f.Fuzz(func(t *testing.T, s string) {
		spec := Object{"v": s}
		got, err := Resolve(spec, stages)
		if spec["v"] != s || len(spec) != 1 {
			t.Fatal("the spec was changed")
		}
		if err == nil && !strings.Contains(s, "${") && got["v"] != s {
			t.Fatalf("%q became %v", s, got["v"])
		}
		if r, ok := got["v"].(string); err == nil && ok && strings.Contains(r, "${a.task_id}") {
			t.Fatalf("%q became %q", s, r)
		}
	})
}
