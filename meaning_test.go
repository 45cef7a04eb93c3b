package muster

import (
	"slices"
	"testing"
)

func TestEveryStateAndReasonHasAMeaning(t *testing.T) {
	seen := map[string]bool{}
	check := func(name, text string) {
		if text == "" || text[:1] == " " || text[len(text)-1] == '.' || seen[text] {
			t.Errorf("%s means %q", name, text)
		}
		seen[text] = true
	}
	for _, s := range TaskStates {
		check(s.String(), s.Meaning())
	}
	for _, s := range JobStates {
		check(string(s), s.Meaning())
	}
	for _, s := range []WorkerState{WorkerActive, WorkerPaused, WorkerDraining, WorkerUnreachable, WorkerGone} {
		check(string(s), s.Meaning())
	}
	clear(seen)
	for _, r := range Reasons {
		check(string(r), r.Meaning())
	}
	if unknown := []string{TaskState(0).Meaning(), JobState("x").Meaning(), WorkerState("x").Meaning(), Outcome("x").Meaning(), NoReason.Meaning()}; slices.ContainsFunc(unknown, func(s string) bool { return s != "" }) {
		t.Errorf("unknown values mean %q", unknown)
	}
}
