package mloc

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/kind"
)

func documentOf(t *testing.T, spec string) Document {
	t.Helper()
	stages, err := Expand([]byte("apiVersion: mloc/v1\nkind: K\nspec: " + spec))
	if err != nil {
		t.Fatal(err)
	}
	return stages[0].Doc
}

// TestKindsOfMuster holds that what becomes of a task is what Muster's kind takes, and that what has no equivalent is refused with a sentence.
func TestKindsOfMuster(t *testing.T) {
	t.Parallel()
	catalog := kind.NewCatalog()
	for spec, want := range map[string]string{
		`{taskType: echo, a: "${X}"}`: `{"a":"$${X}","taskType":"echo"}`,
		`{taskType: inference, model: {source: {type: huggingface, identifier: m}}, data: {type: list, items: [a, b]}, inference: {max_tokens: 5, do_sample: false, top_k: -1, stop: END, system_prompt: be brief}, resources: {hardware: {cpu: 2}}, enforce_cpu: true}`:                                                                              `{"device":"cpu","inputs":["a","b"],"max_new_tokens":5,"model":"m","stop":["END"],"system":"be brief","task":"text-generation","temperature":0,"top_p":0.95}`,
		`{taskType: lora_sft, model: {source: {identifier: m}}, data: {dataset_name: d, prompt_column: p, response_column: r, max_samples: 5}, training: {epochs: 1}, lora: {r: 8, task_type: CAUSAL_LM}, checkpoint: {load: {taskId: abc, filename: final_lora.tar.gz, timeoutSec: 9, headers: {Authorization: Bearer k}, archive_format: tar.gz}}}`: `{"checkpoint":{"load":{"archive_format":"tar.gz","headers":{"Authorization":"Bearer k"},"timeoutSec":9,"url":"http://h/api/v1/results/abc/files/final_lora.tar.gz"}},"data":{"dataset_name":"d","max_samples":5,"prompt_column":"p","response_column":"r"},"lora":{"r":8},"model":{"source":{"identifier":"m"}},"training":{"epochs":1}}`,
		`{taskType: dpo, model: {source: {identifier: m}}, data: {jsonl: {url: "http://x/y.jsonl"}}, checkpoint: {load: {type: http, url: "http://x/m.tar.gz"}}}`:                                                                                                                                                                                     `{"checkpoint":{"load":{"url":"http://x/m.tar.gz"}},"data":{"jsonl":{"url":"http://x/y.jsonl"}},"model":{"source":{"identifier":"m"}}}`,
		`{taskType: rag, query: q}`:                                                                                                         "no kind that does what taskType rag",
		`{taskType: inference, data: {type: list, items: [a]}}`:                                                                             "spec.model.source.identifier is missing",
		`{taskType: inference, model: {source: {identifier: m}}, data: {type: dataset, name: x}}`:                                           "spec.data.name",
		`{taskType: inference, model: {source: {identifier: m}, adapters: [{type: lora}]}, data: {items: [a]}}`:                             "spec.model.adapters",
		`{taskType: inference, model: {source: {identifier: m}}, data: {items: [a]}, inference: {presence_penalty: 0.5}}`:                   "spec.inference.presence_penalty",
		`{taskType: inference, model: {source: {identifier: m}}, data: {items: [a]}, postprocess: {jsonl_export: {path: x}}}`:               "spec.postprocess",
		`{taskType: sft, model: {source: {identifier: m}}, data: {dataset_name: d}, checkpoint: {load: {type: local, path: /mnt/weights}}}`: "is a folder of the machine",
	} {
		stage, err := ToMuster(documentOf(t, spec), "http://h/")
		if err != nil {
			if muster.CodeOf(err) != muster.InvalidSpec || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", spec, err)
			}
			continue
		}
		if string(stage.Input) != want {
			t.Errorf("%s became %s", spec, stage.Input)
		}
		if wrong := catalog.Check(&stage); len(wrong) > 0 {
			t.Errorf("%s: the kind does not take it: %v", spec, wrong)
		}
	}
}

// TestResultsOfMuster holds that results of Muster's workers have the fields that MLOC's executors give them.
func TestResultsOfMuster(t *testing.T) {
	t.Parallel()
	files := []muster.Artifact{{Name: "final_model.tar.gz", Size: 7}, {Name: "metrics.json", Size: 1}}
	fileURL := func(string) string { return "http://h/x" }
	for spec, c := range map[string][2]string{
		`{taskType: echo, a: 1}`: {`{"a":1}`, `{"echo":{"a":1,"taskType":"echo"},"ok":true}`},
		`{taskType: inference, model: {source: {identifier: m}}}`: {
			`{"predictions":[{"prediction":"x"},{"error":"too long"}],"tokens_in":3,"tokens_out":4}`,
			`{"items":[{"finish_reason":null,"index":0,"output":"x"},{"error":"too long","finish_reason":null,"index":1,"output":null}],"model":"m","ok":true,"usage":{"completion_tokens":4,"latency_sec":1.5,"num_requests":2,"prompt_tokens":3,"total_tokens":7}}`,
		},
		`{taskType: sft, model: {source: {identifier: m}}}`: {
			`{"model":"m2","dataset_size":9,"seconds":2.5}`,
			`{"checkpoints_dir":null,"dataset_size":9,"error_message":null,"final_model_archive":"final_model.tar.gz","final_model_archive_bytes":7,"final_model_archive_path":"final_model.tar.gz","final_model_archive_uploaded":true,"final_model_archive_url":"http://h/x","final_model_path":"final_model","model_name":"m2","output_dir":".","resume_from_path":null,"task_id":"t","training_successful":true,"training_time_seconds":2.5}`,
		},
		`{taskType: other}`: {`5`, `{"ok":true,"result":5}`},
	} {
		if got := EncodeString(ToResult(documentOf(t, spec), "t", []byte(c[0]), files, fileURL, 1.5)); got != c[1] {
			t.Errorf("%s: %s", spec, got)
		}
	}
}
