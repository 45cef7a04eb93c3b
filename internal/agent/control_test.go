package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

func TestConstrain(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		for _, step := range []struct{ source, why, want string }{
			{"memory", "memory is at 95%", "memory is at 95%"},
			{"hours", "it works from 20:00", "it works from 20:00; memory is at 95%"},
			{"memory", "", "it works from 20:00"},
			{"hours", "", ""},
		} {
			e.server.forgetFrames()
			e.agent.Constrain(step.source, step.why)
			h := e.server.received()
			if h.Ready == nil || h.Ready.Constrained != step.want {
				t.Errorf("after %q by %s Ready is %+v, want %q", step.why, step.source, h.Ready, step.want)
			}
			e.assign(0)
			if h := e.server.received(); (len(h.Rejected) == 1) != (step.want != "") {
				t.Errorf("constrained by %q it rejects %v", step.want, h.Rejected)
			}
		}
		e.agent.Constrain("cpu", "busy")
		e.server.setDown(true)
		e.server.forgetFrames()
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if h := e.server.received(); h.Ready == nil || h.Ready.Constrained != "busy" {
			t.Errorf("in a new session: %+v", h.Ready)
		}
	})
}

func TestOffer(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.run(0)
		e.run(1)
		want := &muster.Offer{
			Tags: []string{"gpu"}, Kinds: []string{"noop", "process"}, OwnKinds: json.RawMessage(`[{"name":"resize"}]`), Allow: &muster.Allow{Env: []string{}},
			Lacks: []string{muster.FeatureURL, muster.FeatureLogs}, Projects: []string{"red"},
		}
		e.agent.table.offer = *want
		e.agent.cfg.Allow = want.Allow
		small := muster.Resources{Slots: 1, MaxTasks: 3, GPUs: []muster.GPU{{UUID: "g0", Memory: 100, Quarantined: "it has not given its memory back"}}}
		want.Resources = small
		e.agent.SetMachine([]string{"gpu"}, small)
		h := e.server.received()
		if d := cmp.Diff(want, h.Offer); d != "" {
			t.Errorf("offered: %s", d)
		}
		e.assign(2)
		e.server.send(&link.ToWorker{
			Specs:  []link.GroupSpec{{Ref: 9, UID: "j1", Name: "g", Spec: muster.TaskSpec{Kind: "process"}}},
			Assign: []link.Assign{{Attempt: attemptID(8), Ref: 9, Grant: muster.Grant{GPUs: []string{"g0"}}}},
		})
		if h := e.server.received(); len(h.Rejected) != 2 {
			t.Errorf("rejected %v, want the second slot and the quarantined GPU", h.Rejected)
		}
		e.server.setDown(true)
		e.server.setDown(false)
		time.Sleep(time.Minute)
		hello := e.server.hello(1)
		got := &muster.Offer{
			Tags: hello.Tags, Kinds: hello.Kinds, Resources: hello.Resources, OwnKinds: hello.OwnKinds, Allow: hello.Allow, Lacks: hello.Lacks, Projects: hello.Projects,
		}
		if cmp.Diff(want, got) != "" {
			t.Errorf("the next hello offers %+v", hello)
		}
	})
}

// TestOfferedKinds checks that a kind is offered while it is enabled, whatever else changes, and that withheld devices are quarantined.
func TestOfferedKinds(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		for _, enabled := range []bool{false, true, false} {
			e.agent.EnableKind("process", enabled)
			e.agent.Withhold("owner", map[string]string{"g1": "in use by its owner"})
			e.agent.SetMachine([]string{"linux"}, muster.Resources{GPUs: []muster.GPU{{UUID: "g0"}, {UUID: "g1"}}})
			o := e.server.received().Offer
			if slices.Contains(o.Kinds, "process") != enabled || !slices.Contains(o.Kinds, "noop") {
				t.Errorf("offered are %q", o.Kinds)
			}
			if d := o.Resources.GPUs; d[0].Quarantined != "" || d[1].Quarantined != "in use by its owner" || e.agent.Devices()[1].Quarantined != "" {
				t.Errorf("offered are %+v", d)
			}
		}
	})
}

