//go:build unix

package attack

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/mustertest"
)

const schedulesOfVision = "/api/v1/projects/vision/schedules"

// schedule creates a schedule of the project vision that runs once a year, and returns the status and the answer.
func (e *env) schedule(token string, spec *muster.Spec) (status int, answer string) {
	e.t.Helper()
	body, err := json.Marshal(wire.NewSchedule{Name: "nightly", Cron: "0 0 1 1 *", Spec: *spec})
	if err != nil {
		e.t.Fatal(err)
	}
	r := e.request(http.MethodPost, schedulesOfVision, token, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	rec := e.do(r)
	return rec.Code, rec.Body.String()
}

// TestAScheduleEndsWithTheKeyOfItsOwner checks that a schedule submits no job after the key that created it was revoked, also if someone else, who
// may, starts a run.
func TestAScheduleEndsWithTheKeyOfItsOwner(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	owner := e.key(string(auth.Submitter), "vision", 0)
	if code, answer := e.schedule(owner.Secret, signedSpec(nil)); code != http.StatusCreated {
		t.Fatalf("create: %d %s", code, answer)
	}
	run := func() int {
		return e.do(e.request(http.MethodPost, schedulesOfVision+"/nightly/run", mustertest.AdminToken, nil)).Code
	}
	if code := run(); code != http.StatusCreated {
		t.Fatalf("run: %d", code)
	}
	e.revoke(owner.Key.ID)
	if code := run(); code != http.StatusForbidden {
		t.Errorf("a run after the key was revoked: %d", code)
	}
	var v wire.Schedule
	rec := e.do(e.request(http.MethodGet, schedulesOfVision+"/nightly", mustertest.AdminToken, nil))
	if err := json.Unmarshal(rec.Body.Bytes(), &v); err != nil || len(v.Runs) != 1 || !strings.Contains(v.Problem, "was revoked") {
		t.Errorf("the schedule: %v %s", err, rec.Body)
	}
}

// TestAScheduleHasNoSignedJob checks that a signed spec, which one job may have, is not stored for many.
func TestAScheduleHasNoSignedJob(t *testing.T) {
	t.Parallel()
	e, o := newEnv(t), newOwner(t)
	spec := signedSpec(nil)
	spec.Signature = o.sign(spec, time.Now())
	if code, answer := e.schedule(mustertest.AdminToken, spec); code != http.StatusUnprocessableEntity || !strings.Contains(answer, "cannot be signed") {
		t.Errorf("created: %d %s", code, answer)
	}
}
