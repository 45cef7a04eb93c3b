// Package kind defines kinds of tasks: their input, what they execute and which resources they need. Muster's own
// kinds are embedded; owners of workers add custom ones. Both are folders with a kind.yaml.
//
// The core kinds (process, script, container, noop) have no definitions and take no input.
package kind

import (
	"encoding/json"

	"github.com/muster-dev/muster"
)

// FileName is the name of the definition in a kind's folder.
const FileName = "kind.yaml"

// Kind is one definition, as in kind.yaml. Parse, ParseFile and DecodeList create it; it is immutable.
type Kind struct {
	Name       string            `json:"name"`
	About      string            `json:"about,omitempty"`      // one sentence
	Entry      []string          `json:"entry"`                // command; see EntryPython
	Runtime    string            `json:"runtime,omitempty"`    // an embedded runtime, whose Python the entry uses
	Python     *muster.Python    `json:"python,omitempty"`     // or a separate environment; requirements is a file of the folder
	Variants   []Variant         `json:"variants,omitempty"`   // the first matching one replaces Runtime
	Input      json.RawMessage   `json:"input,omitempty"`      // JSON Schema (2020-12) of the stage's input; absent if it takes none
	Run        string            `json:"run,omitempty"`        // whether the stage has a command: no (default), may or must; see RunOptional
	Resources  muster.Request    `json:"resources,omitzero"`   // defaults for the stage
	Checkpoint bool              `json:"checkpoint,omitempty"` // it saves checkpoints: default for the stage
	Models     bool              `json:"models,omitempty"`     // it may read the owner's models, and use and modify those of its project
	ModelHost  []string          `json:"warm,omitempty"`       // command of a model server, which keeps models loaded between tasks
	MergeKey   []string          `json:"merge_key,omitempty"`  // input fields: tasks with equal values can share a loaded model
	Operation  bool              `json:"operation,omitempty"`  // kind custom can also run it: by its name, with parameters as input
	Env        map[string]string `json:"env,omitempty"`

	schema      *inputSchema // of Input, nil if it takes none
	schemaParts int          // of the schema; 0 for embedded kinds, whose inputs may have any size
}

// First words of an entry that are not looked up as commands.
const (
	EntryPython = "python" // the runtime's interpreter
	EntryMuster = "muster" // the worker's executable
	// A first word that begins with ./ is a file of the kind's folder.
)

// Variant is another runtime for some inputs.
type Variant struct {
	When    json.RawMessage `json:"when"` // an object of input fields and the values that they must have
	Runtime string          `json:"runtime"`
}

// The values of Kind.Run: whether a stage has a command. Its words are appended to the entry: the list, or /bin/sh, -c and the string. The
// stage can then also have python: an environment for the command, whose bin is first in PATH.
const (
	RunNo       = "no"
	RunOptional = "may"
	RunRequired = "must"
)
