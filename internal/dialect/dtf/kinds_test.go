package dtf

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

func TestTasksBecomeStages(t *testing.T) {
	for _, tc := range []struct{ taskType, config, want, wrong string }{
		{"benchmark", `{"model":"bert-base-uncased","batch_sizes":[1,2],"precision":"fp32","iterations":10}`, `{"batch_sizes":[1,2],"iterations":10,"model":"bert-base-uncased","precision":"fp32"}`, ""},
		{"benchmark", `{"model":"m"}`, `{"batch_sizes":[1,2,4,8,16],"model":"m"}`, ""},
		{"test", `{"test_file":"test_bert.py","test_args":["--batch-size","4"]}`, `{"test_args":["--batch-size","4"],"test_file":"test_bert.py"}`, ""},
		{"custom", `{"name":"setup_environment","parameters":{"clear_cache":true,"prepare_models":["bert"]}}`, `{"name":"setup_environment","parameters":{"clear_cache":true,"prepare_models":["bert"]}}`, ""},
		{"hash", `{"payload":"abc","name":"n","batch_sizes":[1],"timeout_seconds":5}`, `{"data":"abc"}`, ""},
		{"test", `{"test_file":"t.py","model":"m","Test_File":"x"}`, `{"test_file":"t.py"}`, ""},
		{"benchmark", `{"model":"m","batch_sizes":[1],"name":"n","device":"cpu"}`, `{"batch_sizes":[1],"device":"cpu","model":"m"}`, ""},
		{"custom", `{"name":"clear_cache","args":[1]}`, `{"name":"clear_cache"}`, ""},
		{"custom", ``, `{"name":"unknown"}`, ""},
		{"hash", `{"payload":"abc","encoding":"utf8"}`, `{"data":"abc","encoding":"utf-8"}`, ""},
		{"hash", `null`, `{"data":""}`, ""},
		{"train", `{}`, "", "Unknown task type: train"},
		{"hash", `[1]`, "", "config is not a JSON object"},
		{"hash", `{"timeout_seconds":"soon"}`, "", "timeout_seconds"},
	} {
		spec, err := toMuster(tc.taskType, json.RawMessage(tc.config))
		switch {
		case tc.wrong != "":
			if muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%s %s: %v", tc.taskType, tc.config, err)
			}
		case err != nil || string(spec.Input) != tc.want || spec.Kind != tc.taskType:
			t.Errorf("%s %s: %s %s, %v", tc.taskType, tc.config, spec.Kind, spec.Input, err)
		}
	}
	spec, err := toMuster("hash", json.RawMessage(`{"data":"x","timeout_seconds":1.5}`))
	if err != nil || spec.Timeout.Std() != 1500*time.Millisecond {
		t.Errorf("a timeout: %v, %v", spec.Timeout, err)
	}
}

func TestForeignTasksAreCarriedAsTheyAre(t *testing.T) {
	spec, err := toForeign("anything", json.RawMessage(`{"a":[1,{"b":null}]}`))
	if err != nil {
		t.Fatal(err)
	}
	taskType, config, err := fromMuster(&spec)
	if err != nil || taskType != "anything" || string(config) != `{"a":[1,{"b":null}]}` {
		t.Errorf("%s %s, %v", taskType, config, err)
	}
	if _, config, err := fromMuster(&muster.TaskSpec{Kind: "foreign", Input: json.RawMessage(`{"system":"dtf","type":"x"}`)}); err != nil || string(config) != "{}" {
		t.Errorf("without a config: %s, %v", config, err)
	}
	if _, _, err := fromMuster(&muster.TaskSpec{Kind: "foreign", Input: json.RawMessage(`{"system":"qubix","type":"x"}`)}); err == nil {
		t.Error("a task of another system")
	}
	if _, _, err := fromMuster(&muster.TaskSpec{Kind: "sft"}); err == nil {
		t.Error("a kind that DTF does not have")
	}
	taskType, config, err = fromMuster(&muster.TaskSpec{Kind: "hash", Input: json.RawMessage(`{"data":"abc"}`)})
	if err != nil || taskType != "hash" || string(config) != `{"data":"abc","payload":"abc"}` {
		t.Errorf("%s %s, %v", taskType, config, err)
	}
}

