package qubix

import (
	"encoding/json"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/kind"
)

// presentable reports whether a text may be shown, and is not too long.
func presentable(s string) bool {
	return len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Every registration becomes a worker that the server accepts.
func FuzzRegistration(f *testing.F) {
	f.Add([]byte(`{"worker_id":"7504b4378b5d0f8f","name":"Provider-7504b437","specs":{"cpu_cores":2,"ram_total_gb":23.54,"gpu_available":true,"gpu_model":"NVIDIA GeForce MX150","gpu_vram_gb":4.0},"location":"Local Network","pricePerHour":5.0}`))
	f.Add([]byte(`{"workerId":"x","name":"\u001b/","pricePerHour":-1e308,"specs":{"cpu_cores":1e300,"software":"muster/1","kinds":["echo","echo","noop","..."]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r registration
		if json.Unmarshal(b, &r) != nil || checkID(r.id()) != nil {
			return
		}
		facts := completeFacts(newFacts(&r, netip.Addr{}, "", 1), nil)
		if facts.Price < 0 || facts.Price > maxPrice || facts.Resources.CPUs < 0 || facts.Resources.Memory < 0 || facts.Resources.Disk < 0 || facts.Resources.MaxTasks < 1 || facts.Resources.MaxTasks > maxSlots {
			t.Errorf("the worker is %+v", facts)
		}
		if facts.Name == "" || len(facts.Name) > muster.MaxNameSize || strings.TrimSpace(facts.Name) != facts.Name || strings.Contains(facts.Name, "/") || !presentable(facts.Name) {
			t.Errorf("the name is %q", facts.Name)
		}
		for name, value := range facts.Labels {
			if !presentable(value) {
				t.Errorf("label %s is %q", name, value)
			}
		}
		for _, tag := range facts.Tags {
			if !presentable(tag) {
				t.Errorf("a tag is %q", tag)
			}
		}
		for _, g := range facts.Resources.GPUs {
			if g.Memory <= 0 || g.Name == "" || g.UUID == "" {
				t.Errorf("a GPU is %+v", g)
			}
		}
	})
}

func FuzzHeartbeat(f *testing.F) {
	f.Add([]byte(`{"workerId":"x","usage":{"cpuPercent":12.5,"ramPercent":40,"ramUsedGb":9.4,"gpuPercent":-5,"gpuTemp":41,"gpuPowerDraw":-1},"status":"online","currentJob":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h heartbeat
		if json.Unmarshal(b, &h) != nil {
			return
		}
		load := parseLoad(&h.Usage, muster.Resources{Memory: 8 << 30, GPUs: []muster.GPU{{UUID: "g", Memory: 8 << 30}}})
		if load.CPU < 0 || load.CPU > 1 || load.Memory < 0 {
			t.Errorf("the load is %+v", load)
		}
		for _, g := range load.GPUs {
			if g.Utilization != nil && (*g.Utilization < 0 || *g.Utilization > 1) || g.Power != nil && *g.Power < 0 || g.Memory != nil && *g.Memory < 0 {
				t.Errorf("the load of the GPU is %+v", g)
			}
		}
	})
}

// A job becomes a stage with one kind or an error; the job for a worker is equal to the original.
func FuzzJob(f *testing.F) {
	for _, seed := range []string{
		`{"id":"1","jobType":"mnist_training","inputData":{"epochs":5,"batch_size":64}}`, `{"id":"1","jobType":null,"modelType":"training","inputData":{"dataset":"imagenet"}}`,
		`{"id":"1","jobType":"Stable Diffusion","inputData":{"prompt":null}}`, `{"id":"1","jobType":"custom_script","inputData":{"script":"print(1)","scriptUrl":"https://example.org/x.py"}}`,
		`{"id":"1","modelType":"fine-tuning","requiredVRAM":8,"requiredRAM":-1,"inputData":{"baseModel":"org/gpt"}}`, `{"id":"1","inputData":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var j job
		if json.Unmarshal(b, &j) != nil {
			return
		}
		for _, carried := range []bool{false, true} {
			s, err := toStage(&j, carried)
			if err != nil {
				if muster.CodeOf(err) != muster.Invalid {
					t.Errorf("refused with %v", err)
				}
				continue
			}
			if s.Kind == "" || s.Resources.Memory < 0 || s.Resources.GPUs.Memory < 0 || (s.Kind == muster.KindScript) != (s.Script != nil) {
				t.Errorf("the stage is %+v", s)
			}
			if s.Input != nil && !json.Valid(s.Input) {
				t.Errorf("the input is %s", s.Input)
			}
			o := toWorkerJob("id", "worker", &s, true)
			if o.ComputeNeeded == nil || o.JobType == nil || o.ModelType == "" && s.Kind != kind.Foreign {
				t.Errorf("a worker would fail at %+v", o)
			}
			_ = unsupportedReason(&s)
		}
	})
}

// A final report has one outcome, a reason if it is a failure, and a result that can be stored.
func FuzzCompletion(f *testing.F) {
	f.Add([]byte(`{"workerId":"x","status":"completed","result":{"simulated":true},"error":null,"metrics":{"processingTimeSeconds":1}}`), "mnist_training")
	f.Add([]byte(`{"status":"FAILED","result":{"errorDetails":"Traceback\n","stdout":["a"],"stderr":3},"error":"Script failed with exit code 99999999999999999999: x"}`), "script")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		var c completion
		if json.Unmarshal(b, &c) != nil {
			return
		}
		v := evaluate(name, &c)
		switch {
		case v.Outcome != muster.AttemptSucceeded && v.Outcome != muster.AttemptFailed,
			(v.Outcome == muster.AttemptFailed) != (v.Reason != ""), (v.Reason != "") != (v.Message != ""),
			v.Result != nil && (!json.Valid(v.Result) || len(v.Result) > muster.MaxResultSize):
			t.Errorf("the verdict is %+v", v)
		case isSimulated(c.Result, 4) && v.Outcome == muster.AttemptSucceeded:
			t.Errorf("a simulated result counts: %s", c.Result)
		}
		var p progress
		if json.Unmarshal(b, &p) == nil {
			for name, v := range numericMetrics(p.Metrics) {
				if math.IsNaN(v) || !presentable(name) {
					t.Errorf("metric %q is %v", name, v)
				}
			}
		}
	})
}

// A list of jobs has only those that can be named.
func FuzzJobs(f *testing.F) {
	f.Add([]byte(`[{"id":"a"},{"id":7},3,null,{"id":""}]`))
	f.Add([]byte(`{"id":"a"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, j := range parseJobs(b) {
			if j.ID == "" || j.kind() != strings.ToLower(j.kind()) {
				t.Errorf("a job is %+v", j)
			}
		}
	})
}

// What each type of job becomes.
func TestKindsOfJobs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ row, want, carried string }{
		{`{"jobType":"mnist_training","inputData":{"epochs":5}}`, "mnist_training", ""},
		{`{"jobType":"MNIST"}`, "mnist_training", ""},
		{`{"jobType":"training"}`, "mnist_training", ""},
		{`{"modelType":"training","inputData":{"dataset":"imagenet","epochs":10}}`, "training", "foreign"},
		{`{"modelType":"training","inputData":{"dataset":"iris"}}`, "training", ""},
		{`{"jobType":"stable_diffusion","inputData":{"prompt":"a cat"}}`, "stable_diffusion", ""},
		{`{"jobType":"custom_script","inputData":{"script":"print(1)"}}`, "script", ""},
		{`{"jobType":"anything","inputData":{"scriptUrl":"https://example.org/a.py","script":"no"}}`, "script", ""},
		{`{"modelType":"inference","inputData":{"model":"resnet50","input":"image.jpg"}}`, "inference", "foreign"},
		{`{"modelType":"inference","inputData":{"model":"org/model","input":"a text"}}`, "inference", ""},
		{`{"modelType":"fine-tuning","inputData":{"baseModel":"gpt-2","dataset":"custom-data"}}`, "fine_tuning", "foreign"},
		{`{"modelType":"fine-tuning","inputData":{"baseModel":"org/gpt","dataset":"rows.jsonl"}}`, "fine_tuning", ""},
		{`{"jobType":"echo","inputData":{}}`, "echo", ""},
		{`{"jobType":"hash","inputData":{"data":"abc"}}`, "hash", ""},
		{`{"jobType":"sft"}`, "sft", ""},
		{`{"modelType":"video"}`, "", "foreign"},
		{`{}`, "", "foreign"},
		{`{"modelType":"custom","inputData":{"rounds":3}}`, "", "foreign"},
		{`{"modelType":"custom","inputData":{"name":"hash","parameters":{"data":"abc"}}}`, "custom", ""},
		{`{"modelType":"compute","inputData":{"iterations":1000}}`, "", "foreign"},
		{`{"modelType":"compute","inputData":{"script":"print(1)"}}`, "script", ""},
		{`{"jobType":"process","inputData":{"run":"rm"}}`, "", "foreign"},
	} {
		var j job
		if err := json.Unmarshal([]byte(tc.row), &j); err != nil {
			t.Fatal(err)
		}
		s, err := toStage(&j, false)
		if s.Kind != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s for the bridge is %q, %v", tc.row, s.Kind, err)
		}
		want := orDefault(tc.carried, tc.want)
		if s, err = toStage(&j, true); err != nil || s.Kind != want {
			t.Errorf("%s for the gateway is %q, %v", tc.row, s.Kind, err)
		}
		if want == kind.Foreign {
			o := toWorkerJob("id", "w", &s, false)
			if o.ModelType != orDefault(j.ModelType, o.ModelType) || string(o.InputData) == "" || !slices.Contains(s.Where.Tags, "dialect:qubix") {
				t.Errorf("%s is carried as %+v", tc.row, o)
			}
		}
	}
}

