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
	registerAlias[muster.Time](r)
	registerAlias[muster.Duration](r)
	registerAlias[muster.CacheLifetime](r)
	registerAlias[muster.Size](r)
	registerAlias[muster.TaskState](r)
	registerAlias[muster.JobState](r)
	registerAlias[muster.Counts](r)
	registerAlias[muster.Command](r)
	registerAlias[muster.Script](r)
	registerAlias[muster.Checkpoint](r)
	registerAlias[muster.Gang](r)
	registerAlias[muster.Secret](r)
	registerAlias[muster.Array](r)
	registerAlias[muster.Matrix](r)
	registerAlias[muster.SweepParameter](r)
	registerAlias[muster.Reason](r)
}

func registerAlias[T any](r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[alias[T]]())
}

// alias provides the schema of T.
type alias[T any] struct{}

// Schema implements huma.SchemaProvider.
func (alias[T]) Schema(r huma.Registry) *huma.Schema {
	var v T
	if s := scalarSchema(v); s != nil {
		return s
	}
	return specSchema(r, v)
}

// scalarSchema returns the schema of a text or a number, nil for other types.
func scalarSchema(v any) *huma.Schema {
	switch v.(type) {
	case muster.Time:
		return &huma.Schema{Type: huma.TypeString, Format: "date-time", Examples: []any{"2026-01-02T15:04:05.000Z"}}
	case muster.Duration:
		return &huma.Schema{
			Description: "seconds, or a string such as 90s, 10m, 1h30m or 7d",
			Examples:    []any{90},
			AnyOf:       []*huma.Schema{{Type: huma.TypeNumber, Minimum: new(0.0)}, {Type: huma.TypeString}},
		}
	case muster.CacheLifetime:
		return &huma.Schema{
			Description: "true, seconds, or a string such as 12h or 7d",
			Examples:    []any{true},
			AnyOf:       []*huma.Schema{{Type: huma.TypeBoolean}, {Type: huma.TypeNumber, Minimum: new(0.0)}, {Type: huma.TypeString}},
		}
	case muster.Size:
		return &huma.Schema{
			Description: "bytes, or a string such as 512MiB or 10GB",
			Examples:    []any{1 << 30},
			AnyOf:       []*huma.Schema{{Type: huma.TypeInteger, Minimum: new(0.0)}, {Type: huma.TypeString}},
		}
	case muster.TaskState:
		s := &huma.Schema{Type: huma.TypeString}
		for _, st := range muster.TaskStates {
			s.Enum = append(s.Enum, st.String())
		}
		return s
	case muster.JobState:
		return stringEnum(muster.JobStates)
	case muster.Reason:
		return stringEnum(muster.Reasons)
	default:
		return nil
	}
}

// specSchema returns the schema of a part of a job's spec, or of the counts of tasks.
func specSchema(r huma.Registry, v any) *huma.Schema {
	switch v.(type) {
	case muster.Counts:
		s := &huma.Schema{Type: huma.TypeObject, Description: "number of tasks in each state", Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
		for _, st := range muster.TaskStates {
			s.Properties[st.String()] = &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0)}
		}
		return s
	case muster.Command:
		return &huma.Schema{
			Description: "a list is executed directly, a string by sh -c",
			AnyOf:       []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}}},
		}
	case muster.Script:
		return &huma.Schema{
			Description: "a string is the script's text",
			AnyOf:       []*huma.Schema{{Type: huma.TypeString}, r.Schema(reflect.TypeFor[script](), true, "")},
		}
	case muster.Checkpoint:
		return &huma.Schema{
			Description: "a string is the path",
			AnyOf:       []*huma.Schema{{Type: huma.TypeString}, r.Schema(reflect.TypeFor[checkpoint](), true, "")},
		}
	case muster.Gang:
		return &huma.Schema{
			Description: "a number is the size",
			AnyOf:       []*huma.Schema{{Type: huma.TypeInteger}, r.Schema(reflect.TypeFor[gang](), true, "")},
		}
	case muster.Secret:
		return &huma.Schema{
			Description: "a string is the name",
			AnyOf:       []*huma.Schema{{Type: huma.TypeString}, r.Schema(reflect.TypeFor[taskSecret](), true, "")},
		}
	case muster.Array:
		return &huma.Schema{Type: huma.TypeString, Description: "numbers and ranges, one task per number, or a reference to a list", Examples: []any{"1-1000", "0-9,20,30-39:3", "${prepare.result.shards}"}}
	case muster.SweepParameter:
		return &huma.Schema{
			Description: "a list is the values",
			AnyOf:       []*huma.Schema{{Type: huma.TypeArray, Items: scalar()}, r.Schema(reflect.TypeFor[sweepParameter](), true, "")},
		}
	case muster.Matrix:
		return &huma.Schema{
			Type: huma.TypeObject, Description: "one task per combination; an axis is a list of values or a string of ranges",
			AdditionalProperties: &huma.Schema{AnyOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeArray, Items: scalar()}}},
		}
	default:
		return &huma.Schema{}
	}
}

// The types of package muster without their JSON methods.
type (
	script         muster.Script
	checkpoint     muster.Checkpoint
	gang           muster.Gang
	taskSecret     muster.Secret
	sweepParameter muster.SweepParameter
)

// scalar returns the schema of a value of a matrix.
func scalar() *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}, {Type: huma.TypeBoolean}}}
}

func stringEnum[T ~string](list []T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, v := range list {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}
