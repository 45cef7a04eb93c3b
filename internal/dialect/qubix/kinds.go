package qubix

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/kind"
)

// Kinds of Muster.
const (
	kindMNIST     = "mnist_training"
	kindDiffusion = "stable_diffusion"
	kindTraining  = "training"
	kindInference = "inference"
	kindTuning    = "fine_tuning"
	kindCompute   = "compute"
)

// toStage converts a job. With allowForeign a job that only QUBIX's own workers can run becomes one of kind foreign; otherwise it is an
// error, whose text is for the job's owner.
func toStage(j *job, allowForeign bool) (muster.TaskSpec, error) {
	if lenient.HasValue(j.InputData) && lenient.Object(j.InputData) == nil {
		return muster.TaskSpec{}, muster.Errorf(muster.Invalid, "inputData must be an object")
	}
	input := lenient.Object(j.InputData)
	t := muster.TaskSpec{}
	if j.RequiredVRAM != nil && lenient.Within(*j.RequiredVRAM, 1e5) > 0 {
		t.Resources.GPUs = muster.GPURequest{Count: 1, Memory: lenient.GiB(*j.RequiredVRAM)}
	}
	if j.RequiredRAM != nil {
		t.Resources.Memory = lenient.GiB(*j.RequiredRAM)
	}
	name := j.kind()
	script, url := lenient.String(input["script"]), lenient.String(input["scriptUrl"])
	switch {
	case strings.Contains(name, "mnist"), name == typeTraining && !lenient.HasValue(input["dataset"]):
		input = withDefaults(input, nil)
		if dataset := lenient.String(input["dataset"]); dataset != "" {
			input["dataset"] = lenient.MustMarshal(strings.ToLower(dataset))
		}
		t.Kind, t.Input = kindMNIST, lenient.MustMarshal(input)
	case strings.Contains(name, "stable"), strings.Contains(name, "diffusion"):
		t.Kind, t.Input = kindDiffusion, lenient.MustMarshal(withDefaults(input, map[string]string{"prompt": `"a beautiful landscape"`, "num_images": "1", "steps": "50"}))
	case url != "": // it has precedence over a text
		t.Kind, t.Script = muster.KindScript, &muster.Script{URL: url, Interpreter: []string{"python3"}}
	case strings.TrimSpace(script) != "":
		t.Kind, t.Script = muster.KindScript, &muster.Script{Text: script, Interpreter: []string{"python3"}}
	case name == typeTuning, name == "finetuning", name == kindTuning:
		t.Kind, t.Input = kindTuning, lenient.MustMarshal(withDefaults(input, nil))
	// compute requires a command, for which a job has no field. QUBIX's jobs of the types custom and compute may mean something else.
	case kind.IsEmbedded(name) && name != kindCompute && (name != kind.Custom || lenient.String(input["name"]) != ""):
		t.Kind, t.Input = name, lenient.MustMarshal(withDefaults(input, nil))
	case name == muster.KindNoop && !allowForeign:
		t.Kind = name
	}
	if allowForeign && (t.Kind == "" || !inputAvailable(t.Kind, input)) {
		return foreignStage(j, t)
	}
	if t.Kind == "" {
		return t, muster.Errorf(muster.Invalid, "No script content or URL provided: Muster has no kind %s", strconv.Quote(name))
	}
	return t, nil
}

// inputAvailable reports whether the input of a job names something that exists: jobs for QUBIX's simple worker, which ignores it, may not.
func inputAvailable(kind string, input map[string]json.RawMessage) bool {
	matches := func(key string, known ...string) bool {
		s := lenient.String(input[key])
		return strings.Contains(s, "/") || slices.Contains(known, s)
	}
	switch kind {
	case kindTraining:
		return matches("dataset", "digits", "mnist", "iris", "wine", "breast_cancer", "diabetes")
	case kindInference:
		return matches("model") && (lenient.HasValue(input["input"]) || lenient.HasValue(input["inputs"]))
	case kindTuning:
		return matches("baseModel") || matches("base_model") || matches("model")
	}
	return true
}