// Messages of clients, workers and servers are equal after decoding and encoding.
func TestScriptsTravelBothWays(t *testing.T) {
	t.Parallel()
	for _, want := range []muster.Script{{Text: "print(1)", Interpreter: []string{"python3"}}, {URL: "https://example.org/a.py", Interpreter: []string{"python3"}}} {
		s := muster.TaskSpec{Kind: muster.KindScript, Script: &want}
		o := toWorkerJob("id", "w", &s, false)
		back, err := toStage(&o, false)
		if err != nil || !reflect.DeepEqual(back.Script, &want) {
			t.Errorf("%+v comes back as %+v, %v", want, back.Script, err)
		}
	}
}

// What a report of a worker means.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		report, reason string
		code           int
	}{
		{`{"status":"completed","result":{"status":"success"}}`, "", 0},
		{`{"status":"completed","result":null}`, "", 0},
		{`{"status":"completed","result":{"metrics":{"simulated":true}}}`, "dependency", 0},
		{`{"status":"completed","result":{"simulated":false}}`, "", 0},
		{`{"status":"failed","error":"Script failed with exit code 3: no"}`, "exit_code", 3},
		{`{"status":"failed","error":"Failed to report completion: reset"}`, "upload_failed", 0},
		{`{"status":"failed","error":"No script content or URL provided"}`, "invalid_spec", 0},
		{`{"status":"failed","error":"No module named 'torch'"}`, "dependency", 0},
		{`{"status":"failed","error":null}`, "exit_code", 0},
	} {
		var c completion
		if err := json.Unmarshal([]byte(tc.report), &c); err != nil {
			t.Fatal(err)
		}
		v := evaluate(muster.KindScript, &c)
		code := 0
		if v.ExitCode != nil {
			code = *v.ExitCode
		}
		if string(v.Reason) != tc.reason || code != tc.code {
			t.Errorf("%s means %s, %d", tc.report, v.Reason, code)
		}
	}
}
