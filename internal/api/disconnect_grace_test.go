package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/client"
)

// A grace shorter than two heartbeat intervals, which are one second here, is rejected with its place, the minimum and a
// hint.
func TestGraceUnderTwoHeartbeatsIsRefused(t *testing.T) {
	c := apitest.Start(t, nil).Client(t)
	spec := func(grace time.Duration) *muster.Spec {
		return &muster.Spec{Name: "job", Tasks: []muster.TaskSpec{{Name: "a", Kind: muster.KindNoop, Disconnect: muster.Disconnect{Grace: muster.Duration(grace)}}}}
	}
	for grace, taken := range map[time.Duration]bool{time.Second: false, 1999 * time.Millisecond: false, 2 * time.Second: true, 0: true} {
		_, err := c.Submit(t.Context(), spec(grace), client.SubmitOptions{})
		_, planned := c.Plan(t.Context(), spec(grace))
		if taken != (err == nil) || taken != (planned == nil) {
			t.Errorf("with %s: %v, planned: %v", grace, err, planned)
		}
		if taken {
			continue
		}
		e, ok := errors.AsType[*muster.Error](err)
		if !ok || e.Code != muster.InvalidSpec || len(e.Fields) != 1 || !strings.HasSuffix(e.Fields[0].Path, "disconnect.grace") ||
			!strings.Contains(e.Fields[0].Message, "is shorter than 2s, 2 times the server's heartbeat interval of 1s") ||
			e.Fields[0].Hint != "use at least 2s, or start the server with a shorter --heartbeat" {
			t.Errorf("wrong error: %+v", err)
		}
	}
}
