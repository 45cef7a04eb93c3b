package muster

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sweep expands a stage to trials of parameters. With SearchGrid it is the matrix of the parameters' values, and Normalize makes it one.
// With SearchRandom the values of a trial are a function of the seed, the number of the trial and the parameter's name, so that more trials
// with the same seed begin with the same ones, and nothing is stored.
type Sweep struct {
	Parameters map[string]SweepParameter `json:"parameters"`
	Search     string                    `json:"search"`           // grid or random
	Trials     int                       `json:"trials,omitempty"` // of SearchRandom
	Seed       int                       `json:"seed,omitempty"`   // of SearchRandom
}

// SweepParameter is what values a parameter may have: a list, or the numbers from Min to Max. In JSON it is a list or an object.
type SweepParameter struct {
	Values []string `json:"values,omitempty"`
	Min    float64  `json:"min,omitempty"`
	Max    float64  `json:"max,omitempty"`
	Step   float64  `json:"step,omitempty"` // only Min, Min+Step, …; 0 means all numbers
	Log    bool     `json:"log,omitempty"`  // the logarithm is distributed uniformly
}

// The values of Sweep.Search.
const (
	SearchGrid   = "grid"
	SearchRandom = "random"
)

// MaxTrials is the maximum number of trials of a random search.
const MaxTrials = 10_000

// TrialAxis is the name of the number of a trial, from 0, among the parameters of a random search.
const TrialAxis = "trial"

// UnmarshalJSON reads a list of scalars or an object. Numbers keep the spelling of the document.
func (p *SweepParameter) UnmarshalJSON(b []byte) error {
	if firstByte(b) == '[' {
		values, err := axisValues("values", b)
		*p = SweepParameter{Values: values}
		return err
	}
	if firstByte(b) != '{' {
		return Errorf(Invalid, `%s is not a parameter: write a list such as [relu, gelu], or an object such as {"min": 1, "max": 8}`, Truncate(string(b)))
	}
	var plain struct {
		Values json.RawMessage `json:"values"`
		Min    float64         `json:"min"`
		Max    float64         `json:"max"`
		Step   float64         `json:"step"`
		Log    bool            `json:"log"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&plain); err != nil {
		return Errorf(Invalid, "parameter: %w", err)
	}
	*p = SweepParameter{Min: plain.Min, Max: plain.Max, Step: plain.Step, Log: plain.Log}
	if plain.Values == nil {
		return nil
	}
	var err error
	p.Values, err = axisValues("values", plain.Values)
	return err
}

// Count returns the number of values of p, 0 if it is continuous, and MaxAxisValues+1 if there are more than MaxAxisValues. p is valid.
func (p *SweepParameter) Count() int {
	if p.Values != nil {
		return len(p.Values)
	}
	if p.Step == 0 {
		return 0
	}
	return 1 + int(min(math.Floor((p.Max-p.Min)/p.Step+1e-9), MaxAxisValues))
}

// at returns the value at a position of one with Count() > 0.
func (p *SweepParameter) at(i int) string {
	if p.Values != nil {
		return p.Values[i]
	}
	return formatParameter(min(p.Min+float64(float64(i)*p.Step), p.Max), 12) // a product that is converted is not fused with the sum: the same on all processors
}

// draw returns the value for u, from 0 to 1 without 1.
func (p *SweepParameter) draw(u float64) string {
	switch n := p.Count(); {
	case n > 0:
		return p.at(min(int(u*float64(n)), n-1))
	case p.Log:
		// math.Exp and math.Log may differ in the last bit between processors, which 9 digits hide.
		return formatParameter(min(max(math.Exp(math.Log(p.Min)+float64(u*(math.Log(p.Max)-math.Log(p.Min)))), p.Min), p.Max), 9)
	default:
		return formatParameter(p.Min+float64(u*(p.Max-p.Min)), 12)
	}
}

// formatParameter writes whole numbers without exponent, and others rounded to digits, without the error of adding steps such as 0.1.
func formatParameter(f float64, digits int) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f+0, 'f', 0, 64) // no -0
	}
	return strconv.FormatFloat(f, 'g', digits, 64)
}

// grid returns the matrix of a SearchGrid, nil if a parameter has not 1 to MaxAxisValues values.
func (s *Sweep) grid() *Matrix {
	m := &Matrix{}
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		p := s.Parameters[name]
		n := 0
		if p.Check() == "" {
			n = p.Count()
		}
		if n == 0 || n > MaxAxisValues {
			return nil
		}
		axis := Axis{Name: name}
		for i := range n {
			axis.Values = append(axis.Values, p.at(i))
		}
		m.Axes = append(m.Axes, axis)
	}
	return m
}

// Check returns what is wrong with p, "" if nothing is.
func (p *SweepParameter) Check() string {
	switch {
	case p.Values != nil && (p.Min != 0 || p.Max != 0 || p.Step != 0 || p.Log):
		return "a list of values has no min, max, step or log: keep one of both"
	case p.Values != nil:
		return ""
	case !(p.Min < p.Max) || math.IsInf(p.Max-p.Min, 0):
		return fmt.Sprintf("max, %v, must be greater than min, %v", p.Max, p.Min)
	case !(p.Step >= 0) || p.Step > p.Max-p.Min:
		return fmt.Sprintf("step, %v, must be greater than 0, and at most the range of %v", p.Step, p.Max-p.Min)
	case p.Step > 0 && p.Count() > MaxAxisValues:
		return fmt.Sprintf("the steps are more than %d values: write a greater step, or none", MaxAxisValues)
	case p.Log && p.Step > 0:
		return "log has no step: list the values, such as [0.1, 0.01]"
	case p.Log && p.Min <= 0:
		return "log needs a min greater than 0"
	default:
		return ""
	}
}

// axes returns TrialAxis and the parameters' names, sorted.
func (s *Sweep) axes() []string {
	return append([]string{TrialAxis}, slices.Sorted(maps.Keys(s.Parameters))...)
}

// combination returns the values of axes of a trial.
func (s *Sweep) combination(trial int) []string {
	axes := s.axes()
	values := []string{strconv.Itoa(trial)}
	for _, name := range axes[1:] {
		p := s.Parameters[name]
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", s.Seed, trial, name))
		values = append(values, p.draw(float64(binary.BigEndian.Uint64(sum[:])>>11)/(1<<53)))
	}
	return values
}

// Trial returns the position of the element with this name, such as trial=3,lr=0.1.
func (s *Sweep) Trial(element string) (int, bool) {
	text, _, _ := strings.Cut(strings.TrimPrefix(element, TrialAxis+"="), ",")
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n < s.Trials
}

// Axes returns the names of the values of each element: the axes of a matrix, or TrialAxis and the parameters of a random search. It is nil
// for other stages.
func (t *TaskSpec) Axes() []string {
	switch {
	case t.Matrix != nil:
		names := make([]string, len(t.Matrix.Axes))
		for i, a := range t.Matrix.Axes {
			names[i] = a.Name
		}
		return names
	case t.Sweep != nil:
		return t.Sweep.axes()
	default:
		return nil
	}
}

// Combination returns the values of the Axes of the element at position i.
func (t *TaskSpec) Combination(i int) []string {
	switch {
	case t.Matrix != nil:
		return t.Matrix.At(int64(i))
	case t.Sweep != nil:
		return t.Sweep.combination(i)
	default:
		return nil
	}
}
