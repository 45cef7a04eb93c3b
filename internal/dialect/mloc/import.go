package mloc

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Import returns the job spec that does what a submission says: a stage for each of its tasks, with their dependencies and references. lost lists the fields
// without an equivalent, which the spec is without. It fails with InvalidSpec if the submission cannot be read, or if Muster's kinds cannot do what
// one of its tasks does; then the fields of the error name all such tasks.
func Import(data []byte) (s *muster.Spec, lost []muster.FieldError, err error) {
	stages, err := Expand(data)
	if err != nil {
		return nil, nil, err
	}
	im := &importer{stages: stages, index: map[string]int{}, names: make([]string, len(stages))}
	for i := range stages {
		im.index[stages[i].Name] = i
		im.names[i] = im.validName(i)
	}
	s = &muster.Spec{Tasks: make([]muster.TaskSpec, len(stages))}
	metadata := stages[0].Doc.Metadata
	if s.Name = Text(metadata["name"]); stages[0].Name != "" {
		s.Name = strings.TrimSuffix(s.Name, ":"+stages[0].Name)
	}
	if owner := Text(metadata["owner"]); owner != "" {
		s.Labels = map[string]string{"owner": owner}
	}
	if !IsEmpty(metadata["annotations"]) {
		im.lost = append(im.lost, muster.FieldError{Path: "metadata.annotations", Message: "Muster has no annotations", Hint: "write what jobs are listed by as labels"})
	}
	for i := range stages {
		s.Tasks[i] = im.task(i)
	}
	if len(im.failed) > 0 {
		return nil, nil, &muster.Error{Code: muster.InvalidSpec, Message: "the document has tasks without an equivalent", Fields: im.failed}
	}
	return s, im.lost, nil
}

// importer translates the stages of one submission.
type importer struct {
	stages []Stage
	index  map[string]int // of stages, by their names
	names  []string       // that the stages have in the spec

	stage  *Stage           // that is translated
	spec   *muster.TaskSpec // what it becomes
	lost   []muster.FieldError
	failed []muster.FieldError
}

var notInNames = lazyregexp.New(`[^A-Za-z0-9_-]+`)

// validName returns the name of a stage as far as it is valid, or another one if an earlier stage has it.
func (im *importer) validName(i int) string {
	name := im.stages[i].Name
	if name == "" {
		return "" // the only task
	}
	name = Truncate(strings.Trim(notInNames.Get().ReplaceAllString(name, "-"), "-"), muster.MaxNameSize)
	if name == "" || slices.Contains(im.names[:i], name) {
		return "stage-" + strconv.Itoa(i+1)
	}
	return name
}

// at returns the path of a field of the current stage's spec, which may be written at the root.
func (im *importer) at(path string) string {
	if im.stage.Name == "" {
		return path
	}
	return "stage " + im.stage.Name + ": " + path
}

func (im *importer) lose(path, message, hint string) {
	im.lost = append(im.lost, muster.FieldError{Path: im.at(path), Message: message, Hint: hint})
}

// task translates a stage.
func (im *importer) task(i int) muster.TaskSpec {
	im.stage, im.spec = &im.stages[i], &muster.TaskSpec{}
	doc := im.stage.Doc
	doc.Spec = im.common(doc.Spec)
	load := im.checkpoint(&doc)
	t, input, err := toMuster(doc, "")
	for before := ""; unsupported(err) && err.Error() != before; { // the same again if a name has a dot
		before = err.Error()
		e, _ := errors.AsType[*muster.Error](err)
		for _, f := range e.Fields {
			im.lose(f.Path, f.Message, "leave it out, or run the task on a worker of MLOC")
			path := strings.Split(strings.TrimPrefix(f.Path, "spec."), ".")
			doc.Spec = without(doc.Spec, path[0], path[1:]...)
		}
		t, input, err = toMuster(doc, "")
	}
	if err != nil {
		im.failed = append(im.failed, muster.FieldError{Path: im.at("spec"), Message: err.Error(), Hint: "run it on a worker of MLOC"})
		return muster.TaskSpec{}
	}
	t.Name, t.Inputs, t.Needs = im.names[i], im.spec.Inputs, im.spec.Needs
	im.spec = &t
	for _, need := range im.stage.Needs {
		im.need(need)
	}
	if load != nil {
		input = maps.Clone(input)
		input["checkpoint"] = Object{"load": load}
	}
	if t.Input, err = Encode(MapTexts(input, im.text)); err != nil {
		im.failed = append(im.failed, muster.FieldError{Path: im.at("spec"), Message: err.Error()})
	}
	return t
}

// unsupported reports whether an error is about fields without which a task can be translated.
func unsupported(err error) bool {
	e, ok := errors.AsType[*muster.Error](err)
	return ok && len(e.Fields) > 0
}

// without returns an object without the field at a path of keys.
func without(o Object, key string, rest ...string) Object {
	o = maps.Clone(o)
	if below, ok := o[key].(Object); ok && len(rest) > 0 {
		o[key] = without(below, rest[0], rest[1:]...)
	} else {
		delete(o, key)
	}
	return o
}

