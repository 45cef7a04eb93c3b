package agent

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// What a worker refuses is answered, counted and logged once for each reason.
func TestRefusedAssignments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		var mu sync.Mutex
		counts := map[string]int{}
		e.cfg.OnRefused = func(reason string) {
			mu.Lock()
			defer mu.Unlock()
			counts[reason]++
		}
		e.cfg.Projects = []string{"", "ours"}
		e.cfg.Allow = &muster.Allow{Env: []string{"SEED", "token"}}
		e.cfg.Lacks = []string{muster.FeatureExec}
		e.start()
		e.assign(0, func(s *muster.TaskSpec) { s.Env = map[string]string{"PATH": "/x"} })
		e.assign(1, func(s *muster.TaskSpec) { s.Kind = "mining" })
		e.assign(2, func(s *muster.TaskSpec) { s.Secrets = []muster.Secret{{Name: "token"}} }) // not sent with it
		e.agent.EnableKind("process", false)
		e.assign(3)
		e.agent.EnableKind("process", true)
		other := muster.TaskSpec{Kind: "process"}
		e.server.send(&link.ToWorker{
			Specs: []link.GroupSpec{{Ref: 10, UID: "j1", Name: "g", Spec: other, Project: "theirs"}, {Ref: 11, UID: "j1", Name: "g", Spec: other, Project: "ours"}},
			Assign: []link.Assign{
				{Attempt: attemptID(4), Ref: 10, Grant: muster.Grant{Slots: 1}},
				{Attempt: attemptID(5), Ref: 11, Grant: muster.Grant{Slots: 5}},
				{Attempt: attemptID(6), Ref: 11, Grant: muster.Grant{Slots: 1, GPUs: []string{"g7"}}},
				{Attempt: attemptID(7), Ref: 12, Grant: muster.Grant{Slots: 1}},
			},
		})
		synctest.Wait()
		h := e.server.received()
		if len(h.Accepted) != 0 || len(e.executor.started) != 0 {
			t.Errorf("accepted %v, began %d", h.Accepted, len(e.executor.started))
		}
		var why []string
		for _, r := range h.Rejected {
			why = append(why, r.Message)
		}
		want := []string{
			"its owner does not allow tasks to set the variable PATH",
			"does not run tasks of kind mining",
			"does not have the secret token",
			"does not offer kind process at present",
			`takes no tasks of project "theirs"`,
			"no free slot",
			"has no GPU g7",
			"a stage spec that this session never received",
		}
		if len(why) != len(want) {
			t.Fatalf("rejected %q, want %q", why, want)
		}
		for i := range want {
			if !strings.Contains(why[i], want[i]) {
				t.Errorf("rejected with %q, want %q", why[i], want[i])
			}
		}
		mu.Lock()
		if d := cmp.Diff(map[string]int{RefusedAllow: 1, RefusedKind: 2, RefusedSpec: 2, RefusedProject: 1, RefusedResources: 2}, counts); d != "" {
			t.Errorf("counted: %s", d)
		}
		mu.Unlock()
		e.run(20).finish() // it works on
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}

// Specs whose numbers have gaps do not fill the memory.
func TestSpecsWithGapsAreForgotten(t *testing.T) {
	s := &session{agent: New(newEnv(t).cfg), specs: map[int]*link.GroupSpec{}}
	for i := range 3 * link.MaxGroupSpecs {
		s.handle(t.Context(), &link.ToWorker{Specs: []link.GroupSpec{{Ref: 1 + i*2*link.MaxGroupSpecs}}})
	}
	if len(s.specs) > link.MaxGroupSpecs {
		t.Errorf("the session has %d specs", len(s.specs))
	}
}
