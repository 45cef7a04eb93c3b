package mlochost

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// TestTasksForWorkers holds what workers of MLOC are given for tasks of Muster's kinds, and that what they cannot do is refused with a sentence.
func TestTasksForWorkers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, input, want string }{
		{"echo", `{"a":[1,2.50]}`, `{"input":{"a":[1,2.50]},"taskType":"echo"}`},
		{"inference", `{"model":"m","inputs":["a","b"],"max_new_tokens":5,"temperature":0.5,"system":"s"}`,
			`{"data":{"items":["a","b"],"type":"list"},"inference":{"max_tokens":5,"system_prompt":"s","temperature":0.5},"model":{"source":{"identifier":"m"},"transformers":{}},"taskType":"inference"}`},
		{"inference", `{"model":"m","input":"a","device":"cpu"}`,
			`{"data":{"items":["a"],"type":"list"},"enforce_cpu":true,"inference":{"do_sample":false,"max_tokens":128,"temperature":0},"model":{"source":{"identifier":"m"},"transformers":{}},"taskType":"inference"}`},
		{"lora_sft", `{"base_model":"m","dataset":"org/d","epochs":2,"lora":{"r":4}}`,
			`{"data":{"dataset_name":"org/d"},"lora":{"r":4},"model":{"source":{"identifier":"m","type":"huggingface"}},"taskType":"lora_sft","training":{"epochs":2,"num_train_epochs":2}}`},
		{"foreign", `{"system":"mloc","type":"rag","config":{"query":"q"}}`, `{"query":"q","taskType":"rag"}`},
		{"foreign", `{"system":"mloc","type":"x","config":{"apiVersion":"mloc/v1","kind":"K","spec":{"taskType":"agent"}}}`, `{"taskType":"agent"}`},
		{"foreign", `{"system":"dtf","type":"x"}`, "is for workers of dtf"},
		{"inference", `{"model":"m","input":"a","task":"embedding"}`, "have no embedding"},
		{"inference", `{"model":"m","input":{"text":"a"}}`, "items that are texts"},
		{"inference", `{"model":"m","input_file":"x"}`, "input_file"},
		{"sft", `{"model":"m","dataset":["a"]}`, "no rows"},
		{"sft", `{"model":"m","adapter":"x"}`, "adapter"},
		{"rag", `{}`, "nothing like kind rag"},
	} {
		d, err := toDocument(&muster.TaskSpec{Kind: c.kind, Input: json.RawMessage(c.input)}, "id")
		got := mloc.EncodeString(d.Spec)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s %s: %s", c.kind, c.input, got)
		}
	}
}

// FuzzDelivery holds that what is accepted has an id that is a plain name, and an object as its result.
func FuzzDelivery(f *testing.F) {
	f.Add([]byte(`{"task_id":"t","result":{"a":1},"worker_id":"w","metadata":{}}`))
	f.Add([]byte(`{"task_id":"../x","result":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := readDelivery(b)
		if err != nil {
			return
		}
		if !mloc.ValidID(d.TaskID) || d.Result == nil {
			t.Fatalf("%s is read as %+v", b, d)
		}
	})
}

// FuzzSubmission holds that a JSON body becomes a document or an error, and that a text in it is the document.
func FuzzSubmission(f *testing.F) {
	f.Add([]byte(`{"yaml":"a: b"}`))
	f.Add([]byte(`"a: b"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		doc, err := yamlFromJSON(b)
		if err != nil {
			return
		}
		var s string
		if json.Unmarshal(b, &s) == nil && string(doc) != s && string(b) != "null" {
			t.Fatalf("%s became %s", b, doc)
		}
	})
}

// FuzzStage holds that a task of Muster becomes a document with a type, or an error.
func FuzzStage(f *testing.F) {
	f.Add("inference", []byte(`{"model":"m","inputs":["a"]}`))
	f.Add("foreign", []byte(`{"system":"mloc","type":"t","config":{"spec":{}}}`))
	f.Add("sft", []byte(`{"model":{"source":{"identifier":"m"}},"data":{}}`))
	f.Fuzz(func(t *testing.T, kind string, input []byte) {
		d, err := toDocument(&muster.TaskSpec{Kind: kind, Input: input}, "id")
		if err == nil && mloc.TaskType(d) == "" && kind != "foreign" {
			t.Fatalf("%s %s became %s", kind, input, mloc.EncodeString(d))
		}
	})
}
