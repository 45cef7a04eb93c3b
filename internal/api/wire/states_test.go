package wire_test

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// TestStatesRoundTrip checks that decoding returns the encoded states, for both forms.
func TestStatesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var states []muster.TaskState
		for range rapid.IntRange(0, 200).Draw(t, "runs") {
			state := rapid.SampledFrom(muster.TaskStates).Draw(t, "state")
			for range rapid.OneOf(rapid.Just(1), rapid.IntRange(1, 50)).Draw(t, "length") {
				states = append(states, state)
			}
		}
		s := wire.StageStates{From: rapid.IntRange(0, 9).Draw(t, "from"), Length: len(states)}
		s.Runs, s.Packed = wire.EncodeStates(states)
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var read wire.StageStates
		if err := json.Unmarshal(b, &read); err != nil {
			t.Fatal(err)
		}
		var got []muster.TaskState
		read.ForEach(func(num int, state muster.TaskState) {
			if num != s.From+len(got) {
				t.Fatalf("task %d comes after %d others", num, len(got))
			}
			got = append(got, state)
		})
		if !slices.Equal(got, states) {
			t.Fatalf("%v is read as %v", states, got)
		}
	})
}

// TestStatesAreCompact checks that a million tasks take less than a megabyte in any order of states.
func TestStatesAreCompact(t *testing.T) {
	for name, state := range map[string]func(int) muster.TaskState{
		"alike":       func(int) muster.TaskState { return muster.Succeeded },
		"alternating": func(i int) muster.TaskState { return muster.TaskStates[i%10] },
		"one in ten":  func(i int) muster.TaskState { return muster.Failed - muster.TaskState(min(i%10, 1)) },
	} {
		states := make([]muster.TaskState, 1_000_000)
		for i := range states {
			states[i] = state(i)
		}
		s := wire.StageStates{Length: len(states)}
		s.Runs, s.Packed = wire.EncodeStates(states)
		b, err := json.Marshal(s)
		if err != nil || len(b) > 1_000_000 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}
