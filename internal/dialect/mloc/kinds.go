package mloc

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// KindForeign is the kind of tasks that only workers of another system can carry out; of this one if the input's system
// is mloc and the workers have its tag. The input's config is a document of mloc/v1, or its spec alone.
const (
	KindForeign = "foreign"
	SystemName  = "mloc"
	SystemTag   = "dialect:mloc"
)

// A task type of MLOC and a kind of Muster with the same name do the same where both sides have it:
//
//	echo, inference, sft, lora_sft, ppo, dpo
//
// A field of a document without an equivalent is named in the error; such a task needs a worker of MLOC. rag and agent have
// other meanings on both sides.

// ToMuster returns the stage of a Muster job that does what the document says, for any worker of Muster: kind, input and
// resources. It fails with InvalidSpec if Muster's kinds cannot do it, with the reason. loads are addresses in front of
// results of this or another host, for checkpoint.load without a url; "" if there is none.
func ToMuster(d Document, loads string) (muster.TaskSpec, error) {
	t, input, err := toMuster(d, loads)
	if err != nil {
		return t, err
	}
	t.Input, err = Encode(Escape(input))
	return t, err
}

// toMuster is ToMuster with the input apart, in which references are not escaped.
func toMuster(d Document, loads string) (t muster.TaskSpec, input Object, err error) {
	t = muster.TaskSpec{Kind: TaskType(d), Resources: ResourceRequest(d.Spec)}
	switch t.Kind {
	case "echo":
		input = d.Spec
	case "inference":
		input, err = inferenceInput(d.Spec)
	case "sft", "lora_sft", "ppo", "dpo":
		input, err = trainingInput(d.Spec, loads)
	default:
		err = InvalidSpec("Muster has no kind that does what taskType %s means to MLOC", Truncate(t.Kind, muster.MaxNameSize))
	}
	return t, input, err
}

// InvalidSpec is the error of a document that cannot be read, or that one of the sides cannot carry out.
func InvalidSpec(format string, args ...any) error {
	return muster.Errorf(muster.InvalidSpec, format, args...)
}

var dollarsBeforeBrace = lazyregexp.New(`(\$+)\{`)

// Escape doubles the dollars in front of braces, so that Muster takes ${…} in texts literally.
func Escape(v any) any {
	return MapTexts(v, func(s string) any { return dollarsBeforeBrace.Get().ReplaceAllString(s, "$1$1{") })
}

// MapTexts returns a value in which f has replaced each text. The value itself is not changed.
func MapTexts(v any, f func(string) any) any {
	switch v := v.(type) {
	case Object:
		out := make(Object, len(v))
		for k, below := range v {
			out[k] = MapTexts(below, f)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, below := range v {
			out[i] = MapTexts(below, f)
		}
		return out
	case string:
		return f(v)
	default:
		return v
	}
}

// CopyFields copies the fields that are there, under the names that follow them.
func CopyFields(to, from Object, fields ...string) {
	for i := 0; i+1 < len(fields); i += 2 {
		if v, there := from[fields[i]]; there && v != nil {
			to[fields[i+1]] = v
		}
	}
}

// CheckFields fails if an object has other fields than these, and names them in the error. What is empty or false asks for nothing.
func CheckFields(o Object, at string, fields ...string) error {
	var other []muster.FieldError
	for _, k := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(fields, k) && !IsEmpty(o[k]) {
			other = append(other, muster.FieldError{Path: at + "." + Truncate(k, MaxID), Message: "Muster's workers do not have it"})
		}
	}
	if len(other) == 0 {
		return nil
	}
	return &muster.Error{Code: muster.InvalidSpec, Message: "Muster's workers do not have " + other[0].Path, Fields: other}
}

// IsEmpty reports whether a value is empty, zero or false.
func IsEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case []any:
		return len(v) == 0
	case Object:
		return len(v) == 0
	}
	return false
}

// commonFields are the fields of a spec that say how a task is run and not what it does; passive ones are only for people, or
// are what the host adds.
var commonFields = []string{"taskType", "resources", "output", "dependsOn", "parallel", "_upstreamResults", "enforce_cpu", "stages", "graph", "configName"}

// CheckSpecFields fails if a spec has other fields than these and those that say how any task is run.
func CheckSpecFields(spec Object, fields ...string) error {
	return CheckFields(spec, "spec", append(fields, commonFields...)...)
}

