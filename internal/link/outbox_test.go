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

// drain takes everything that waits, without waiting.
func drain[F any, P frame[F]](o *Outbox[F, P]) (frames []P, err error) {
	for {
		f, err := o.poll()
		if f == nil || err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
}

func TestOutboxKeepsEveryWordInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		box := NewToServerBox(1 << 20)
		var posted, taken ToServer
		add := func(to, f *ToServer) {
			to.Accepted = append(to.Accepted, f.Accepted...)
			to.Rejected = append(to.Rejected, f.Rejected...)
			to.Started = append(to.Started, f.Started...)
			to.Progress = append(to.Progress, f.Progress...)
			to.Logs = append(to.Logs, f.Logs...)
			to.Finished = append(to.Finished, f.Finished...)
		}
		take := func() {
			f, err := box.poll()
			if err != nil {
				rt.Fatal(err)
			}
			if f != nil {
				add(&taken, f)
			}
		}
		for range rapid.IntRange(0, 30).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "take") {
				take()
				continue
			}
			f := genToServer(rt)
			f.Goodbye = nil
			box.Post(f)
			add(&posted, f)
		}
		frames, err := drain(box)
		if err != nil || box.Waiting() != 0 {
			rt.Fatalf("%d messages wait in an empty box: %v", box.Waiting(), err)
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
	box := NewToWorkerBox(1000)
	for i := range 100 {
		box.Post(&ToWorker{Assign: []Assign{{Attempt: attempt(i), Ref: 1}}})
		box.Post(&ToWorker{FinishedAck: []muster.AttemptID{attempt(i)}})
	}
	frames, err := drain(box)
	if err != nil || len(frames) != 1 || len(frames[0].Assign) != 100 || len(frames[0].FinishedAck) != 100 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
}

func TestOutboxDoesNotOvertakeARenewOrADrain(t *testing.T) {
	up := NewToServerBox(1000)
	up.Post(&ToServer{Renew: &Renew{Held: []muster.AttemptID{attempt(1)}}})
	up.Post(&ToServer{Finished: finisheds(2).Finished})
	frames, _ := drain(up)
	if len(frames) != 2 || frames[0].Renew == nil || frames[1].Renew != nil {
		t.Errorf("a report came before the renewal that was older: %d frames", len(frames))
	}
	down := NewToWorkerBox(1000)
	down.Post(&ToWorker{Drain: true})
	down.Post(assigns(1))
	if frames, _ := drain(down); len(frames) != 2 || !frames[0].Drain || frames[1].Drain {
		t.Errorf("an assignment came before the drain that was older: %d frames", len(frames))
	}
}

func TestOutboxEndsAfterAGoodbye(t *testing.T) {
	box := NewToWorkerBox(1000)
	box.Post(assigns(1))
	box.Post(&ToWorker{Goodbye: &Goodbye{}})
	box.Post(assigns(1))
	frames, err := drain(box)
	if !errors.Is(err, io.EOF) || len(frames) != 1 || len(frames[0].Assign) != 1 || frames[0].Goodbye == nil {
		t.Errorf("%d frames, then %v", len(frames), err)
	}
	if _, err := box.Take(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the goodbye: %v", err)
	}
}

func TestOutboxFailsWhenNobodyTakes(t *testing.T) {
	box := NewToWorkerBox(100)
	for range 101 {
		box.Post(assigns(1))
	}
	if _, err := box.Take(t.Context()); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("%v", err)
	}
}

func TestOutboxCutsFramesToTheLimits(t *testing.T) {
	box := NewToServerBox(1 << 20)
	result := json.RawMessage(`"` + strings.Repeat("r", muster.MaxResult-2) + `"`)
	var posted ToServer
	for i := range 100 {
		r := finisheds(1).Finished[0]
		r.Attempt, r.Result = attempt(i), result
		posted.Finished = append(posted.Finished, r)
		posted.Logs = append(posted.Logs, LogChunk{Attempt: attempt(i), Data: make([]byte, 100<<10)})
	}
	box.Post(&ToServer{Hello: &Hello{Version: Version, Worker: "w"}})
	box.Post(&posted)
	box.Post(&ToServer{Goodbye: &Goodbye{Message: "bye"}})
	frames, err := drain(box)
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	var codec WorkerCodec
	var finished []muster.Report
	var logs []LogChunk
	for i, f := range frames {
		if _, err := codec.Encode(f); err != nil {
			t.Fatalf("frame %d of %d cannot leave: %v", i, len(frames), err)
		}
		finished = append(finished, f.Finished...)
		logs = append(logs, f.Logs...)
		if (f.Goodbye != nil) != (i == len(frames)-1) {
			t.Errorf("frame %d of %d: goodbye %v", i, len(frames), f.Goodbye)
		}
	}
	if !slices.EqualFunc(finished, posted.Finished, func(a, b muster.Report) bool { return a.Attempt == b.Attempt }) {
		t.Error("reports were lost or reordered")
	}
	if !slices.EqualFunc(logs, posted.Logs, func(a, b LogChunk) bool { return a.Attempt == b.Attempt }) {
		t.Error("logs were lost or reordered")
	}
}

func TestOutboxCutsAssignments(t *testing.T) {
	box := NewToWorkerBox(1 << 20)
	big := muster.TaskSpec{Kind: "script", Env: map[string]string{"TEXT": strings.Repeat("\x01", 100<<10)}}
	for i := range 40 {
		box.Post(&ToWorker{Assign: []Assign{{Attempt: attempt(i), Ref: 1, Spec: &big}}, FinishedAck: []muster.AttemptID{attempt(i)}})
	}
	codec := ServerCodec{sent: 1}
	frames, _ := drain(box)
	n, acks := 0, 0
	for _, f := range frames {
		if _, err := codec.Encode(f); err != nil {
			t.Fatal(err)
		}
		for _, a := range f.Assign {
			if a.Attempt != attempt(n) {
				t.Fatalf("%s came as number %d", a.Attempt, n)
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
	words := make([]*ToWorker, 64)
	for i := range words {
		words[i] = &ToWorker{Assign: assigns(1).Assign}
	}
	box := NewToWorkerBox(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		for _, w := range words {
			box.Post(w)
		}
		if f, err := box.poll(); f == nil || err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/word")
}
