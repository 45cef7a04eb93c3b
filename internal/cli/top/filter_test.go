package top

import (
	"fmt"
	"testing"
)

func TestTaskFilters(t *testing.T) {
	for text, want := range map[string]string{
		"failed": "[failed] []", "fail, run": "[failed running] []", "active 0-99": "[waiting queued assigned running cancelling] [{0 99}]",
		"7": "[] [{7 7}]", "": "[] []",
	} {
		f, err := parseTaskFilter(text, true)
		if got := fmt.Sprintf("%v %v", f.states, f.spans); err != nil || got != want {
			t.Errorf("%q is %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "9-1", "failed -"} {
		if f, err := parseTaskFilter(text, true); err == nil {
			t.Errorf("%q is %v, want an error", text, f)
		}
	}
	if _, err := parseTaskFilter("7", false); err == nil {
		t.Error("a number is a filter of the tasks of all jobs")
	}
}
