package dtf

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/kind"
)

const kindForeign = "foreign" // of task types without a kind

// mappedTypes lists the task types with a kind of the same name.
var mappedTypes = []string{taskBenchmark, taskTest, taskCustom, taskHash}

// object decodes a JSON object; null and nothing are empty ones.
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	if !lenient.HasValue(raw) {
		return map[string]json.RawMessage{}, nil
	}
	if m := lenient.Object(raw); m != nil {
		return m, nil
	}
	return nil, muster.Errorf(muster.Invalid, "config is not a JSON object")
}

// inputFields returns the fields of the input of each mapped kind.
var inputFields = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for _, k := range kind.Embedded() {
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if isMapped(k.Name) && json.Unmarshal(k.Input, &schema) == nil {
			all[k.Name] = slices.Collect(maps.Keys(schema.Properties))
		}
	}
	return all
})

// toMuster converts a DTF task to a stage of the kind of the same name. All fields of config that the kind knows become its input, also
// those that DTF's own workers ignore; the others are dropped.
func toMuster(taskType string, config json.RawMessage) (muster.TaskSpec, error) {
	spec := muster.TaskSpec{Kind: taskType}
	input, err := object(config)
	if err != nil {
		return spec, err
	}
	if spec.Timeout, err = parseTimeout(input); err != nil {
		return spec, err
	}
	delete(input, "timeout_seconds")
	switch taskType {
	case taskBenchmark:
		setDefault(input, "batch_sizes", `[1,2,4,8,16]`)
	case taskTest:
		if raw, has := input["test_args"]; has && string(raw) == "null" {
			delete(input, "test_args")
		}
	case taskCustom:
		setDefault(input, "name", `"unknown"`)
	case taskHash:
		if payload, has := input["payload"]; has {
			input["data"] = payload
			delete(input, "payload")
		}
		setDefault(input, "data", `""`)
		if e := string(input["encoding"]); e == `"utf8"` {
			input["encoding"] = json.RawMessage(`"utf-8"`)
		}
	default:
		return spec, muster.Errorf(muster.Invalid, "Unknown task type: %s", taskType)
	}
	maps.DeleteFunc(input, func(name string, _ json.RawMessage) bool { return !slices.Contains(inputFields()[taskType], name) })
	spec.Input = lenient.MustMarshal(input)
	return spec, nil
}

func setDefault(input map[string]json.RawMessage, field, value string) {
	if _, has := input[field]; !has {
		input[field] = json.RawMessage(value)
	}
}

func parseTimeout(config map[string]json.RawMessage) (muster.Duration, error) {
	raw := config["timeout_seconds"]
	if !lenient.HasValue(raw) {
		return 0, nil
	}
	var seconds float64
	if err := json.Unmarshal(raw, &seconds); err != nil || seconds < 0 || seconds > 1e8 {
		return 0, muster.Errorf(muster.Invalid, "config.timeout_seconds is not a number of seconds")
	}
	return muster.Duration(seconds * float64(time.Second)), nil
}

type foreignInput struct {
	System string          `json:"system"`
	Type   string          `json:"type"`
	Config json.RawMessage `json:"config,omitempty"`
}

// toForeign returns a stage that passes a DTF task unchanged to DTF workers.
func toForeign(taskType string, config json.RawMessage) (muster.TaskSpec, error) {
	spec := muster.TaskSpec{Kind: kindForeign, Where: muster.Where{Tags: []string{"dialect:dtf"}}}
	if taskType == "" || len(taskType) > maxID {
		return spec, muster.Errorf(muster.Invalid, "the task type must have 1 to %d bytes", maxID)
	}
	input, err := object(config)
	if err != nil {
		return spec, err
	}
	if spec.Timeout, err = parseTimeout(input); err != nil {
		return spec, err
	}
	in := foreignInput{System: "dtf", Type: taskType, Config: config}
	if len(input) == 0 {
		in.Config = json.RawMessage("{}")
	}
	spec.Input = lenient.MustMarshal(in)
	return spec, nil
}

func fromMuster(spec *muster.TaskSpec) (taskType string, config json.RawMessage, err error) {
	switch spec.Kind {
	case kindForeign:
		var in foreignInput
		if err := json.Unmarshal(spec.Input, &in); err != nil {
			return "", nil, muster.Errorf(muster.Invalid, "cannot decode the input of a foreign task: %w", err)
		}
		if in.System != "dtf" {
			return "", nil, muster.Errorf(muster.Invalid, "the task is for %s, not for dtf", in.System)
		}
		if len(in.Config) == 0 {
			in.Config = json.RawMessage("{}")
		}
		return in.Type, in.Config, nil
	case taskHash: // older workers read payload, newer ones data too
		input, err := object(spec.Input)
		if err != nil {
			return "", nil, err
		}
		input["payload"] = input["data"]
		return taskHash, lenient.MustMarshal(input), nil
	case taskBenchmark, taskTest, taskCustom:
		if len(spec.Input) == 0 {
			return spec.Kind, json.RawMessage("{}"), nil
		}
		return spec.Kind, spec.Input, nil
	}
	return "", nil, muster.Errorf(muster.Invalid, "DTF has no task type for the kind %s", spec.Kind)
}

