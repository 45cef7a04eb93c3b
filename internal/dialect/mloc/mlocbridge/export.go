package mlocbridge

import (
	"bytes"
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// maxFields is how many fields a line of an export may have.
const maxFields = 200

// export is spec.postprocess.jsonl_export: a file with a line of JSON for each item of an inference.
type export struct {
	Path     string
	Fields   mloc.Object // what each field is taken from
	Required []string    // items without these are left out
}

// parseExport reads a task's export; nil if it has none.
func parseExport(spec mloc.Object) (*export, error) {
	o := mloc.Lookup(spec, "postprocess", "jsonl_export")
	if len(o) == 0 {
		return nil, nil //nolint:nilnil // absent
	}
	e := &export{Path: cmp.Or(mloc.Text(o["path"]), "export.jsonl"), Fields: mloc.Object{"prompt": "prompt", "output": "output"}}
	if !filepath.IsLocal(e.Path) || !mloc.ValidFileName(filepath.Base(e.Path)) {
		return nil, mloc.InvalidSpec("spec.postprocess.jsonl_export.path is %q: write a path inside the task's folder", mloc.Truncate(e.Path, 200))
	}
	fields, _ := o["fields"].(mloc.Object)
	if len(fields) > maxFields {
		return nil, mloc.InvalidSpec("spec.postprocess.jsonl_export has %d fields: at most %d", len(fields), maxFields)
	}
	if len(fields) > 0 {
		e.Fields = fields
	}
	required, _ := o["required_fields"].([]any)
	for _, v := range required {
		e.Required = append(e.Required, mloc.Text(v))
	}
	return e, nil
}

// encode makes the file. Each item has prompt, output and metadata.
func (e *export) encode(items []any) ([]byte, int, error) {
	var out bytes.Buffer
	n := 0
	for _, v := range items {
		item, _ := v.(mloc.Object)
		line := mloc.Object{}
		for name, from := range e.Fields {
			line[name] = exportField(item, from)
		}
		if slices.ContainsFunc(e.Required, func(name string) bool { return line[name] == nil || line[name] == "" }) {
			continue
		}
		b, err := mloc.Encode(line)
		if err != nil {
			return nil, n, err
		}
		out.Write(b)
		out.WriteByte('\n')
		n++
	}
	return out.Bytes(), n, nil
}

// exportField is what one field of a line is: the name of something of the item ("prompt", "output", "metadata.k",
// "item.k"), or an object with from or key, or a value of its own, and what to take where there is nothing.
func exportField(item mloc.Object, from any) any {
	switch f := from.(type) {
	case string:
		return lookupField(item, f)
	case mloc.Object:
		if v, there := f["value"]; there {
			return v
		}
		source := mloc.Text(f["from"])
		if key := mloc.Text(f["key"]); key != "" {
			source = strings.TrimPrefix(source+"."+key, ".")
		}
		for _, name := range []string{source, mloc.Text(f["fallback"])} {
			if v := lookupField(item, name); v != nil {
				return v
			}
		}
		return f["default"]
	default:
		return from
	}
}

func lookupField(item mloc.Object, name string) any {
	if name = strings.TrimPrefix(name, "item."); name == "" {
		return nil
	}
	return mloc.At(item, name)
}

// exportItems are the items of a result with what an export may take of them.
func exportItems(d mloc.Document, items []any) []any {
	data := mloc.Lookup(d.Spec, "data")
	prompts, _ := data["items"].([]any)
	sampling := mloc.Lookup(d.Spec, "inference")
	system := cmp.Or(mloc.Text(sampling["system_prompt"]), mloc.Text(sampling["systemPrompt"]))
	metadata, _ := data["metadata"].([]any)
	out := make([]any, 0, len(items))
	for i, v := range items {
		item, _ := v.(mloc.Object)
		item = maps.Clone(mloc.NonNilObject(item))
		given := data["metadata"]
		if i < len(metadata) {
			given = metadata[i]
		}
		about, _ := given.(mloc.Object)
		about = maps.Clone(mloc.NonNilObject(about))
		if i < len(prompts) {
			item["prompt"], about["prompt"], about["rendered_prompt"] = prompts[i], prompts[i], prompts[i]
			if system != "" {
				about["rendered_prompt"] = system + "\n" + mloc.Text(prompts[i])
			}
		}
		item["metadata"] = about
		out = append(out, item)
	}
	return out
}