func inferenceInput(s Object) (Object, error) {
	if err := CheckSpecFields(s, "model", "data", "inference"); err != nil {
		return nil, err
	}
	model, sampling, data := Lookup(s, "model"), Lookup(s, "inference"), Lookup(s, "data")
	in := Object{}
	CopyFields(in, Lookup(model, "source"), "identifier", "model", "revision", "revision")
	if Text(in["model"]) == "" {
		return nil, InvalidSpec("spec.model.source.identifier is missing")
	}
	err := cmp.Or(
		CheckFields(model, "spec.model", "source", "transformers", "vllm"),
		CheckFields(Lookup(model, "transformers"), "spec.model.transformers", "device_map", "dtype", "trust_remote_code", "low_cpu_mem_usage"),
		CheckFields(Lookup(model, "vllm"), "spec.model.vllm", "tensor_parallel_size", "gpu_memory_utilization", "max_model_len", "dtype", "trust_remote_code", "download_dir"),
		CheckFields(sampling, "spec.inference", "max_tokens", "max_new_tokens", "temperature", "top_p", "top_k", "repetition_penalty", "do_sample", "stop", "system_prompt", "systemPrompt", "seed"),
		CheckFields(data, "spec.data", "type", "items", "metadata"),
	)
	if err != nil {
		return nil, err
	}
	if kind := cmp.Or(Text(data["type"]), "list"); kind != "list" {
		return nil, InvalidSpec("Muster's workers take the items of spec.data as a list, and not as %s", Truncate(kind, 64))
	}
	items, _ := data["items"].([]any)
	if len(items) == 0 {
		return nil, InvalidSpec("spec.data.items is empty")
	}
	if !AllTexts(items) {
		return nil, InvalidSpec("spec.data.items has something else than texts")
	}
	in["inputs"], in["task"] = items, "text-generation"
	CopyFields(in, Lookup(model, "transformers"), "device_map", "device_map", "dtype", "dtype", "trust_remote_code", "trust_remote_code")
	if on, _ := s["enforce_cpu"].(bool); on {
		in["device"] = "cpu"
	} else if vllm := Lookup(model, "vllm"); len(vllm) > 0 && Lookup(s, "resources", "hardware", "gpu") != nil {
		in["engine"] = "vllm"
		CopyFields(in, vllm, "dtype", "dtype", "trust_remote_code", "trust_remote_code", "tensor_parallel_size", "tensor_parallel_size")
	}
	if in["device_map"] != nil && !slices.Contains([]string{"auto", "balanced", "sequential"}, Text(in["device_map"])) {
		delete(in, "device_map")
	}
	in["max_new_tokens"], in["temperature"], in["top_p"] = json.Number("512"), json.Number("0.7"), json.Number("0.95")
	CopyFields(in, sampling, "max_tokens", "max_new_tokens", "max_new_tokens", "max_new_tokens", "temperature", "temperature", "top_p", "top_p",
		"top_k", "top_k", "repetition_penalty", "repetition_penalty", "seed", "seed", "systemPrompt", "system", "system_prompt", "system")
	if k, err := strconv.Atoi(NumberText(in["top_k"])); in["top_k"] != nil && (err != nil || k <= 0) {
		delete(in, "top_k") // -1 stands for all tokens
	}
	if sample, exists := sampling["do_sample"].(bool); exists && !sample {
		in["temperature"] = json.Number("0")
	}
	switch stop := sampling["stop"].(type) {
	case string:
		in["stop"] = []any{stop}
	case []any:
		in["stop"] = stop
	}
	if Text(in["system"]) == "" {
		delete(in, "system")
	}
	return in, nil
}

// NumberText is a number as it is written, "" if v is none.
func NumberText(v any) string {
	n, _ := v.(json.Number)
	return n.String()
}

// Float returns a number, 0 if v is none.
func Float(v any) float64 {
	f, err := strconv.ParseFloat(NumberText(v), 64)
	if err != nil {
		return 0
	}
	return f
}

// trainingInput maps sft, lora_sft, ppo and dpo, whose inputs Muster's kinds have under the same names.
func trainingInput(s Object, loads string) (Object, error) {
	if err := CheckSpecFields(s, "model", "data", "training", "lora", "checkpoint", "ppo", "dpo"); err != nil {
		return nil, err
	}
	in := Object{}
	model := Lookup(s, "model")
	if err := CheckFields(model, "spec.model", "source", "transformers", "identifier", "revision", "trust_remote_code"); err != nil {
		return nil, err
	}
	m := Object{}
	CopyFields(m, model, "source", "source", "identifier", "identifier", "revision", "revision", "trust_remote_code", "trust_remote_code")
	CopyFields(m, Lookup(model, "transformers"), "trust_remote_code", "trust_remote_code")
	if len(m) > 0 {
		in["model"] = m
	}
	CopyFields(in, s, "data", "data", "ppo", "ppo", "dpo", "dpo", "training", "training")
	if l := Lookup(s, "lora"); len(l) > 0 {
		l = maps.Clone(l)
		if t := Text(l["task_type"]); t == "" || strings.EqualFold(t, "CAUSAL_LM") {
			delete(l, "task_type") // the only one that there is
		}
		in["lora"] = l
	}
	if load := Lookup(s, "checkpoint", "load"); len(load) > 0 {
		from, err := checkpointSource(load, loads)
		if err != nil {
			return nil, err
		}
		in["checkpoint"] = Object{"load": from}
	}
	return in, nil
}