// foreignStage returns a stage that passes a job unchanged to QUBIX's own workers. A tag selects the worker that knows its type, because the
// enhanced one runs every unknown type as a script.
func foreignStage(j *job, t muster.TaskSpec) (muster.TaskSpec, error) {
	config := map[string]any{}
	if j.ComputeNeeded != nil {
		config["computeNeeded"] = *j.ComputeNeeded
	}
	if lenient.HasValue(j.InputData) {
		config["inputData"] = j.InputData
	}
	name := orDefault(j.ModelType, typeCustom)
	if j.JobType != nil && *j.JobType != "" {
		name = *j.JobType
	}
	if len(name) > 256 {
		return t, muster.Errorf(muster.Invalid, "the job's type has %d bytes: the most is 256", len(name))
	}
	t.Kind, t.Script = kind.Foreign, nil
	t.Input = lenient.MustMarshal(map[string]any{"system": Name, "type": name, "config": config})
	t.Where.Tags = []string{"dialect:" + Name}
	return t, nil
}

// supportedFields lists the fields of inputs that the enhanced worker supports; a job with another field is not for it.
var supportedFields = map[string][]string{
	kindMNIST:     {"epochs", "batch_size", "learning_rate"},
	kindDiffusion: {"prompt", "num_images", "steps"},
}

// unsupportedReason returns why the enhanced worker cannot run a stage, beyond the features that a worker can report as missing; "" if it can.
func unsupportedReason(t *muster.TaskSpec) string {
	if t.Kind == muster.KindScript {
		switch {
		case t.Checkpoint != nil: // of other kinds it only saves time
			return "QUBIX's worker keeps no checkpoint of a script"
		case t.Script != nil && t.Script.SHA256 != "":
			return "QUBIX's worker does not check script.sha256"
		}
	}
	known, ok := supportedFields[t.Kind]
	if !ok {
		return ""
	}
	input := lenient.Object(t.Input)
	for _, name := range slices.Sorted(maps.Keys(input)) {
		if name == "dataset" && lenient.String(input[name]) == "mnist" {
			continue
		}
		if !slices.Contains(known, name) {
			return fmt.Sprintf("QUBIX's worker does not support %s in the input of %s: it supports %s", name, t.Kind, strings.Join(known, ", "))
		}
	}
	if t.Kind == kindDiffusion && lenient.String(input["prompt"]) == "" {
		return "QUBIX's worker supports a single prompt only"
	}
	return ""
}

// toWorkerJob converts a task for a QUBIX worker. A Muster bridge gets the whole stage.
func toWorkerJob(id, worker string, t *muster.TaskSpec, toBridge bool) job {
	j := job{ID: id, ProviderID: &worker, ComputeNeeded: new(1.0), Status: statusAssigned, InputData: json.RawMessage("{}")}
	name := t.Kind
	switch t.Kind {
	case muster.KindScript:
		name = typeScript
		switch s := t.Script; {
		case s == nil:
		case s.URL != "":
			j.InputData = lenient.MustMarshal(map[string]string{"scriptUrl": s.URL})
		default:
			j.InputData = lenient.MustMarshal(map[string]string{"script": s.Text})
		}
	case kind.Foreign:
		input := lenient.Object(t.Input)
		config := lenient.Object(input["config"])
		name = lenient.String(input["type"])
		if lenient.HasValue(config["inputData"]) {
			j.InputData = config["inputData"]
		}
		var needed *float64
		if json.Unmarshal(config["computeNeeded"], &needed) == nil && needed != nil {
			j.ComputeNeeded = needed
		}
	default:
		if lenient.HasValue(t.Input) {
			j.InputData = t.Input
		}
	}
	j.JobType, j.ModelType = &name, name
	if toBridge {
		j.Muster = lenient.MustMarshal(portableStage(t))
	}
	return j
}

// portableStage returns the part of a stage that is valid on another server: without its name, its placement and its inputs from other
// stages.
func portableStage(t *muster.TaskSpec) *muster.TaskSpec {
	return &muster.TaskSpec{
		Kind: t.Kind, Input: t.Input, Run: t.Run, Script: t.Script, Python: t.Python, Env: t.Env, Image: t.Image, Isolation: t.Isolation,
		Container: t.Container, Resources: t.Resources, Timeout: t.Timeout, LogCap: t.LogCap, Kill: t.Kill, Network: t.Network, AllowHosts: t.AllowHosts,
	}
}

