package trainforge

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/spec"
)

// MaxImport is what Import reads at most, in bytes.
const MaxImport = maxConfig

// Import returns the job spec that runs a project of TrainForge: data is its trainforge.yaml, dir the folder of the project, whose files become those of
// the job. lost lists the fields without an equivalent, which the spec is without. It fails with InvalidSpec if the file cannot be read, or if
// the program that it names is not in the folder.
func Import(data []byte, dir string) (s *muster.Spec, lost []muster.FieldError, err error) {
	if len(data) > MaxImport {
		return nil, nil, muster.Errorf(muster.TooLarge, "the file has %d bytes: at most %d are read", len(data), MaxImport)
	}
	var raw json.RawMessage
	if err := spec.DecodeObject(data, "the file", &raw, func() []muster.FieldError { return nil }); err != nil {
		return nil, nil, err
	}
	conf, err := parseConfig(string(raw))
	if err != nil {
		return nil, nil, muster.Errorf(muster.InvalidSpec, "%w", err)
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(raw, &sections); err != nil {
		return nil, nil, muster.Errorf(muster.InvalidSpec, "the file is not a mapping")
	}
	if s, err = projectSpec(dir, conf, false, 0); err != nil {
		return nil, nil, muster.Errorf(muster.InvalidSpec, "%w", err)
	}
	t := &s.Tasks[0]
	s.Labels, t.Files = nil, dir
	lost = unknownFields(sections)
	if t.Resources, err = conf.Resources.written(); err != nil {
		return nil, nil, muster.Errorf(muster.InvalidSpec, "%w", err)
	}
	if gpu := conf.Resources.GPU; gpu != nil && gpu.guess {
		lost = append(lost, muster.FieldError{Path: "resources.gpu", Message: "a task cannot ask for a GPU only where there is one", Hint: "set resources.gpus to 1 if the program needs one"})
	}
	switch version := pythonVersion(sections["environment"]); {
	case version == "":
	case t.Image != "":
		lost = append(lost, muster.FieldError{Path: "environment.python_version", Message: "the image has its own Python", Hint: "choose an image with Python " + version})
	case t.Python == nil:
		t.Python = &muster.Python{Version: version}
	default:
		t.Python.Version = version
	}
	return s, lost, nil
}

// pythonVersion returns the version that an environment names, as a text or as a number as it is written, such as 3.10; "" for none.
func pythonVersion(environment json.RawMessage) string {
	var e struct {
		Version json.RawMessage `json:"python_version"`
	}
	if json.Unmarshal(environment, &e) != nil || string(e.Version) == "null" {
		return ""
	}
	return lenient.Text(strings.Trim(string(e.Version), `"`), 40)
}

// importedFields are the fields of each section that have an equivalent.
var importedFields = map[string][]string{ //nolint:gochecknoglobals // a constant table
	"project": {"name"}, "training": {"script", "requirements"}, "resources": {"gpu", "cpu", "memory"}, "environment": {"base_image", "python_version"},
}

// unknownFields lists the other fields of a file.
func unknownFields(sections map[string]json.RawMessage) (lost []muster.FieldError) {
	lose := func(path, hint string) {
		lost = append(lost, muster.FieldError{Path: path, Message: "Muster has no equivalent", Hint: hint})
	}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		known, ok := importedFields[name]
		var fields map[string]json.RawMessage
		if !ok || json.Unmarshal(sections[name], &fields) != nil {
			lose(lenient.Text(name, maxID), "TrainForge's own workers ignore it, too")
			continue
		}
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			switch {
			case slices.Contains(known, field):
			case name == "project" && field == "description":
				lose("project.description", "write it as a comment")
			default:
				lose(strings.Join([]string{name, lenient.Text(field, maxID)}, "."), "TrainForge's own workers ignore it, too")
			}
		}
	}
	return lost
}
