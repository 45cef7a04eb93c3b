package mloc

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// kindForeign is the kind of tasks that only workers of another system can carry out; of this one if the input's system
// is mloc and the workers have its tag. The input's config is a document of mloc/v1, or its spec alone.
const (
	kindForeign = "foreign"
	systemName  = "mloc"
	systemTag   = "dialect:mloc"
)

// A task type of MLOC and a kind of Muster with the same name do the same where both sides have it:
//
//	echo, inference, sft, lora_sft, ppo, dpo
//
// What of a document has no equivalent is told by a sentence; such a task needs a worker of MLOC. rag and agent have
// other meanings on both sides.

// toMuster returns the stage of a Muster job that does what the document says, for any worker of Muster: kind, input and
// resources. It fails with InvalidSpec if Muster's kinds cannot do it, with the reason. loads are addresses in front of
// results of this or another host, for checkpoint.load without a url; "" if there is none.
func toMuster(d document, loads string) (muster.TaskSpec, error) {
	t := muster.TaskSpec{Kind: d.taskType(), Resources: needed(d.Spec)}
	var input object
	var err error
	switch t.Kind {
	case "echo":
		input = d.Spec
	case "inference":
		input, err = inferenceInput(d.Spec)
	case "sft", "lora_sft", "ppo", "dpo":
		input, err = trainingInput(d.Spec, loads)
	default:
		err = cannot("Muster has no kind that does what taskType %s means to MLOC", cut(t.Kind, muster.MaxName))
	}
	if err != nil {
		return t, err
	}
	t.Input, err = encode(escape(input))
	return t, err
}

func cannot(format string, args ...any) error {
	return muster.Errorf(muster.InvalidSpec, format, args...)
}

// escape writes texts so that Muster takes ${…} in them literally.
func escape(v any) any {
	switch v := v.(type) {
	case object:
		out := make(object, len(v))
		for k, below := range v {
			out[k] = escape(below)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, below := range v {
			out[i] = escape(below)
		}
		return out
	case string:
		return escapeText(v)
	default:
		return v
	}
}

// escapeText doubles the dollars in front of a brace.
func escapeText(s string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		dollars := len(s[:i+1]) - len(strings.TrimRight(s[:i+1], "$"))
		b.WriteString(s[:i+1])
		b.WriteString(strings.Repeat("$", dollars))
		b.WriteByte('{')
		s = s[i+2:]
	}
}

// copyFields copies the fields that are there, under the names that follow them.
func copyFields(to, from object, fields ...string) {
	for i := 0; i+1 < len(fields); i += 2 {
		if v, there := from[fields[i]]; there && v != nil {
			to[fields[i+1]] = v
		}
	}
}

// only fails if an object has other fields than these. What is empty or false asks for nothing.
func only(o object, at string, fields ...string) error {
	for _, k := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(fields, k) && !asksNothing(o[k]) {
			return cannot("Muster's workers do not have %s.%s", at, cut(k, maxID))
		}
	}
	return nil
}

func asksNothing(v any) bool {
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
	case object:
		return len(v) == 0
	}
	return false
}

// common are the fields of a spec that say how a task is run and not what it does; passive ones are only for people, or
// are what the host adds.
var common = []string{"taskType", "resources", "output", "dependsOn", "parallel", "_upstreamResults", "enforce_cpu", "stages", "graph", "configName"}

