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
	inWorld(t, func(w *world) {
		t := w.t
		for _, step := range []struct{ source, why, want string }{
			{"memory", "memory is at 95%", "memory is at 95%"},
			{"hours", "it works from 20:00", "it works from 20:00; memory is at 95%"},
			{"memory", "", "it works from 20:00"},
			{"hours", "", ""},
		} {
			w.desk.forgetFrames()
			w.agent.Constrain(step.source, step.why)
			h := w.desk.heard()
			if h.Ready == nil || h.Ready.Constrained != step.want {
				t.Errorf("after %q by %s it says %+v, want %q", step.why, step.source, h.Ready, step.want)
			}
			w.assign(0)
			if h := w.desk.heard(); (len(h.Rejected) == 1) != (step.want != "") {
				t.Errorf("constrained by %q it rejects %v", step.want, h.Rejected)
			}
		}
		w.agent.Constrain("cpu", "busy")
		w.desk.away(true)
		w.desk.forgetFrames()
		w.desk.away(false)
		time.Sleep(time.Minute)
		if h := w.desk.heard(); h.Ready == nil || h.Ready.Constrained != "busy" {
			t.Errorf("in a new session it says %+v", h.Ready)
		}
	})
}

func TestOffer(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		w.run(0)
		w.run(1)
		w.agent.cfg.Allow, w.agent.cfg.OwnKinds = &muster.Allow{Env: []string{}}, json.RawMessage(`[{"name":"resize"}]`)
		w.agent.cfg.Lacks, w.agent.cfg.Projects = []string{muster.FeatureURL, muster.FeatureLogs}, []string{"red"}
		small := muster.Resources{Slots: 1, MaxTasks: 3, GPUs: []muster.GPU{{UUID: "g0", Memory: 100, Quarantined: "it has not given its memory back"}}}
		w.agent.Offer([]string{"gpu"}, []string{"process", "container"}, small)
		h := w.desk.heard()
		want := &link.Offer{
			Tags: []string{"gpu"}, Kinds: []string{"process"}, Resources: small, OwnKinds: w.agent.cfg.OwnKinds, Allow: w.agent.cfg.Allow,
			Lacks: w.agent.cfg.Lacks, Projects: w.agent.cfg.Projects,
		}
		if d := cmp.Diff(want, h.Offer); d != "" {
			t.Errorf("offered: %s", d)
		}
		w.assign(2)
		w.desk.say(&link.ToWorker{
			Specs:  []link.GroupSpec{{Ref: 9, UID: "j1", Name: "g", Spec: muster.TaskSpec{Kind: "process"}}},
			Assign: []link.Assign{{Attempt: attemptID(8), Ref: 9, Grant: muster.Grant{GPUs: []string{"g0"}}}},
		})
		if h := w.desk.heard(); len(h.Rejected) != 2 {
			t.Errorf("rejected %v, want the second slot and the GPU in quarantine", h.Rejected)
		}
		w.desk.away(true)
		w.desk.away(false)
		time.Sleep(time.Minute)
		hello := w.desk.hello(1)
		got := &link.Offer{
			Tags: hello.Tags, Kinds: hello.Kinds, Resources: hello.Resources, OwnKinds: hello.OwnKinds, Allow: hello.Allow, Lacks: hello.Lacks, Projects: hello.Projects,
		}
		if cmp.Diff(want, got) != "" {
			t.Errorf("the next hello offers %+v", hello)
		}
	})
}

func TestRunningAndFreeze(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0, func(s *muster.TaskSpec) { s.Checkpoint = &muster.Checkpoint{} })
		list := w.agent.Running()
		if len(list) != 1 || list[0].Attempt != s.id || !list[0].Checkpoint || list[0].Pid.PID == 0 || list[0].Grant.Slots != 1 {
			t.Errorf("running: %+v", list)
		}
		for _, on := range []bool{true, false} {
			if err := w.agent.Freeze(s.id, on); err != nil || w.shelf.frozen[s.id] != on {
				t.Errorf("freeze %t: %v", on, err)
			}
		}
		if err := w.agent.Freeze(attemptID(7), true); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("freezing what does not run: %v", err)
		}
		s.finish()
		if list := w.agent.Running(); len(list) != 0 {
			t.Errorf("running after the end: %+v", list)
		}
	})
}

