// Package kind says what a kind of task is: what it takes as input, what it runs and what it needs. The kinds
// that come with Muster are embedded; owners of workers add their own. Both are folders with a kind.yaml.
//
// The core kinds (process, script, container, noop) are no definitions: they take no input.
package kind

import (
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/muster-dev/muster"
)

// FileName is the name of a definition in its folder.
const FileName = "kind.yaml"

// Kind is one definition, as in kind.yaml. It comes from Parse, ParseFile or Read, and is not changed.
type Kind struct {
	Name       string            `json:"name"`
	About      string            `json:"about,omitempty"`      // one sentence
	Entry      []string          `json:"entry"`                // what is executed; see Entry's words below
	Runtime    string            `json:"runtime,omitempty"`    // a runtime that comes with Muster, whose Python the entry uses
	Python     *muster.Python    `json:"python,omitempty"`     // or an environment of its own; requirements is a file of the folder
	Variants   []Variant         `json:"variants,omitempty"`   // the first that fits takes the place of Runtime
	Input      json.RawMessage   `json:"input,omitempty"`      // JSON Schema (2020-12) of the stage's input; absent: none is taken
	Run        string            `json:"run,omitempty"`        // whether the stage has a command of its own: no (default), may or must; see RunOptional
	Resources  muster.Request    `json:"resources,omitzero"`   // where the stage asks for nothing of that sort
	Checkpoint bool              `json:"checkpoint,omitempty"` // it saves its state in $MUSTER_CHECKPOINT, and is kept as if the stage said so
	Models     bool              `json:"models,omitempty"`     // it may use and change the worker's folder of models
	ModelHost  []string          `json:"warm,omitempty"`       // the entry of a host that keeps its models loaded between tasks
	MergeKey   []string          `json:"merge_key,omitempty"`  // fields of the input: tasks that agree in all of them can be served by one loaded model
	Operation  bool              `json:"operation,omitempty"`  // kind custom runs it, too: where its input's name is this one's, with its parameters as input
	Env        map[string]string `json:"env,omitempty"`

	schema      *jsonschema.Schema // of Input, nil if none is taken
	schemaParts int                // of the schema; 0 if it is one of ours, and inputs of any size are held against it
}

// The first word of an entry that is not looked up as a command.
const (
	EntryPython = "python" // the interpreter of the runtime
	EntryMuster = "muster" // the worker's own program
	// One that begins with ./ is a file of the kind's folder.
)

// Variant is another runtime for some inputs.
type Variant struct {
	When    json.RawMessage `json:"when"` // an object: fields of the input and the value that each must have
	Runtime string          `json:"runtime"`
}

// Whether a stage may have a command of its own. Its words follow those of the entry: the list, or /bin/sh, -c and the text. The stage may then
// have python, too: an environment for that command, whose bin is first on the PATH.
const (
	RunNo       = "no"
	RunOptional = "may"
	RunRequired = "must"
)
