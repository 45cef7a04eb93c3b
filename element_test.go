package muster

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func task(t *testing.T, spec string) *TaskSpec {
	t.Helper()
	var task TaskSpec
	if err := json.Unmarshal([]byte(spec), &task); err != nil {
		t.Fatal(err)
	}
	return &task
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		spec    string
		size    int
		at      int
		index   int
		element string
		values  map[string]string
	}{
		{`{}`, 1, 0, 0, "", map[string]string{"index": "0"}},
		{`{"array": "5-9"}`, 5, 2, 7, "7", map[string]string{"index": "7"}},
		{`{"array": "0-9999999"}`, 10_000_000, 9_999_999, 9_999_999, "9999999", map[string]string{"index": "9999999"}},
		{`{"matrix": {"lr": [0.1, 0.01], "seed": "1-3"}}`, 6, 4, 4, "lr=0.01,seed=2",
			map[string]string{"index": "4", "matrix.lr": "0.01", "matrix.seed": "2"}},
		{`{"gang": 4}`, 4, 3, 3, "3", map[string]string{"index": "3"}},
		{`{"gang": {"size": 1}}`, 1, 0, 0, "0", map[string]string{"index": "0"}},
	} {
		s := task(t, c.spec)
		if s.HasElements() != (c.element != "") {
			t.Errorf("%s has elements: %t", c.spec, s.HasElements())
		}
		if s.Size() != c.size || s.Index(c.at) != c.index || s.Element(c.at) != c.element {
			t.Errorf("%s: size %d, index %d, element %q", c.spec, s.Size(), s.Index(c.at), s.Element(c.at))
		}
		if d := cmp.Diff(c.values, s.Values(c.at)); d != "" {
			t.Errorf("%s: %s", c.spec, d)
		}
		if pos, ok := s.Position(c.index); !ok || pos != c.at {
			t.Errorf("%s: Position(%d) = %d, %v", c.spec, c.index, pos, ok)
		}
		if _, ok := s.Position(c.size + 100); ok {
			t.Errorf("%s: has an element %d", c.spec, c.size+100)
		}
	}
}

func TestElementsOfLargeArraysAllocateNothing(t *testing.T) {
	s := task(t, `{"array": "0-9999999"}`)
	if n := testing.AllocsPerRun(100, func() { _ = s.Size(); _, _ = s.Position(s.Index(5_000_000)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
