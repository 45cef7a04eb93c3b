package muster

import "encoding/json"

// MaxParams is the maximum number of parameters of a job.
const MaxParams = 64

// Param is a parameter of a job. The references ${params.NAME} in a spec are replaced by its value when the spec is parsed,
// so a stored spec has none. A value is a JSON scalar of the type.
type Param struct {
	Type        string            `json:"type,omitempty"` // string, integer, number or boolean; default: that of Default
	Description string            `json:"description,omitempty"`
	Default     json.RawMessage   `json:"default,omitempty"`
	Enum        []json.RawMessage `json:"enum,omitempty"`    // the allowed values
	Minimum     *float64          `json:"minimum,omitempty"` // of a number, inclusive
	Maximum     *float64          `json:"maximum,omitempty"` // of a number, inclusive
	Value       json.RawMessage   `json:"value,omitempty"`   // as given at the submission; default: Default
}

// The values of Param.Type.
const (
	ParamString  = "string"
	ParamInteger = "integer"
	ParamNumber  = "number"
	ParamBoolean = "boolean"
)

// ParamTypes lists the values of Param.Type.
var ParamTypes = []string{ParamString, ParamInteger, ParamNumber, ParamBoolean}