// inferenceInput maps taskType inference.
func inferenceInput(s object) (object, error) {
	if err := only(s, "spec", append([]string{"model", "data", "inference"}, common...)...); err != nil {
		return nil, err
	}
	model, sampling, data := under(s, "model"), under(s, "inference"), under(s, "data")
	in := object{}
	copyFields(in, under(model, "source"), "identifier", "model", "revision", "revision")
	if text(in["model"]) == "" {
		return nil, cannot("spec.model.source.identifier is missing")
	}
	for _, err := range []error{
		only(model, "spec.model", "source", "transformers", "vllm"),
		only(under(model, "transformers"), "spec.model.transformers", "device_map", "dtype", "trust_remote_code", "low_cpu_mem_usage"),
		only(under(model, "vllm"), "spec.model.vllm", "tensor_parallel_size", "gpu_memory_utilization", "max_model_len", "dtype", "trust_remote_code", "download_dir"),
		only(sampling, "spec.inference", "max_tokens", "max_new_tokens", "temperature", "top_p", "top_k", "repetition_penalty", "do_sample", "stop", "system_prompt", "systemPrompt", "seed"),
		only(data, "spec.data", "type", "items", "metadata"),
	} {
		if err != nil {
			return nil, err
		}
	}
	if kind := cmp.Or(text(data["type"]), "list"); kind != "list" {
		return nil, cannot("Muster's workers take the items of spec.data as a list, and not as %s", cut(kind, 64))
	}
	items, _ := data["items"].([]any)
	if len(items) == 0 {
		return nil, cannot("spec.data.items is empty")
	}
	for _, item := range items {
		if _, ok := item.(string); !ok {
			return nil, cannot("spec.data.items has something else than texts")
		}
	}
	in["inputs"], in["task"] = items, "text-generation"
	copyFields(in, under(model, "transformers"), "device_map", "device_map", "dtype", "dtype", "trust_remote_code", "trust_remote_code")
	if on, _ := s["enforce_cpu"].(bool); on {
		in["device"] = "cpu"
	} else if vllm := under(model, "vllm"); len(vllm) > 0 && under(s, "resources", "hardware", "gpu") != nil {
		in["engine"] = "vllm"
		copyFields(in, vllm, "dtype", "dtype", "trust_remote_code", "trust_remote_code", "tensor_parallel_size", "tensor_parallel_size")
	}
	if in["device_map"] != nil && !slices.Contains([]string{"auto", "balanced", "sequential"}, text(in["device_map"])) {
		delete(in, "device_map")
	}
	in["max_new_tokens"], in["temperature"], in["top_p"] = json.Number("512"), json.Number("0.7"), json.Number("0.95")
	copyFields(in, sampling, "max_tokens", "max_new_tokens", "max_new_tokens", "max_new_tokens", "temperature", "temperature", "top_p", "top_p",
		"top_k", "top_k", "repetition_penalty", "repetition_penalty", "seed", "seed", "systemPrompt", "system", "system_prompt", "system")
	if k, err := strconv.Atoi(number(in["top_k"])); in["top_k"] != nil && (err != nil || k <= 0) {
		delete(in, "top_k") // -1 stands for all tokens
	}
	if sample, said := sampling["do_sample"].(bool); said && !sample {
		in["temperature"] = json.Number("0")
	}
	switch stop := sampling["stop"].(type) {
	case string:
		in["stop"] = []any{stop}
	case []any:
		in["stop"] = stop
	}
	if text(in["system"]) == "" {
		delete(in, "system")
	}
	return in, nil
}

func number(v any) string {
	n, _ := v.(json.Number)
	return n.String()
}

// float returns a number, 0 if v is none.
func float(v any) float64 {
	f, err := strconv.ParseFloat(number(v), 64)
	if err != nil {
		return 0
	}
	return f
}

// trainingInput maps sft, lora_sft, ppo and dpo, whose inputs Muster's kinds have under the same names.
func trainingInput(s object, loads string) (object, error) {
	if err := only(s, "spec", append([]string{"model", "data", "training", "lora", "checkpoint", "ppo", "dpo"}, common...)...); err != nil {
		return nil, err
	}
	in := object{}
	model := under(s, "model")
	if err := only(model, "spec.model", "source", "transformers", "identifier", "revision", "trust_remote_code"); err != nil {
		return nil, err
	}
	m := object{}
	copyFields(m, model, "source", "source", "identifier", "identifier", "revision", "revision", "trust_remote_code", "trust_remote_code")
	copyFields(m, under(model, "transformers"), "trust_remote_code", "trust_remote_code")
	if len(m) > 0 {
		in["model"] = m
	}
	copyFields(in, s, "data", "data", "ppo", "ppo", "dpo", "dpo", "training", "training")
	if l := under(s, "lora"); len(l) > 0 {
		l = maps.Clone(l)
		if t := text(l["task_type"]); t == "" || strings.EqualFold(t, "CAUSAL_LM") {
			delete(l, "task_type") // the only one that there is
		}
		in["lora"] = l
	}
	if load := under(s, "checkpoint", "load"); len(load) > 0 {
		from, err := loadFrom(load, loads)
		if err != nil {
			return nil, err
		}
		in["checkpoint"] = object{"load": from}
	}
	return in, nil
}