// toDTF converts the result of a task to that of DTF's workers. It keeps all fields of Muster's result.
func toDTF(taskType string, config, result json.RawMessage) json.RawMessage {
	out, err := object(result)
	if err != nil {
		return result
	}
	in, err := object(config)
	if err != nil {
		return result
	}
	switch taskType {
	case taskBenchmark:
		for field, value := range map[string]string{"model": `"unknown"`, "precision": `"fp32"`, "iterations": "10"} {
			copyField(out, in, field)
			setDefault(out, field, value)
		}
		out["batch_sizes"] = batchSizes(out["runs"])
	case taskTest:
		var r struct {
			Failed   int     `json:"failed"`
			Errors   int     `json:"errors"`
			Total    int     `json:"total"`
			Duration float64 `json:"duration"`
		}
		if json.Unmarshal(result, &r) != nil {
			return result
		}
		copyField(out, in, "test_file")
		out["success"] = lenient.MustMarshal(r.Failed == 0 && r.Errors == 0)
		out["test_count"] = lenient.MustMarshal(r.Total)
		out["duration_seconds"] = lenient.MustMarshal(r.Duration)
	case taskCustom:
		copyField(out, in, "name")
		out["success"] = lenient.MustMarshal(true)
		setDefault(out, "output", string(lenient.MustMarshal("Custom task "+lenient.String(in["name"])+" was done")))
	}
	return lenient.MustMarshal(out)
}

func copyField(to, from map[string]json.RawMessage, name string) {
	if v, has := from[name]; has {
		to[name] = v
	}
}

// batchSizes converts the runs of a benchmark to the batch_sizes of a DTF result.
func batchSizes(runs json.RawMessage) json.RawMessage {
	var runResults []struct {
		BatchSize  int     `json:"batch_size"`
		Throughput float64 `json:"throughput"`
		LatencyMS  struct {
			Mean float64 `json:"mean"`
		} `json:"latency_ms"`
		PeakMemory float64         `json:"peak_memory"`
		Error      json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(runs, &runResults)
	type figures struct {
		Latency    float64 `json:"latency_ms"`
		Throughput float64 `json:"throughput_items_per_second"`
		Memory     float64 `json:"memory_mb"`
	}
	sizes := map[string]figures{}
	for _, r := range runResults {
		if len(r.Error) == 0 {
			sizes[strconv.Itoa(r.BatchSize)] = figures{r.LatencyMS.Mean, r.Throughput, math.Round(r.PeakMemory/(1<<20)*10) / 10}
		}
	}
	return lenient.MustMarshal(sizes)
}

// simulated reports whether a result has exactly the figures that DTF's own workers invent for a type of tasks.
func simulated(taskType string, result json.RawMessage) bool {
	switch taskType {
	case taskBenchmark:
		var r struct {
			BatchSizes map[string]struct {
				Latency float64 `json:"latency_ms"`
				Memory  float64 `json:"memory_mb"`
			} `json:"batch_sizes"`
		}
		if json.Unmarshal(result, &r) != nil || len(r.BatchSizes) == 0 {
			return false
		}
		for size, figures := range r.BatchSizes {
			n, err := strconv.ParseFloat(size, 64)
			if err != nil || figures.Latency != 10+2*n || figures.Memory != 1024+128*n {
				return false
			}
		}
		return true
	case taskTest:
		var r struct {
			Count    int     `json:"test_count"`
			Passed   int     `json:"passed"`
			Failed   int     `json:"failed"`
			Skipped  int     `json:"skipped"`
			Duration float64 `json:"duration_seconds"`
			Success  bool    `json:"success"`
		}
		return json.Unmarshal(result, &r) == nil && r.Success && r.Count == 10 && r.Passed == 9 && r.Failed == 1 && r.Skipped == 0 && r.Duration == 2
	case taskCustom:
		var r struct {
			Output string `json:"output"`
		}
		return json.Unmarshal(result, &r) == nil && strings.HasPrefix(r.Output, "Executed custom task ")
	}
	return false
}

// canBatch reports whether two tasks can be in one batch. DTF's workers return only the first test of one. Benchmarks must have the same
// model.
func canBatch(a, b wireTask) bool {
	if a.TaskType == taskTest || b.TaskType == taskTest || a.TaskType == "" || b.TaskType == "" {
		return false
	}
	if a.TaskType != taskBenchmark && b.TaskType != taskBenchmark {
		return true
	}
	x, errX := object(a.Config)
	y, errY := object(b.Config)
	return errX == nil && errY == nil && a.TaskType == b.TaskType && string(x["model"]) == string(y["model"]) && len(x["model"]) > 0
}

func isMapped(taskType string) bool { return slices.Contains(mappedTypes, taskType) }
