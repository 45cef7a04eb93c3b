package mloc

import (
	"errors"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/specvalidate"
)

const pipeline = `
apiVersion: mloc/v1
kind: Pipeline
metadata: {name: tune, owner: ada}
spec:
  model: {source: {type: huggingface, identifier: base}}
  resources: {hardware: {cpu: 4, memory: 16Gi, gpu: {count: 1, type: any, memory: 24Gi}}}
  stages:
    - name: fit
      spec: {taskType: lora_sft, data: {dataset_name: d, prompt_column: p, response_column: r}, lora: {r: 8}, training: {epochs: 1}}
    - name: refine it
      spec: {taskType: sft, data: {dataset_name: e, text_field: t}, checkpoint: {load: {type: http, url: "${fit.result.final_lora_archive_url}", headers: {A: b}}}}
    - name: ask
      dependsOn: [fit]
      spec: {taskType: inference, data: {type: list, items: ["${HOME} is a word", "loss ${fit.result.final_metrics.loss}"]}}
    - name: again
      dependsOn: [ask]
      spec: {taskType: inference, data: {type: list, items: ["${ask.result.items.1.output}"]}, inference: {max_tokens: 5}}
    - name: echo
      dependsOn: []
      spec: {taskType: echo, value: "${again.result.model}"}
`

// TestImportOfAPipeline holds that the spec is valid and that each reference leads to what MLOC's would lead to.
func TestImportOfAPipeline(t *testing.T) {
	t.Parallel()
	s, lost, err := Import([]byte(pipeline))
	if err != nil {
		t.Fatal(err)
	}
	if len(lost) != 1 || lost[0].Path != "stage ask: ${HOME}" {
		t.Errorf("lost: %v", lost)
	}
	if s.Name != "tune" || s.Labels["owner"] != "ada" {
		t.Errorf("%q, %v", s.Name, s.Labels)
	}
	for i, want := range []struct{ name, kind, needs, input string }{
		{"fit", "lora_sft", "", `"data":{"dataset_name":"d","prompt_column":"p","response_column":"r"}`},
		{"refine-it", "sft", "fit", `"checkpoint":{"load":{"path":"final_lora.tar.gz"}}`},
		{"ask", "inference", "fit", `"inputs":["$${HOME} is a word","loss ${fit.result.finalMetrics.loss}"]`},
		{"again", "inference", "ask", `"inputs":["${ask.result.predictions.1.prediction}"]`},
		{"echo", "echo", "again", `"value":"${again.result.model}"`},
	} {
		got := s.Tasks[i]
		if got.Name != want.name || got.Kind != want.kind || strings.Join(got.Needs, " ") != want.needs || !strings.Contains(string(got.Input), want.input) {
			t.Errorf("stage %d: %s, %s, needs %q, input %s", i, got.Name, got.Kind, got.Needs, got.Input)
		}
		if r := got.Resources; r.CPUs != 4 || r.Memory != 16<<30 || r.GPUs.Count != 1 || r.GPUs.Memory != 24<<30 || r.GPUs.Model != "" {
			t.Errorf("stage %d: resources %+v", i, r)
		}
		if wrong := kind.NewCatalog().Check(&got); len(wrong) > 0 {
			t.Errorf("stage %d: its kind does not take it: %v", i, wrong)
		}
	}
	if in := s.Tasks[1].Inputs; len(in) != 1 || in[0] != (muster.Input{From: "fit", Name: "final_lora.tar.gz"}) {
		t.Errorf("inputs %+v", in)
	}
	if wrong := specvalidate.Spec(s); len(wrong) > 0 {
		t.Error(wrong)
	}
}

func TestImportListsWhatHasNoEquivalent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		doc  string
		want []string // in order
	}{
		"nothing": {`spec: {taskType: echo, a: 1}`, nil},
		"fields of a task": {
			`metadata: {name: n, annotations: {a: b}}
spec:
  taskType: inference
  model: {source: {identifier: m}, adapters: [{type: lora}], vllm: {swap: 1}}
  data: {type: list, items: [a]}
  inference: {presence_penalty: 0.5, frequency_penalty: 1}
  postprocess: {jsonl_export: {path: x}}
  output: {destination: {type: http, url: "http://h/x"}, artifacts: [a]}
  dependsOn: [other]`,
			[]string{
				"metadata.annotations", "spec.output.destination", "spec.output.artifacts", "spec.dependsOn", "spec.postprocess", "spec.model.adapters", "spec.model.vllm.swap",
				"spec.inference.frequency_penalty", "spec.inference.presence_penalty",
			},
		},
		"references": {
			`spec: {stages: [{name: a, spec: {taskType: echo}}, {name: b, spec: {taskType: echo, x: "${a.task_id} ${c.result.x} ${a.result.echo.y}"}}]}`,
			[]string{"stage b: ${a.task_id}", "stage b: ${c.result.x}"},
		},
	} {
		s, lost, err := Import([]byte("apiVersion: mloc/v1\nkind: K\n" + c.doc))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var paths []string
		for _, f := range lost {
			paths = append(paths, f.Path)
			if f.Message == "" || f.Hint == "" {
				t.Errorf("%s: %+v does not say what to do", name, f)
			}
		}
		if strings.Join(paths, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: %q", name, paths)
		}
		if wrong := specvalidate.Spec(s); len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

func TestImportNamesTasksWithoutAnEquivalent(t *testing.T) {
	t.Parallel()
	_, _, err := Import([]byte(`{apiVersion: mloc/v1, spec: {stages: [{name: a, spec: {taskType: rag, query: q}}, {name: b, spec: {taskType: echo}}, {name: c, spec: {taskType: inference, model: {source: {identifier: m}}, data: {type: dataset, name: x}}}]}}`))
	e, ok := errors.AsType[*muster.Error](err)
	if !ok || e.Code != muster.InvalidSpec || len(e.Fields) != 2 || !strings.Contains(e.Fields[0].String(), "stage a: spec: Muster has no kind") || !strings.Contains(e.Fields[1].String(), "as a list, and not as dataset") {
		t.Fatalf("%v: %+v", err, e)
	}
	for _, doc := range []string{"", "a: 1", "apiVersion: mloc/v2\nspec: {}", "apiVersion: mloc/v1\nspec: {stages: [{name: a, dependsOn: [a]}]}"} {
		if _, _, err := Import([]byte(doc)); muster.CodeOf(err) != muster.InvalidSpec {
			t.Errorf("%q: %v", doc, err)
		}
	}
}

// FuzzImport holds that a spec of any document is valid but for its names and inputs, and that no text of it becomes a reference to another stage than it names.
func FuzzImport(f *testing.F) {
	f.Add([]byte(pipeline))
	f.Add([]byte(`{apiVersion: mloc/v1, spec: {taskType: inference, model: {source: {identifier: m}, "a.b": 1}, "c.d": 1, data: {items: [a]}}}`))
	f.Add([]byte(`{apiVersion: mloc/v1, spec: {stages: [{name: "a b", spec: {taskType: echo, "x.y": "$${a b.result.echo.z}"}}, {name: a-b, spec: {taskType: echo, x: "${a b.result.echo.z}"}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, _, err := Import(data)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for i := range s.Tasks {
			if names[s.Tasks[i].Name] {
				t.Errorf("two stages have the name %q", s.Tasks[i].Name)
			}
			names[s.Tasks[i].Name] = true
		}
		for i := range s.Tasks {
			for _, need := range s.Tasks[i].Needs {
				if !names[need] {
					t.Errorf("stage %q needs %q, which does not exist", s.Tasks[i].Name, need)
				}
			}
		}
	})
}
