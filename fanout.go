package muster

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Limits of an Array whose elements another stage determines.
const (
	MaxFanOut   = 10_000   // elements
	MaxItemSize = 32 << 10 // bytes of an element as text
)

// EnvItem is the variable with the value of a task's element, which the server sets.
const EnvItem = "MUSTER_ITEM"

// parseDynamicArray returns the array whose elements a reference determines, such as ${prepare.result.shards}, and false if s is none.
// Until its stage is ready, it has one element.
func parseDynamicArray(s string) (Array, bool) {
	inner, opened := strings.CutPrefix(strings.TrimSpace(s), "${")
	body, closed := strings.CutSuffix(inner, "}")
	if !opened || !closed || body == "" || strings.ContainsAny(body, "{}") {
		return Array{}, false
	}
	return Array{From: body, Ranges: []Range{{Step: 1}}}, true
}

// DynamicArray reports whether the stage has an array whose elements are not known yet: the result of another stage determines them.
func (t *TaskSpec) DynamicArray() bool { return t.Array != nil && t.Array.From != "" }

// FanOut returns the array with these elements, each a JSON value, in place of the reference.
func (a Array) FanOut(items []json.RawMessage) *Array {
	fixed := &Array{Limit: a.Limit, Items: items}
	if n := int64(len(items)); n > 0 {
		fixed.Ranges = []Range{{Last: n - 1, Step: 1}}
	}
	return fixed
}

// WithoutItems returns the array without the values of its elements.
func (a Array) WithoutItems() *Array {
	a.Items = nil
	return &a
}

// Reserved returns how many numbers of tasks the stage takes in its job. It may have fewer tasks.
func (t *TaskSpec) Reserved() int {
	if t.DynamicArray() {
		return MaxFanOut
	}
	return t.Size()
}

// storedArray is the JSON of an array with the values of its elements. Only the server writes and reads it.
type storedArray struct {
	Numbers string            `json:"numbers"`
	Items   []json.RawMessage `json:"items"`
}

func (a Array) dynamicString() string {
	s := "${" + a.From + "}"
	if a.Limit > 0 {
		s += "%" + strconv.Itoa(a.Limit)
	}
	return s
}