// checkpointSource maps checkpoint.load: where the weights are that a training begins with. A task of a host is addressed by
// its URL.
func checkpointSource(load Object, loads string) (Object, error) {
	if err := CheckFields(load, "spec.checkpoint.load", "type", "url", "path", "taskId", "filename", "base_url", "headers", "timeoutSec", "archive_format", "subdir"); err != nil {
		return nil, err
	}
	to := Object{}
	CopyFields(to, load, "url", "url", "subdir", "subdir", "headers", "headers", "timeoutSec", "timeoutSec", "archive_format", "archive_format")
	id, file := Text(load["taskId"]), cmp.Or(Text(load["filename"]), "final_model.tar.gz")
	base := strings.TrimSuffix(cmp.Or(Text(load["base_url"]), loads), "/")
	switch {
	case to["url"] != nil:
	case id != "" && base != "" && ValidID(id) && ValidFileName(file):
		to["url"] = base + "/api/v1/results/" + id + "/files/" + file
	case Text(load["path"]) != "":
		return nil, InvalidSpec("spec.checkpoint.load.path is a folder of the machine on which a worker of MLOC runs: give a url")
	default:
		return nil, InvalidSpec("spec.checkpoint.load has no url, and no taskId with an address of the host")
	}
	return to, nil
}

// ToResult returns what a host of MLOC would have as the result of a task that one of Muster's workers ended
// well: result is what the task returned, files are its artifacts, fileURL is where one can be fetched. seconds is how long it ran.
func ToResult(d Document, taskID string, result json.RawMessage, files []muster.Artifact, fileURL func(name string) string, seconds float64) Object {
	var r any
	if Decode(result, MaxResult, &r) != nil { // as if there were none
		r = nil
	}
	o, _ := r.(Object)
	switch TaskType(d) {
	case "echo":
		return Object{"ok": true, "echo": d.Spec}
	case "inference":
		return inferenceResult(d, o, seconds)
	case "sft", "lora_sft", "ppo", "dpo":
		return trainingResult(d, taskID, o, files, fileURL, seconds)
	default:
		if len(o) > 0 {
			return o
		}
		return Object{"ok": true, "result": r}
	}
}

func inferenceResult(d Document, r Object, seconds float64) Object {
	predictions, _ := r["predictions"].([]any)
	items := make([]any, 0, len(predictions))
	for i, p := range predictions {
		one, _ := p.(Object)
		item := Object{"index": i, "output": one["prediction"], "finish_reason": nil}
		if one["error"] != nil {
			item["output"], item["error"] = nil, one["error"]
		}
		items = append(items, item)
	}
	in, out := firstNumber(r, "tokens_in", "prompt_tokens", "input_tokens"), firstNumber(r, "tokens_out", "completion_tokens", "output_tokens")
	usage := Object{"num_requests": len(items), "latency_sec": seconds, "prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
	return Object{"ok": true, "model": cmp.Or(Text(r["model"]), Text(Lookup(d.Spec, "model", "source")["identifier"])), "items": items, "usage": usage}
}

func firstNumber(o Object, names ...string) int64 {
	for _, name := range names {
		if n, ok := o[name].(json.Number); ok {
			if i, err := n.Int64(); err == nil {
				return i
			}
		}
	}
	return 0
}

func trainingResult(d Document, taskID string, r Object, files []muster.Artifact, fileURL func(name string) string, seconds float64) Object {
	out := Object{
		"task_id": taskID, "training_successful": true, "training_time_seconds": seconds, "error_message": nil,
		"model_name": cmp.Or(Text(r["model"]), Text(Lookup(d.Spec, "model", "source")["identifier"])), "dataset_size": r["dataset_size"],
		"output_dir": ".", "checkpoints_dir": nil, "resume_from_path": nil,
	}
	CopyFields(out, r, "finalMetrics", "final_metrics", "seconds", "training_time_seconds")
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name, ".tar.gz")
		if !ok || name != "final_model" && name != "final_lora" {
			continue
		}
		out[name+"_archive"], out[name+"_archive_path"], out[name+"_archive_bytes"], out[name+"_path"] = f.Name, f.Name, f.Size, name
		out[name+"_archive_url"], out[name+"_archive_uploaded"] = fileURL(f.Name), true
	}
	return out
}