// jobOutcome is the outcome of an attempt according to a completion.
type jobOutcome struct {
	fleet.FinalReport

	output []string // of the job, as far as it is reported
	log    []string // more lines for the attempt's log
}

// lostReportPrefix begins the error of the second report that a worker sends when the answer to its first one was lost.
const lostReportPrefix = "Failed to report completion"

const scriptFailedPrefix = "Script failed with exit code "

// evaluate converts a completion of a task of a kind.
func evaluate(kindName string, c *completion) jobOutcome {
	result := lenient.Object(c.Result)
	v := jobOutcome{FinalReport: fleet.FinalReport{Outcome: muster.AttemptSucceeded}, output: outputLines(result)}
	if strings.EqualFold(c.Status, reportFailed) {
		v.Outcome, v.Reason, v.Message = muster.AttemptFailed, muster.ExitCode, "the worker gave no reason"
		if c.Error != nil && strings.TrimSpace(*c.Error) != "" {
			v.Message = lenient.Text(*c.Error, 2000)
		}
		switch rest, script := strings.CutPrefix(v.Message, scriptFailedPrefix); {
		case strings.HasPrefix(v.Message, lostReportPrefix):
			v.Reason = muster.UploadFailed // the outcome of the job is unknown
		case script:
			digits, _, _ := strings.Cut(rest, ":")
			if n, err := strconv.Atoi(strings.TrimSpace(digits)); err == nil {
				v.ExitCode = &n
			}
		case strings.HasPrefix(v.Message, "No script content"):
			v.Reason = muster.TaskInvalid
		case strings.HasPrefix(v.Message, "No module named"):
			v.Reason = muster.Dependency
		}
		if trace := lenient.String(result["errorDetails"]); trace != "" {
			v.output = append(v.output, strings.Split(strings.TrimRight(trace, "\n"), "\n")...)
		}
		v.Result = storableResult(c.Result)
		return v
	}
	if isSimulated(c.Result, 4) {
		v.Outcome, v.Reason = muster.AttemptFailed, muster.Dependency
		v.Message = "the worker simulated the job because a library is missing there"
		return v
	}
	if kindName == kindMNIST || kindName == kindDiffusion {
		for _, key := range []string{"modelUrl", "checkpointUrl", "images"} {
			if _, exists := result[key]; exists {
				delete(result, key)
				v.log = append(v.log, "QUBIX's worker uploads nothing: "+key+" is invented and removed from the result")
			}
		}
		c.Result = lenient.MustMarshal(result)
	}
	if v.Result = storableResult(c.Result); v.Result == nil && lenient.HasValue(c.Result) {
		v.Outcome, v.Reason = muster.AttemptFailed, muster.ResultInvalid
		v.Message = fmt.Sprintf("the result has %d bytes, more than %d", len(c.Result), muster.MaxResultSize)
	}
	return v
}

// storableResult returns a result, nil if there is none or it is too large.
func storableResult(raw json.RawMessage) json.RawMessage {
	if !lenient.HasValue(raw) || len(raw) > muster.MaxResultSize {
		return nil
	}
	return raw
}

// outputLines returns the output of a script from its result: the last 100 lines of each stream.
func outputLines(result map[string]json.RawMessage) []string {
	var lines []string
	for _, stream := range []string{"stdout", "stderr"} {
		var found []string
		if json.Unmarshal(result[stream], &found) == nil {
			for len(found) > 0 && found[len(found)-1] == "" { // after the last newline
				found = found[:len(found)-1]
			}
			lines = append(lines, found...)
		}
	}
	return lines
}

// isSimulated reports whether a field simulated is true, down to depth levels.
func isSimulated(raw json.RawMessage, depth int) bool {
	if depth == 0 {
		return false
	}
	for name, value := range lenient.Object(raw) {
		if name == "simulated" && string(value) == "true" || isSimulated(value, depth-1) {
			return true
		}
	}
	return false
}

// withDefaults returns input without null values and with defaults.
func withDefaults(input map[string]json.RawMessage, defaults map[string]string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, value := range input {
		if lenient.HasValue(value) {
			out[name] = value
		}
	}
	for name, value := range defaults {
		if _, exists := out[name]; !exists {
			out[name] = json.RawMessage(value)
		}
	}
	return out
}
