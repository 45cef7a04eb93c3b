package muster

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestMatrixPreservesOrderAndSpelling(t *testing.T) {
	var m Matrix
	if err := json.Unmarshal([]byte(`{"lr": [0.10, 1e-3, "x"], "seed": "1-3", "amp": [true]}`), &m); err != nil {
		t.Fatal(err)
	}
	want := Matrix{Axes: []Axis{
		{Name: "lr", Values: []string{"0.10", "1e-3", "x"}},
		{Name: "seed", Values: []string{"1", "2", "3"}},
		{Name: "amp", Values: []string{"true"}},
	}}
	if d := cmp.Diff(want, m); d != "" {
		t.Error(d)
	}
	if m.Len() != 9 {
		t.Errorf("Len() = %d", m.Len())
	}
	if d := cmp.Diff([]string{"1e-3", "2", "true"}, m.At(4)); d != "" {
		t.Errorf("the first axis does not vary slowest: %s", d)
	}
}

func TestMatrixErrors(t *testing.T) {
	for in, want := range map[string]string{
		`[]`:                    "not a matrix",
		`{"lr": 1}`:             "neither a list",
		`{"lr": {}}`:            "neither a list",
		`{"lr": "${a.result}"}`: "only an array can be a reference",
		`{"lr": [[1]]}`:         "[1] is not a value",
		`{"lr": [null]}`:        "null is not a value",
		`{"lr": "abc"}`:         `["abc"]`,
		`{"lr": "0-99999"}`:     "use array instead",
		`{"lr": [1], "lr":[2]}`: "twice",
		`{"lr": [` + strings.Repeat("1,", MaxAxisValues) + `1]}`: "the maximum is 10000",
	} {
		var m Matrix
		if err := m.UnmarshalJSON([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s gives %v, want an error with %q", in, err, want)
		}
	}
}

func TestMatrixLenSaturates(t *testing.T) {
	axis := Axis{Values: make([]string, MaxAxisValues)}
	m := Matrix{Axes: []Axis{axis, axis, axis, axis, axis, axis}}
	if m.Len() != math.MaxInt64 {
		t.Errorf("Len() = %d", m.Len())
	}
}

// genMatrix draws valid matrices.
var genMatrix = rapid.Custom(func(t *rapid.T) *Matrix {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z_][a-z0-9_]{0,8}`), 1, 4, rapid.ID).Draw(t, "axes")
	m := &Matrix{}
	for _, name := range names {
		values := rapid.SliceOfNDistinct(rapid.StringMatching(`[ -~é]{0,6}`), 1, 5, rapid.ID).Draw(t, name)
		m.Axes = append(m.Axes, Axis{Name: name, Values: values})
	}
	return m
})

func TestMatrixSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genMatrix.Draw(t, "matrix")
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var again Matrix
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(*m, again); d != "" {
			t.Fatal(d)
		}
	})
}

func TestMatrixCombinationsAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genMatrix.Draw(t, "matrix")
		seen := make(map[string]bool)
		for i := range m.Len() {
			key := strings.Join(m.At(i), "\x00")
			if seen[key] {
				t.Fatalf("combination %q occurs twice", key)
			}
			seen[key] = true
		}
		want := 1
		for _, a := range m.Axes {
			want *= len(a.Values)
		}
		if len(seen) != want {
			t.Fatalf("%d combinations, want %d", len(seen), want)
		}
	})
}

func FuzzMatrix(f *testing.F) {
	for _, s := range []string{`{"lr":[0.1,0.01],"seed":"1-3"}`, `{"a":["x"]}`, `{}`, `{"a":[1],"a":[2]}`, `{"a":[ 1e9 , true]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Matrix
		if json.Unmarshal(b, &m) != nil {
			return
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("%q was accepted, but cannot be encoded: %v", b, err)
		}
		var again Matrix
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatalf("%q was encoded as %s, which is rejected: %v", b, out, err)
		}
		if d := cmp.Diff(m, again); d != "" {
			t.Fatalf("%q: %s", b, d)
		}
	})
}
