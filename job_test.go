package muster_test

import (
	"testing"

	"github.com/muster-dev/muster"
)

func TestStageState(t *testing.T) {
	for want, c := range map[string]muster.Counts{
		"skipped":   {muster.Skipped: 3},
		"succeeded": {muster.Skipped: 1, muster.Succeeded: 1},
		"running":   {muster.Skipped: 1, muster.Queued: 1},
		"waiting":   {muster.Waiting: 2},
	} {
		if got := c.StageState(); got != want {
			t.Errorf("%v is %s, want %s", c, got, want)
		}
	}
}