// common reports what says how a task is run and has no equivalent.
func (im *importer) common(s Object) Object {
	output := Lookup(s, "output")
	if !IsEmpty(output["destination"]) {
		im.lose("spec.output.destination", "Muster's server keeps results and files, and sends them nowhere", "fetch them with muster result and muster get")
	}
	if !IsEmpty(output["artifacts"]) {
		im.lose("spec.output.artifacts", "all files that the kind writes are kept", "muster get --list JOB lists them, muster get --name fetches some")
	}
	if len(im.stage.After) > 0 {
		im.lose("spec.dependsOn", "a task cannot wait for another job", "make the tasks stages of one document")
	}
	if on, _ := s["enforce_cpu"].(bool); on && TaskType(im.stage.Doc) != "inference" {
		im.lose("spec.enforce_cpu", "only inference can be kept from using GPUs", "choose workers without GPUs by where.not: [gpu]")
	}
	return s
}

// checkpoint returns where the weights are that a training begins with, if an earlier stage makes them: that stage's file becomes an input of
// this one. Otherwise, and for all that is not read from another stage, it returns nil.
func (im *importer) checkpoint(d *Document) Object {
	load := Lookup(d.Spec, "checkpoint", "load")
	stage, file := "", ""
	if m := archiveURL.Get().FindStringSubmatch(Text(load["url"])); m != nil {
		stage, file = m[1], m[2]+".tar.gz"
	} else if m := taskID.Get().FindStringSubmatch(Text(load["taskId"])); m != nil && Text(load["url"]) == "" {
		stage, file = m[1], cmp.Or(Text(load["filename"]), "final_model.tar.gz")
	}
	from, known := im.index[stage]
	if !known || stage == "" {
		return nil
	}
	d.Spec = without(d.Spec, "checkpoint")
	im.need(from)
	im.spec.Inputs = []muster.Input{{From: im.names[from], Name: file}}
	to := Object{"path": file}
	CopyFields(to, load, "subdir", "subdir")
	return to
}

var (
	archiveURL = lazyregexp.New(`^\$\{([^.}]+)\.result\.(final_model|final_lora)_archive_url\}$`)
	taskID     = lazyregexp.New(`^\$\{([^.}]+)\.task_id\}$`)
)

// need makes the current stage need another one.
func (im *importer) need(stage int) {
	if name := im.names[stage]; !slices.Contains(im.spec.Needs, name) {
		im.spec.Needs = append(im.spec.Needs, name)
	}
}

// text translates the references in a text. Others, which MLOC leaves as they are, or fails at, are literal.
func (im *importer) text(s string) any {
	if im.stage.Name == "" {
		return Escape(s)
	}
	var b strings.Builder
	last := 0
	for _, at := range reference.Get().FindAllStringSubmatchIndex(s, -1) {
		b.WriteString(escapeText(s[last:at[0]]))
		b.WriteString(im.reference(s[at[2]:at[3]]))
		last = at[1]
	}
	b.WriteString(escapeText(s[last:]))
	return b.String()
}

func escapeText(s string) string { return dollarsBeforeBrace.Get().ReplaceAllString(s, "$1$1{") }

// reference translates the body of a reference.
func (im *importer) reference(body string) string {
	name, path, _ := strings.Cut(strings.TrimSpace(body), ".")
	i, known := im.index[name]
	if !known {
		im.lose("${"+body+"}", "the document has no stage "+Truncate(name, MaxID), "correct the reference")
		return escapeText("${" + body + "}")
	}
	to := ""
	if rest, ok := strings.CutPrefix(path, "result."); ok {
		to = resultPath(TaskType(im.stages[i].Doc), rest)
	}
	if to == "" {
		im.lose("${"+body+"}", "Muster's results have no such field", "see the kind's result in docs/kinds.md")
		return escapeText("${" + body + "}")
	}
	im.need(i)
	return "${" + im.names[i] + ".result." + to + "}"
}

// predictionPath is the path of one output of an inference.
var predictionPath = lazyregexp.New(`^items\.(\d+)\.output$`)

// resultPath returns the path in the result of Muster's kind of what has a path in that of MLOC's executor, or "" if there is none; it is the inverse of ToResult.
func resultPath(taskType, path string) string {
	switch taskType {
	case "echo":
		if rest, ok := strings.CutPrefix(path, "echo."); ok {
			return rest
		}
	case "inference":
		if m := predictionPath.Get().FindStringSubmatch(path); m != nil {
			return "predictions." + m[1] + ".prediction"
		}
		return map[string]string{"model": "model", "usage.prompt_tokens": "tokens_in", "usage.completion_tokens": "tokens_out"}[path]
	case "sft", "lora_sft", "ppo", "dpo":
		if rest, ok := strings.CutPrefix(path, "final_metrics."); ok {
			return "finalMetrics." + rest
		}
		return map[string]string{"model_name": "model", "dataset_size": "dataset_size", "training_time_seconds": "seconds"}[path]
	}
	return ""
}
