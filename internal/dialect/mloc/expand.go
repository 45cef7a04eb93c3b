package mloc

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/spec"
)

// Bounds of one submission.
const (
	MaxYAML     = 1 << 20  // bytes of the document
	maxStages   = 500      // tasks that it becomes
	MaxExpanded = 16 << 20 // bytes of all its tasks as JSON
)

// Stage is one task of a submission.
type Stage struct {
	Name  string   // of the stage or node; "" of a single task
	Doc   Document // with the merged spec
	Needs []int    // stages that must be done first, in their order
	After []string // ids of earlier submissions that must be done first
}

// Expand reads a submission: a single task, or one with stages or graph.nodes, each of which becomes a task of its own. The
// spec of such a task is the root's without stages and graph, with the stage's merged into it. A stage without dependsOn
// needs the one before; nodes have no edges but those that they name. Everything that is wrong is an InvalidSpec error.
func Expand(data []byte) ([]Stage, error) {
	if len(data) > MaxYAML {
		return nil, muster.Errorf(muster.TooLarge, "the document has %d bytes: at most %d are read", len(data), MaxYAML)
	}
	var raw json.RawMessage
	if err := spec.DecodeObject(data, "the document", &raw, func() []muster.FieldError { return nil }); err != nil {
		return nil, err
	}
	var top Object
	if err := Decode(raw, 8*MaxYAML, &top); err != nil && !IsTypeError(err) {
		return nil, err
	}
	if top == nil {
		return nil, InvalidSpec("the document must be a mapping with apiVersion, kind, metadata and spec")
	}
	if v := Text(top["apiVersion"]); v != "mloc/v1" {
		return nil, InvalidSpec("apiVersion must be mloc/v1, not %s", Quoted(top["apiVersion"]))
	}
	doc := Document{APIVersion: "mloc/v1", Kind: Text(top["kind"])}
	var ok bool
	if doc.Metadata, ok = optionalObject(top["metadata"]); !ok {
		return nil, InvalidSpec("metadata must be a mapping")
	}
	if doc.Spec, ok = top["spec"].(Object); !ok {
		return nil, InvalidSpec("spec is missing or is not a mapping")
	}
	if name, there := doc.Metadata["name"]; there && name != nil && Text(name) == "" {
		return nil, InvalidSpec("metadata.name must be a text, not %s", Quoted(name))
	}
	stages, _ := doc.Spec["stages"].([]any)
	nodes, _ := Lookup(doc.Spec, "graph")["nodes"].([]any)
	switch {
	case doc.Spec["stages"] != nil && stages == nil:
		return nil, InvalidSpec("spec.stages must be a list")
	case Lookup(doc.Spec, "graph")["nodes"] != nil && nodes == nil:
		return nil, InvalidSpec("spec.graph.nodes must be a list")
	case len(stages) > 0 && len(nodes) > 0:
		return nil, InvalidSpec("spec has both stages and graph.nodes: write one of them")
	case len(stages) > 0:
		return expandItems(doc, stages, "stage")
	case len(nodes) > 0:
		return expandItems(doc, nodes, "node")
	}
	after, err := parseNames(doc.Spec["dependsOn"], "spec.dependsOn")
	if err != nil {
		return nil, err
	}
	return []Stage{{Doc: doc, After: after}}, checkTask(doc, "spec")
}

func expandItems(root Document, items []any, itemKind string) ([]Stage, error) {
	if len(items) > maxStages {
		return nil, InvalidSpec("there are %d %ss: at most %d", len(items), itemKind, maxStages)
	}
	base := maps.Clone(root.Spec)
	delete(base, "stages")
	delete(base, "graph")
	list := make([]Stage, len(items))
	index := make(map[string]int, len(items))
	needs := make([][]string, len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s %d", itemKind, i+1)
		o, ok := item.(Object)
		if !ok {
			return nil, InvalidSpec("%s must be a mapping with name and spec", at)
		}
		name := cmp.Or(Text(o["name"]), Text(o["id"]), fmt.Sprintf("%s-%d", itemKind, i+1))
		if len(name) > MaxID || strings.ContainsAny(name, ".{}") {
			return nil, InvalidSpec("%s: a name has at most %d bytes, and no dot or brace, with which references to it could not be written", at, MaxID)
		}
		if _, twice := index[name]; twice {
			return nil, InvalidSpec("two %ss have the name %q", itemKind, name)
		}
		index[name] = i
		itemSpec, ok := optionalObject(o["spec"])
		if !ok {
			return nil, InvalidSpec("%s %q: spec must be a mapping", itemKind, name)
		}
		var err error
		if needs[i], err = parseNames(o["dependsOn"], itemKind+" "+strconv.Quote(name)+": dependsOn"); err != nil {
			return nil, err
		}
		if o["dependsOn"] == nil && itemKind == "stage" && i > 0 {
			needs[i] = []string{list[i-1].Name}
		}
		metadata := maps.Clone(NonNilObject(root.Metadata))
		metadata["name"] = cmp.Or(Text(root.Metadata["name"]), "task") + ":" + name
		list[i] = Stage{Name: name, Doc: Document{APIVersion: root.APIVersion, Kind: root.Kind, Metadata: metadata, Spec: Merge(base, itemSpec)}}
	}
	size, graph := 0, make([][]int, len(list))
	for i := range list {
		for _, need := range needs[i] {
			j, known := index[need]
			if !known {
				return nil, InvalidSpec("%s %q depends on %q, which does not exist", itemKind, list[i].Name, Truncate(need, MaxID))
			}
			if i == j {
				return nil, InvalidSpec("%s %q depends on itself", itemKind, list[i].Name)
			}
			list[i].Needs = append(list[i].Needs, j)
		}
		slices.Sort(list[i].Needs)
		list[i].Needs = slices.Compact(list[i].Needs)
		graph[i] = list[i].Needs
		if err := checkTask(list[i].Doc, itemKind+" "+strconv.Quote(list[i].Name)); err != nil {
			return nil, err
		}
		if size += len(EncodeString(list[i].Doc)); size > MaxExpanded {
			return nil, muster.Errorf(muster.TooLarge, "the %ss together become more than %d bytes: bring data as files", itemKind, MaxExpanded)
		}
	}
	order, _ := dag.TopoSort(graph)
	for i := range list {
		if !slices.Contains(order, i) {
			return nil, InvalidSpec("%s %q depends on itself by way of others", itemKind, list[i].Name)
		}
	}
	return list, nil
}