// loadFrom maps checkpoint.load: where the weights are that a training begins with. A task of a host is addressed by
// its URL.
func loadFrom(load object, loads string) (object, error) {
	if err := only(load, "spec.checkpoint.load", "type", "url", "path", "taskId", "filename", "base_url", "timeoutSec", "archive_format", "subdir"); err != nil {
		return nil, err
	}
	to := object{}
	copyFields(to, load, "url", "url", "subdir", "subdir")
	id, file := text(load["taskId"]), cmp.Or(text(load["filename"]), "final_model.tar.gz")
	base := strings.TrimSuffix(cmp.Or(text(load["base_url"]), loads), "/")
	switch {
	case to["url"] != nil:
	case id != "" && base != "" && goodID(id) && goodFile(file):
		to["url"] = base + "/api/v1/results/" + id + "/files/" + file
	case text(load["path"]) != "":
		return nil, cannot("spec.checkpoint.load.path is a folder of the machine on which a worker of MLOC runs: give a url")
	default:
		return nil, cannot("spec.checkpoint.load has no url, and no taskId with an address of the host")
	}
	return to, nil
}

// file is one that a task left: its name, its size, and where it can be fetched.
type file struct {
	Name string
	Size int64
	URL  string
}

// fromMuster returns what a host of MLOC would have as the result of a task that one of Muster's workers ended
// well: result is what the task returned, files are its artifacts. seconds is how long it ran.
func fromMuster(d document, taskID string, result json.RawMessage, files []file, seconds float64) object {
	var r any
	if len(result) == 0 || decode(result, maxResult, &r) != nil {
		r = nil
	}
	o, _ := r.(object)
	o = orObject(o)
	switch kind := d.taskType(); kind {
	case "echo":
		return object{"ok": true, "echo": d.Spec}
	case "inference":
		return inferenceResult(d, o, seconds)
	case "sft", "lora_sft", "ppo", "dpo":
		return trainingResult(d, taskID, o, files, seconds)
	default:
		if len(o) > 0 {
			return o
		}
		return object{"ok": true, "result": r}
	}
}

func inferenceResult(d document, r object, seconds float64) object {
	predictions, _ := r["predictions"].([]any)
	items := make([]any, 0, len(predictions))
	for i, p := range predictions {
		one, _ := p.(object)
		item := object{"index": i, "output": one["prediction"], "finish_reason": nil}
		if one["error"] != nil {
			item["output"], item["error"] = nil, one["error"]
		}
		items = append(items, item)
	}
	usage := object{"num_requests": len(items), "latency_sec": seconds}
	in, out := firstNumber(r, "tokens_in", "prompt_tokens", "input_tokens"), firstNumber(r, "tokens_out", "completion_tokens", "output_tokens")
	usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"] = in, out, in+out
	return object{"ok": true, "model": cmp.Or(text(r["model"]), text(under(d.Spec, "model", "source")["identifier"])), "items": items, "usage": usage}
}

func firstNumber(o object, names ...string) int64 {
	for _, name := range names {
		if n, ok := o[name].(json.Number); ok {
			if i, err := n.Int64(); err == nil {
				return i
			}
		}
	}
	return 0
}

func trainingResult(d document, taskID string, r object, files []file, seconds float64) object {
	out := object{
		"task_id": taskID, "training_successful": true, "training_time_seconds": seconds, "error_message": nil,
		"model_name": cmp.Or(text(r["model"]), text(under(d.Spec, "model", "source")["identifier"])), "dataset_size": r["dataset_size"],
		"output_dir": ".", "checkpoints_dir": nil, "resume_from_path": nil,
	}
	copyFields(out, r, "finalMetrics", "final_metrics", "seconds", "training_time_seconds")
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name, ".tar.gz")
		if !ok || name != "final_model" && name != "final_lora" {
			continue
		}
		out[name+"_archive"], out[name+"_archive_path"], out[name+"_archive_bytes"], out[name+"_path"] = f.Name, f.Name, f.Size, name
		if f.URL != "" {
			out[name+"_archive_url"], out[name+"_archive_uploaded"] = f.URL, true
		}
	}
	return out
}
