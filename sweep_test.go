package muster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Every value of a random search is in its range, and depends on nothing but the seed, the trial and the name.
func TestRandomTrials(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Float64Range(1e-9, 1e6).Draw(t, "min")
		p := SweepParameter{Min: low, Max: low + rapid.Float64Range(low, 1e9).Draw(t, "range"), Log: rapid.Bool().Draw(t, "log")}
		if !p.Log && rapid.Bool().Draw(t, "steps") {
			p.Step = (p.Max - p.Min) / float64(rapid.IntRange(1, 5000).Draw(t, "n"))
		}
		if problem := p.Check(); problem != "" {
			t.Fatal(problem)
		}
		s := Sweep{Search: SearchRandom, Trials: 20, Seed: rapid.Int().Draw(t, "seed"), Parameters: map[string]SweepParameter{"x": p, "act": {Values: []string{"relu", "gelu"}}}}
		more := Sweep{Search: SearchRandom, Trials: 30, Seed: s.Seed, Parameters: map[string]SweepParameter{"x": p, "a": {Max: 1}}}
		for i := range s.Trials {
			got, again := s.combination(i), more.combination(i)
			if got[0] != strconv.Itoa(i) || got[2] != again[2] {
				t.Fatalf("trial %d: %v and %v", i, got, again)
			}
			if !slices.Contains([]string{"relu", "gelu"}, got[1]) {
				t.Fatal(got)
			}
			x, err := strconv.ParseFloat(got[2], 64)
			if slack := 1e-8 * p.Max; err != nil || x < p.Min-slack || x > p.Max+slack {
				t.Fatalf("%v is not in %v", got[2], p)
			}
			if element := (&TaskSpec{Sweep: &s}).Element(i); !strings.HasPrefix(element, "trial="+strconv.Itoa(i)+",act=") {
				t.Fatal(element)
			} else if n, ok := s.Trial(element); !ok || n != i {
				t.Fatalf("%s is trial %d", element, n)
			}
		}
	})
}

// The values are those of every version: a rerun of an old job, and a worker of another version, have the same.
func TestTrialsKeepTheirValues(t *testing.T) {
	var s Sweep
	const text = `{"search": "random", "trials": 3, "seed": 7, "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": true}, "layers": {"min": 1, "max": 8, "step": 1}, "act": ["relu", "gelu"], "p": {"max": 1}}}`
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	task := TaskSpec{Sweep: &s}
	var got []string
	for i := range task.Size() {
		got = append(got, task.Element(i))
	}
	want := []string{
		"trial=0,act=gelu,layers=2,lr=0.000212985301,p=0.487747227857", "trial=1,act=gelu,layers=8,lr=0.0793036404,p=0.88125319366",
		"trial=2,act=relu,layers=3,lr=0.00044141968,p=0.402602675812",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	var seen [3]int // each third of a logarithmic range is drawn about as often
	many := Sweep{Search: SearchRandom, Trials: 3000, Parameters: map[string]SweepParameter{"x": {Min: 1, Max: 1000, Log: true}}}
	for i := range many.Trials {
		seen[min(len(strings.Split(many.combination(i)[1], ".")[0])-1, 2)]++
	}
	for _, n := range seen {
		if n < 850 || n > 1150 {
			t.Errorf("of 3000 values, %v have one, two and three digits", seen)
		}
	}
}

// A grid becomes a matrix, with the values as they were written.
func TestGridIsAMatrix(t *testing.T) {
	var task TaskSpec
	const text = `{"sweep": {"search": "grid", "parameters": {"lr": {"min": 0.1, "max": 0.35, "step": 0.1}, "act": ["relu", 1.0, true], "n": {"min": -1, "max": 1, "step": 1}}}}`
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		t.Fatal(err)
	}
	n := (&Spec{Tasks: []TaskSpec{task}}).Normalize().Tasks[0]
	want := []Axis{{"act", []string{"relu", "1.0", "true"}}, {"lr", []string{"0.1", "0.2", "0.3"}}, {"n", []string{"-1", "0", "1"}}}
	if n.Sweep != nil || n.Matrix == nil || fmt.Sprint(n.Matrix.Axes) != fmt.Sprint(want) {
		t.Errorf("%+v", n.Matrix)
	}
	if task.Sweep == nil {
		t.Error("Normalize changed its argument")
	}
}

func TestInvalidParameters(t *testing.T) {
	for _, text := range []string{`1`, `"x"`, `[null]`, `[[1]]`, `{"mim": 1}`, `{"min": "x"}`, `{"values": 1}`} {
		var p SweepParameter
		if err := json.Unmarshal([]byte(text), &p); err == nil {
			t.Errorf("%s is read as %+v", text, p)
		}
	}
}