// checkTask says what is wrong with one task beyond its shape.
func checkTask(d Document, at string) error {
	if t := TaskType(d); t == "" || len(t) > muster.MaxNameSize {
		return InvalidSpec("%s: spec.taskType is missing, or is no short text such as echo, inference or sft", at)
	}
	return nil
}

// Merge returns a with b on top: mappings are merged, everything else is replaced. Neither is changed.
func Merge(a, b Object) Object {
	m := maps.Clone(NonNilObject(a))
	for k, v := range b {
		below, isMap := v.(Object)
		if old, wasMap := m[k].(Object); isMap && wasMap {
			m[k] = Merge(old, below)
			continue
		}
		m[k] = v
	}
	return m
}

// parseNames reads a list of names; a single one may stand for itself.
func parseNames(v any, at string) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case []any:
		if len(v) > maxStages {
			return nil, InvalidSpec("%s has more than %d names", at, maxStages)
		}
		list := make([]string, len(v))
		for i, item := range v {
			if list[i] = Text(item); list[i] == "" {
				return nil, InvalidSpec("%s must be a list of names, and has %s", at, Quoted(item))
			}
		}
		return list, nil
	default:
		return nil, InvalidSpec("%s must be a list of names", at)
	}
}

// optionalObject returns a mapping that may be absent.
func optionalObject(v any) (Object, bool) {
	if v == nil {
		return Object{}, true
	}
	o, ok := v.(Object)
	return o, ok
}

// Quoted is a value as JSON, shortened for messages.
func Quoted(v any) string { return Truncate(EncodeString(v), 100) }

// The categories of tasks: the host's figures and weights are by them.
const (
	CategoryInference = "inference"
	CategoryTraining  = "training"
	CategoryOther     = "other"
)

// Category sorts a task type.
func Category(taskType string) string {
	switch taskType {
	case "inference":
		return CategoryInference
	case "sft", "lora_sft", "ppo", "dpo", "training":
		return CategoryTraining
	default:
		return CategoryOther
	}
}

// ResourceRequest reads spec.resources.hardware. What cannot be read is no constraint, as the host has it.
func ResourceRequest(s Object) muster.Request {
	var r muster.Request
	hw := Lookup(s, "resources", "hardware")
	if n, ok := PositiveInt(hw["cpu"]); ok && n <= 1<<20 {
		r.CPUs = float64(n)
	}
	r.Memory = parseMemory(hw["memory"])
	gpu := Lookup(hw, "gpu")
	if n, ok := PositiveInt(gpu["count"]); ok && n <= 1<<10 {
		r.GPUs.Count = int(n)
	}
	switch model := strings.TrimSpace(Text(gpu["type"])); strings.ToLower(model) {
	case "", "any", "auto", "*":
	default:
		r.GPUs.Model = Truncate(model, muster.MaxNameSize)
	}
	r.GPUs.Memory = parseMemory(gpu["memory"])
	if r.GPUs.Count == 0 && (r.GPUs.Model != "" || r.GPUs.Memory > 0) {
		r.GPUs.Count = 1
	}
	return r
}

// PositiveInt reads a positive integer, written as such or as a text.
func PositiveInt(v any) (int64, bool) {
	n, err := strconv.ParseInt(numeral(v), 10, 64)
	return n, err == nil && n > 0
}

// numeral returns a number, or a text that may be one, "" for anything else.
func numeral(v any) string { return strings.TrimSpace(cmp.Or(NumberText(v), Text(v))) }

// parseMemory reads an integer with K, M, G or T, optionally followed by i, B or iB: all are powers of 1024. Anything else is 0.
func parseMemory(v any) muster.Size {
	s := strings.TrimSuffix(strings.ToUpper(numeral(v)), "B")
	shift := 0
	if t := strings.TrimSuffix(s, "I"); t != "" {
		if i := strings.IndexByte("KMGT", t[len(t)-1]); i >= 0 {
			s, shift = t[:len(t)-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>(shift+2) {
		return 0
	}
	return muster.Size(n << shift)
}

// EstimatedLoad reads spec.resources.estimatedLoad, which is only reported.
func EstimatedLoad(s Object) int {
	n, ok := PositiveInt(Lookup(s, "resources")["estimatedLoad"])
	if !ok || n > 1<<30 {
		return 0
	}
	return int(n)
}