func TestRunningAndFreeze(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0, func(s *muster.TaskSpec) { s.Checkpoint = &muster.Checkpoint{} })
		list := e.agent.Running()
		if len(list) != 1 || list[0].Attempt != s.id || !list[0].Checkpoint || list[0].Pid.PID == 0 || list[0].Grant.Slots != 1 {
			t.Errorf("running: %+v", list)
		}
		for _, on := range []bool{true, false} {
			if err := e.agent.Freeze(s.id, on); err != nil || e.supervisor.frozen[s.id] != on {
				t.Errorf("freeze %t: %v", on, err)
			}
		}
		if err := e.agent.Freeze(attemptID(7), true); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("freezing an attempt that does not run: %v", err)
		}
		s.finish()
		if list := e.agent.Running(); len(list) != 0 {
			t.Errorf("running after the end: %+v", list)
		}
	})
}

// The progress of a task is sent in every session: the worker does not know which messages of the last one arrived.
func TestProgressIsSentAgain(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		half, resent := 0.5, []muster.Artifact{{Name: "live/a.png", Size: 1, SHA256: strings.Repeat("1", 64)}}
		s.reporter.Progress(muster.Progress{Artifacts: resent})
		s.reporter.Progress(muster.Progress{Progress: &half})
		time.Sleep(time.Second)
		if h := e.server.received(); len(h.Progress) != 1 || !slices.Equal(h.Progress[0].Artifacts, resent) || *h.Progress[0].Progress != half {
			t.Errorf("got %+v", h.Progress)
		}
		e.server.setDown(true)
		e.server.forgetFrames()
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if h := e.server.received(); len(h.Progress) != 1 || !slices.Equal(h.Progress[0].Artifacts, resent) || h.Progress[0].Progress == nil || *h.Progress[0].Progress != half {
			t.Errorf("the next session reports %+v", h.Progress)
		}
	})
}

// The last checkpoint is sent in every session, and before the attempt's report.
func TestSaved(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
		s := e.run(0)
		e.agent.CheckpointSaved(s.id, one)
		e.agent.CheckpointSaved(s.id, one)
		e.agent.CheckpointSaved(attemptID(5), one)
		time.Sleep(time.Second)
		if h := e.server.received(); len(h.Saved) != 1 || h.Saved[0] != (link.Saved{Attempt: s.id, SHA256: one}) {
			t.Errorf("saved %v", h.Saved)
		}
		e.server.setDown(true)
		e.agent.CheckpointSaved(s.id, two)
		e.server.forgetFrames()
		e.server.setDown(false)
		time.Sleep(time.Minute)
		if h := e.server.received(); len(h.Saved) != 1 || h.Saved[0].SHA256 != two {
			t.Errorf("the next session reports %v", h.Saved)
		}
		e.server.forgetFrames()
		e.agent.CheckpointSaved(s.id, one)
		e.agent.Preempt(s.id, "make room")
		time.Sleep(time.Second)
		if h := e.server.received(); len(h.Saved) != 1 || h.Saved[0].SHA256 != one || len(h.Finished) != 1 || h.Finished[0].Message != "make room" {
			t.Errorf("at its end it says %v and %v", h.Saved, h.Finished)
		}
	})
}

func TestHealIsForwarded(t *testing.T) {
	healed := make(chan []string, 1)
	inEnv(t, func(e *env) {
		if err := e.end(); err != nil {
			e.t.Fatal(err)
		}
		e.cfg.OnHeal = func(uuids []string) { healed <- uuids }
		e.start()
		e.server.send(&link.ToWorker{Heal: []string{link.HealAll}})
		time.Sleep(time.Second)
	})
	if got := <-healed; cmp.Diff([]string{link.HealAll}, got) != "" {
		t.Errorf("healed %v", got)
	}
}

// A shutdown preempts tasks with a checkpoint at once; the others have the grace period.
func TestShutdownPreemptsCheckpoints(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		saves, usual := e.run(0, func(s *muster.TaskSpec) { s.Checkpoint = &muster.Checkpoint{} }), e.run(1)
		e.stop()
		time.Sleep(time.Second)
		h := e.server.received()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != saves.id || h.Finished[0].Reason != muster.Preempted || usual.ctx.Err() != nil {
			t.Errorf("reported %+v; the other one: %v", h.Finished, usual.ctx.Err())
		}
	})
}
