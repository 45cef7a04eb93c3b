// Package schema describes the types and parameters of the API in the OpenAPI document: formats, patterns and limits that
// Go types do not express.
package schema

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-dev/muster"
)

// Alias registers the schemas of types of package muster with a custom JSON form.
func Alias(r huma.Registry) {
	registerAlias[muster.Time, timeSchema](r)
	registerAlias[muster.Duration, durationSchema](r)
	registerAlias[muster.Size, sizeSchema](r)
	registerAlias[muster.TaskState, taskStateSchema](r)
	registerAlias[muster.JobState, jobStateSchema](r)
	registerAlias[muster.Counts, countsSchema](r)
	registerAlias[muster.Command, commandSchema](r)
	registerAlias[muster.Script, scriptSchema](r)
	registerAlias[muster.Checkpoint, checkpointSchema](r)
	registerAlias[muster.Gang, gangSchema](r)
	registerAlias[muster.Array, arraySchema](r)
	registerAlias[muster.Matrix, matrixSchema](r)
	registerAlias[muster.Reason, reasonSchema](r)
}

func registerAlias[T, Schema any](r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[Schema]())
}

type (
	timeSchema       struct{}
	durationSchema   struct{}
	sizeSchema       struct{}
	taskStateSchema  struct{}
	jobStateSchema   struct{}
	countsSchema     struct{}
	commandSchema    struct{}
	scriptSchema     struct{}
	checkpointSchema struct{}
	gangSchema       struct{}
	arraySchema      struct{}
	matrixSchema     struct{}
	reasonSchema     struct{}
)

func (timeSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Examples: []any{"2026-01-02T15:04:05.000Z"}}
}

func (durationSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "seconds, or a string such as 90s, 10m, 1h30m or 7d",
		Examples:    []any{90},
		AnyOf:       []*huma.Schema{{Type: huma.TypeNumber, Minimum: new(0.0)}, {Type: huma.TypeString}},
	}
}

func (sizeSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "bytes, or a string such as 512MiB or 10GB",
		Examples:    []any{1 << 30},
		AnyOf:       []*huma.Schema{{Type: huma.TypeInteger, Minimum: new(0.0)}, {Type: huma.TypeString}},
	}
}

func (taskStateSchema) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, st := range muster.TaskStates {
		s.Enum = append(s.Enum, st.String())
	}
	return s
}

func (jobStateSchema) Schema(huma.Registry) *huma.Schema {
	return stringEnum(muster.JobStates)
}

func (reasonSchema) Schema(huma.Registry) *huma.Schema {
	return stringEnum(muster.Reasons)
}

func stringEnum[T ~string](list []T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, v := range list {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

func (countsSchema) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Description: "number of tasks in each state", Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	for _, st := range muster.TaskStates {
		s.Properties[st.String()] = &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0)}
	}
	return s
}

func (commandSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "a list is executed directly, a string by sh -c",
		AnyOf:       []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}}},
	}
}

// script is muster.Script without its JSON methods.
type script muster.Script

func (scriptSchema) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "a string is the script's text",
		AnyOf:       []*huma.Schema{{Type: huma.TypeString}, r.Schema(reflect.TypeFor[script](), true, "")},
	}
}

// checkpoint is muster.Checkpoint without its JSON methods.
type checkpoint muster.Checkpoint

func (checkpointSchema) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "a string is the path",
		AnyOf:       []*huma.Schema{{Type: huma.TypeString}, r.Schema(reflect.TypeFor[checkpoint](), true, "")},
	}
}

// gang is muster.Gang without its JSON methods.
type gang muster.Gang

func (gangSchema) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "a number is the size",
		AnyOf:       []*huma.Schema{{Type: huma.TypeInteger}, r.Schema(reflect.TypeFor[gang](), true, "")},
	}
}

func (arraySchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "numbers and ranges, one task per number", Examples: []any{"1-1000", "0-9,20,30-39:3"}}
}

func (matrixSchema) Schema(huma.Registry) *huma.Schema {
	value := &huma.Schema{AnyOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}, {Type: huma.TypeBoolean}}}
	return &huma.Schema{
		Type: huma.TypeObject, Description: "one task per combination; an axis is a list of values or a string of ranges",
		AdditionalProperties: &huma.Schema{AnyOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeArray, Items: value}}},
	}
}