// The server learns of what a task shows in every session: nobody knows which words of the last one came.
func TestProgressIsSentAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		s := w.run(0)
		half, shows := 0.5, []muster.Artifact{{Name: "live/a.png", Size: 1, SHA256: strings.Repeat("1", 64)}}
		s.sink.Progress(muster.Progress{Artifacts: shows})
		s.sink.Progress(muster.Progress{Progress: &half})
		time.Sleep(time.Second)
		if h := w.desk.heard(); len(h.Progress) != 1 || !slices.Equal(h.Progress[0].Artifacts, shows) || *h.Progress[0].Progress != half {
			t.Errorf("said %+v", h.Progress)
		}
		w.desk.away(true)
		w.desk.forgetFrames()
		w.desk.away(false)
		time.Sleep(time.Minute)
		if h := w.desk.heard(); len(h.Progress) != 1 || !slices.Equal(h.Progress[0].Artifacts, shows) || h.Progress[0].Progress == nil || *h.Progress[0].Progress != half {
			t.Errorf("the next session says %+v", h.Progress)
		}
	})
}

// The server learns of the last checkpoint, in every session, and before the
// report that it belongs to.
func TestSaved(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
		s := w.run(0)
		w.agent.Saved(s.id, one)
		w.agent.Saved(s.id, one)
		w.agent.Saved(attemptID(5), one)
		time.Sleep(time.Second)
		if h := w.desk.heard(); len(h.Saved) != 1 || h.Saved[0] != (link.Saved{Attempt: s.id, SHA256: one}) {
			t.Errorf("saved %v", h.Saved)
		}
		w.desk.away(true)
		w.agent.Saved(s.id, two)
		w.desk.forgetFrames()
		w.desk.away(false)
		time.Sleep(time.Minute)
		if h := w.desk.heard(); len(h.Saved) != 1 || h.Saved[0].SHA256 != two {
			t.Errorf("the next session says %v", h.Saved)
		}
		w.desk.forgetFrames()
		w.agent.Saved(s.id, one)
		w.agent.Preempt(s.id, "make room")
		time.Sleep(time.Second)
		if h := w.desk.heard(); len(h.Saved) != 1 || h.Saved[0].SHA256 != one || len(h.Finished) != 1 || h.Finished[0].Message != "make room" {
			t.Errorf("at its end it says %v and %v", h.Saved, h.Finished)
		}
	})
}

func TestHealIsPassedOn(t *testing.T) {
	healed := make(chan []string, 1)
	inWorld(t, func(w *world) {
		if err := w.end(); err != nil {
			w.t.Fatal(err)
		}
		w.cfg.Heal = func(uuids []string) { healed <- uuids }
		w.start()
		w.desk.say(&link.ToWorker{Heal: []string{link.HealAll}})
		time.Sleep(time.Second)
	})
	if got := <-healed; cmp.Diff([]string{link.HealAll}, got) != "" {
		t.Errorf("healed %v", got)
	}
}

// A shutdown moves what has a checkpoint at once; the others have the grace.
func TestShutdownPreemptsCheckpoints(t *testing.T) {
	inWorld(t, func(w *world) {
		t := w.t
		saves, usual := w.run(0, func(s *muster.TaskSpec) { s.Checkpoint = &muster.Checkpoint{} }), w.run(1)
		w.stop()
		time.Sleep(time.Second)
		h := w.desk.heard()
		if len(h.Finished) != 1 || h.Finished[0].Attempt != saves.id || h.Finished[0].Reason != muster.Preempted || usual.ctx.Err() != nil {
			t.Errorf("reported %+v; the other one: %v", h.Finished, usual.ctx.Err())
		}
	})
}