func TestResultsAreAsDTFHasThem(t *testing.T) {
	for _, tc := range []struct{ taskType, config, result, want string }{
		{"benchmark", `{"model":"m","batch_sizes":[1,2]}`, `{"runs":[{"batch_size":1,"precision":"fp32","latency_ms":{"mean":4.5},"throughput":222.2,"peak_memory":1048576},{"batch_size":2,"error":{"reason":"out_of_memory"}}]}`,
			`{"batch_sizes":{"1":{"latency_ms":4.5,"throughput_items_per_second":222.2,"memory_mb":1}},"iterations":10,"model":"m","precision":"fp32","runs":[{"batch_size":1,"precision":"fp32","latency_ms":{"mean":4.5},"throughput":222.2,"peak_memory":1048576},{"batch_size":2,"error":{"reason":"out_of_memory"}}]}`},
		{"test", `{"test_file":"t.py"}`, `{"passed":3,"failed":1,"skipped":2,"errors":0,"total":6,"duration":0.5}`,
			`{"duration":0.5,"duration_seconds":0.5,"errors":0,"failed":1,"passed":3,"skipped":2,"success":false,"test_count":6,"test_file":"t.py","total":6}`},
		{"custom", `{"name":"clear_cache"}`, `{"name":"clear_cache","status":"success","done":[]}`,
			`{"done":[],"name":"clear_cache","output":"Custom task clear_cache was done","status":"success","success":true}`},
		{"hash", `{"data":"abc"}`, `{"algorithm":"sha256","digest":"d","length":3}`, `{"algorithm":"sha256","digest":"d","length":3}`},
		{"hash", `{}`, `[1]`, `[1]`},
	} {
		if got := string(toDTF(tc.taskType, json.RawMessage(tc.config), json.RawMessage(tc.result))); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.taskType, got, tc.want)
		}
	}
}

// The results of contracts.md 3.3, which the real workers invent.
func TestSimulatedResultsAreReported(t *testing.T) {
	for _, tc := range []struct {
		taskType, result string
		want             bool
	}{
		{"benchmark", `{"model":"m","precision":"fp32","iterations":10,"batch_sizes":{"1":{"latency_ms":12,"throughput_items_per_second":83.3,"memory_mb":1152},"8":{"latency_ms":26,"throughput_items_per_second":307.7,"memory_mb":2048}}}`, true},
		{"benchmark", `{"batch_sizes":{"1":{"latency_ms":12,"memory_mb":1152},"8":{"latency_ms":25.9,"memory_mb":2048}}}`, false},
		{"benchmark", `{"batch_sizes":{}}`, false},
		{"test", `{"test_file":"t.py","success":true,"test_count":10,"passed":9,"failed":1,"skipped":0,"duration_seconds":2.0}`, true},
		{"test", `{"test_file":"t.py","success":true,"test_count":10,"passed":10,"failed":0,"skipped":0,"duration_seconds":2.0}`, false},
		{"custom", `{"name":"x","success":true,"output":"Executed custom task x"}`, true},
		{"custom", `{"name":"x","success":true,"output":"done"}`, false},
		{"hash", `{"algorithm":"sha256","digest":"d","length":3}`, false},
		{"other", `{}`, false},
	} {
		if got := simulated(tc.taskType, json.RawMessage(tc.result)); got != tc.want {
			t.Errorf("%s %s: %v", tc.taskType, tc.result, got)
		}
	}
}

func TestWhatMayBeInOneBatch(t *testing.T) {
	task := func(taskType, config string) wireTask {
		return wireTask{TaskType: taskType, Config: json.RawMessage(config)}
	}
	for _, tc := range []struct {
		a, b wireTask
		want bool
	}{
		{task("hash", `{}`), task("custom", `{}`), true},
		{task("test", `{}`), task("test", `{}`), false},
		{task("benchmark", `{"model":"a"}`), task("benchmark", `{"model":"a"}`), true},
		{task("benchmark", `{"model":"a"}`), task("benchmark", `{"model":"b"}`), false},
		{task("benchmark", `{"model":"a"}`), task("hash", `{}`), false},
		{task("benchmark", `{}`), task("benchmark", `{}`), false},
	} {
		if got := canBatch(tc.a, tc.b); got != tc.want {
			t.Errorf("%v and %v: %v", tc.a, tc.b, got)
		}
	}
}
