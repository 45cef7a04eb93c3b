package link

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
)

// drain takes all waiting frames.
func drain(o *Outbox) (frames []*ToWorker, err error) {
	for {
		f, err := o.tryNext()
		if f == nil || err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
}

func TestOutboxKeepsEveryWordInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outbox := NewOutbox(1 << 20)
		var posted, taken ToWorker
		add := func(to, f *ToWorker) {
			to.Specs = append(to.Specs, f.Specs...)
			to.Assign = append(to.Assign, f.Assign...)
			to.Cancel = append(to.Cancel, f.Cancel...)
			to.FinishedAck = append(to.FinishedAck, f.FinishedAck...)
			to.LogAck = append(to.LogAck, f.LogAck...)
			to.Heal = append(to.Heal, f.Heal...)
			to.Exec = append(to.Exec, f.Exec...)
		}
		for range rapid.IntRange(0, 30).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "take") {
				if f, err := outbox.tryNext(); err != nil {
					rt.Fatal(err)
				} else if f != nil {
					add(&taken, f)
				}
				continue
			}
			f := genToWorker(rt)
			f.Goodbye = nil
			outbox.Post(f)
			add(&posted, f)
		}
		frames, err := drain(outbox)
		if err != nil || outbox.waiting != 0 {
			rt.Fatalf("%d messages wait in an empty outbox: %v", outbox.waiting, err)
		}
		for _, f := range frames {
			add(&taken, f)
		}
		if diff := cmp.Diff(posted, taken); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestOutboxMergesWhatWaits(t *testing.T) {
	outbox := NewOutbox(1000)
	for i := range 100 {
		outbox.Post(&ToWorker{Assign: []Assign{{Attempt: attempt(i), Ref: 1}}})
		outbox.Post(&ToWorker{FinishedAck: []muster.AttemptID{attempt(i)}})
	}
	frames, err := drain(outbox)
	if err != nil || len(frames) != 1 || len(frames[0].Assign) != 100 || len(frames[0].FinishedAck) != 100 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
}

func TestOutboxDoesNotOvertakeADrain(t *testing.T) {
	down := NewOutbox(1000)
	down.Post(&ToWorker{Drain: true})
	down.Post(assigns(1))
	if frames, _ := drain(down); len(frames) != 2 || !frames[0].Drain || frames[1].Drain {
		t.Errorf("an assignment overtook an older drain: %d frames", len(frames))
	}
}

func TestOutboxEndsAfterAGoodbye(t *testing.T) {
	outbox := NewOutbox(1000)
	outbox.Post(assigns(1))
	outbox.Post(&ToWorker{Goodbye: &Goodbye{}})
	outbox.Post(assigns(1))
	frames, err := drain(outbox)
	if !errors.Is(err, io.EOF) || len(frames) != 1 || len(frames[0].Assign) != 1 || frames[0].Goodbye == nil {
		t.Errorf("%d frames, then %v", len(frames), err)
	}
	if _, err := outbox.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the goodbye: %v", err)
	}
}

func TestOutboxFailsWhenNobodyTakes(t *testing.T) {
	outbox := NewOutbox(100)
	for range 101 {
		outbox.Post(assigns(1))
	}
	if _, err := outbox.Next(t.Context()); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("%v", err)
	}
}

func TestWorkersFramesAreCutToTheLimits(t *testing.T) {
	result := json.RawMessage(`"` + strings.Repeat("r", muster.MaxResultSize-2) + `"`)
	posted := ToServer{Renew: &Renew{}, Goodbye: &Goodbye{Message: "bye"}}
	for i := range 100 {
		r := finisheds(1).Finished[0]
		r.Attempt, r.Result = attempt(i), result
		posted.Finished = append(posted.Finished, r)
		posted.Saved = append(posted.Saved, Saved{Attempt: attempt(i), SHA256: strings.Repeat("0a", 32)})
		posted.Logs = append(posted.Logs, LogChunk{Attempt: attempt(i), Data: make([]byte, 100<<10)})
	}
	codec := WorkerCodec{sent: 1}
	var finished []muster.Report
	var logs []LogChunk
	var saved []Saved
	whole := posted
	for f, n := &whole, 0; f != nil; n++ {
		rest := f.splitOverflow()
		if _, err := codec.Encode(f); err != nil {
			t.Fatalf("frame %d cannot be encoded: %v", n, err)
		}
		finished = append(finished, f.Finished...)
		logs = append(logs, f.Logs...)
		saved = append(saved, f.Saved...)
		if last := rest == nil; (f.Goodbye != nil) != last || (f.Renew != nil) != last {
			t.Errorf("frame %d: goodbye %v, renew %v", n, f.Goodbye, f.Renew)
		}
		f = rest
	}
	if !slices.EqualFunc(finished, posted.Finished, func(a, b muster.Report) bool { return a.Attempt == b.Attempt }) {
		t.Error("reports were lost or reordered")
	}
	if !slices.EqualFunc(logs, posted.Logs, func(a, b LogChunk) bool { return a.Attempt == b.Attempt }) {
		t.Error("logs were lost or reordered")
	}
	if !slices.Equal(saved, posted.Saved) {
		t.Error("saved checkpoints were lost or reordered")
	}
}

func TestOutboxCutsAssignments(t *testing.T) {
	outbox := NewOutbox(1 << 20)
	big := muster.TaskSpec{Kind: "script", Env: map[string]string{"TEXT": strings.Repeat("\x01", 100<<10)}}
	for i := range 40 {
		outbox.Post(&ToWorker{Assign: []Assign{{Attempt: attempt(i), Ref: 1, Spec: &big}}, FinishedAck: []muster.AttemptID{attempt(i)}})
	}
	outbox.Post(&ToWorker{Drain: true})
	codec := ServerCodec{sent: 1}
	frames, _ := drain(outbox)
	n, acks := 0, 0
	for i, f := range frames {
		if last := i == len(frames)-1; f.Drain != last {
			t.Errorf("frame %d of %d: drain is %v", i, len(frames), f.Drain)
		}
		if _, err := codec.Encode(f); err != nil {
			t.Fatal(err)
		}
		for _, a := range f.Assign {
			if a.Attempt != attempt(n) {
				t.Fatalf("%s is number %d", a.Attempt, n)
			}
			n++
		}
		acks += len(f.FinishedAck)
	}
	if n != 40 || acks != 40 || len(frames) < 2 {
		t.Errorf("%d assignments and %d acknowledgements in %d frames", n, acks, len(frames))
	}
}

func BenchmarkOutbox(b *testing.B) {
	messages := make([]*ToWorker, 64)
	for i := range messages {
		messages[i] = &ToWorker{Assign: assigns(1).Assign}
	}
	outbox := NewOutbox(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		for _, w := range messages {
			outbox.Post(w)
		}
		if f, err := outbox.tryNext(); f == nil || err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/word")
}
