package muster

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
)

// MaxAxisValues is the maximum number of values of one axis.
const MaxAxisValues = 10_000

// Len returns the number of combinations, at most math.MaxInt64.
func (m Matrix) Len() int64 {
	n := int64(1)
	for _, a := range m.Axes {
		v := int64(len(a.Values))
		if v > 0 && n > math.MaxInt64/v {
			return math.MaxInt64
		}
		n *= v
	}
	return n
}

// At returns the value of each axis, in order, at position i, from 0 to Len()-1.
func (m Matrix) At(i int64) []string {
	values := make([]string, len(m.Axes))
	for k, a := range slices.Backward(m.Axes) {
		n := int64(len(a.Values))
		values[k] = a.Values[i%n]
		i /= n
	}
	return values
}

// MarshalJSON writes an object of lists that keeps the order of the axes.
func (m Matrix) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, a := range m.Axes {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(a.Name)
		if err != nil {
			return nil, err
		}
		values, err := json.Marshal(a.Values)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(values)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads an object whose members are lists of scalars or strings of
// ranges. Numbers keep the spelling of the document.
func (m *Matrix) UnmarshalJSON(b []byte) error {
	if firstByte(b) != '{' {
		return Errorf(Invalid, `%s is not a matrix: write an object of lists, such as {"lr": [0.1, 0.01], "seed": "1-3"}`, Truncate(string(b)))
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return Errorf(Invalid, "matrix: %w", err)
	}
	var got Matrix
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return Errorf(Invalid, "matrix: %w", err)
		}
		name, ok := key.(string)
		if !ok {
			return Errorf(Invalid, "matrix: %v is not a valid axis name", key)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return Errorf(Invalid, "matrix: %w", err)
		}
		if slices.ContainsFunc(got.Axes, func(a Axis) bool { return a.Name == name }) {
			return Errorf(Invalid, "matrix: the axis %q occurs twice", Truncate(name))
		}
		values, err := axisValues(name, raw)
		if err != nil {
			return err
		}
		got.Axes = append(got.Axes, Axis{Name: name, Values: values})
	}
	*m = got
	return nil
}

func axisValues(name string, raw []byte) ([]string, error) {
	name = Truncate(name)
	if firstByte(raw) == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, Errorf(Invalid, "matrix axis %s: %w", name, err)
		}
		a, err := ParseArray(text)
		if err != nil {
			return nil, Errorf(Invalid, `matrix axis %s: %w; or write a list of values, such as [%q]`, name, err, Truncate(text))
		}
		if a.From != "" {
			return nil, Errorf(Invalid, "matrix axis %s: %s: only an array can be a reference", name, Truncate(text))
		}
		if a.Limit > 0 {
			return nil, Errorf(Invalid, "matrix axis %s: %%%d belongs to an array, not to an axis", name, a.Limit)
		}
		return a.values(name)
	}
	var items []json.RawMessage
	if firstByte(raw) != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, Errorf(Invalid, `matrix axis %s: %s is neither a list of values, such as [0.1, 0.01], nor a string of ranges, such as "1-3"`, name, Truncate(string(raw)))
	}
	if len(items) > MaxAxisValues {
		return nil, Errorf(Invalid, "matrix axis %s: %d values are too many, the maximum is %d", name, len(items), MaxAxisValues)
	}
	values := make([]string, len(items))
	for i, item := range items {
		switch firstByte(item) {
		case '"':
			if err := json.Unmarshal(item, &values[i]); err != nil {
				return nil, Errorf(Invalid, "matrix axis %s: %w", name, err)
			}
		case '{', '[', 'n':
			return nil, Errorf(Invalid, "matrix axis %s: %s is not a value: write strings, numbers, true or false", name, Truncate(string(item)))
		default:
			values[i] = strings.TrimSpace(string(item))
		}
	}
	return values, nil
}

// values lists a's numbers as the values of a matrix axis.
func (a Array) values(axis string) ([]string, error) {
	if a.Len() > MaxAxisValues {
		return nil, Errorf(Invalid, "matrix axis %s: %d values are too many, the maximum is %d: use array instead", axis, a.Len(), MaxAxisValues)
	}
	values := make([]string, 0, a.Len())
	for _, r := range a.Ranges {
		for n := r.First; n <= r.Last; n += r.Step {
			values = append(values, Range{First: n, Last: n}.String())
		}
	}
	return values, nil
}
