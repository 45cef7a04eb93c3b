package link

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
)

// strict decodes with encoding/json, which is the oracle. Unlike the codec it ignores the case of names, and adds to
// the values of repeated ones.
func strict(b []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

func TestFramesToServerSurviveTheWay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := genToServer(rt)
		before := rapid.Uint64Range(0, 1<<40).Draw(rt, "seq")
		if before == 0 {
			f.Hello = genHello(rt)
		}
		b, err := (&WorkerCodec{sent: before}).Encode(f)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := (&ServerCodec{received: before}).Decode(b)
		if err != nil {
			rt.Fatalf("%v\n%s", err, b)
		}
		if diff := cmp.Diff(f, got); diff != "" {
			rt.Fatal(diff)
		}
		var std ToServer
		if err := strict(b, &std); err != nil {
			rt.Fatalf("encoding/json refuses: %v\n%s", err, b)
		}
		if diff := cmp.Diff(f, &std); diff != "" {
			rt.Fatal(diff)
		}
		plain, err := json.MarshalIndent(f, "", "\t")
		if err != nil {
			rt.Fatal(err)
		}
		got, err = (&ServerCodec{received: before}).Decode(plain)
		if err != nil {
			rt.Fatalf("%v\n%s", err, plain)
		}
		if diff := cmp.Diff(f, got, compactJSON); diff != "" {
			rt.Fatal(diff)
		}
	})
}

var compactJSON = cmp.Transformer("compact", func(m json.RawMessage) string {
	var b bytes.Buffer
	if len(m) > 0 && json.Compact(&b, m) != nil {
		return "not JSON"
	}
	return strings.ReplaceAll(b.String(), `\u003c`, "<")
})

func TestFramesToWorkerSurviveTheWay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := genToWorker(rt)
		before := rapid.Uint64Range(0, 1<<40).Draw(rt, "seq")
		if before == 0 {
			f.Welcome = genWelcome(rt)
		}
		b, err := (&ServerCodec{sent: before}).Encode(f)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := (&WorkerCodec{received: before}).Decode(b)
		if err != nil {
			rt.Fatalf("%v\n%s", err, b)
		}
		if diff := cmp.Diff(f, got); diff != "" {
			rt.Fatal(diff)
		}
		var std ToWorker
		if err := strict(b, &std); err != nil {
			rt.Fatalf("encoding/json refuses: %v\n%s", err, b)
		}
		if diff := cmp.Diff(f, &std); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestBadFramesAreRefusedByField(t *testing.T) {
	for _, tc := range []struct{ frame, want string }{
		{``, "is invalid: unexpected EOF"},
		{`[]`, "has the wrong type"},
		{`{"seq":2} x`, "after top-level value"},
		{`{"seq":2}{"seq":3}`, "after top-level value"},
		{`{"seq":3}`, "seq is 3, want 2"},
		{`{"ping":true}`, "seq is 0, want 2"},
		{`{"seq":-1}`, "seq is -1"},
		{`{"seq":2.0}`, "seq is 2.0"},
		{`{"seq":02}`, "is invalid: invalid character '2'"},
		{`{"seq":2,"nope":1}`, "nope is not a field"},
		{`{"seq":2,"Ping":true}`, "Ping is not a field"},
		{`{"seq":2,"ping":1}`, "ping has the wrong type: want bool"},
		{`{"seq":2,"hello":{"version":2,"worker":"w","name":"","build":"","kinds":null,"resources":{"cpus":1,"memory":1,"disk":1,"slots":1}}}`, "hello belongs in the first frame"},
		{`{"seq":2,"accepted":["17.3"]}`, `accepted[0] is invalid: "17.3" is not an attempt id`},
		{`{"seq":2,"accepted":["17.3#1","17.03#1"]}`, `accepted[1] is invalid: "17.03" is not a task id`},
		{`{"seq":2,"accepted":["17.3#0"]}`, "attempts count from 1"},
		{`{"seq":2,"accepted":["0.3#1"]}`, "accepted[0]"},
		{`{"seq":2,"accepted":["1.1#1",]}`, "accepted is invalid: invalid character ','"},
		{`{"seq":2,"rejected":[{"attempt":"1.1#1","message":"m","why":1}]}`, "rejected[0].why is not a field"},
		{`{"seq":2,"rejected":[{"message":"m"}]}`, "rejected[0].attempt is missing"},
		{`{"seq":2,"started":[{"attempt":"1.1#1"}]}`, "started[0].at is missing"},
		{`{"seq":2,"started":[{"attempt":"1.1#1","at":"yesterday"}]}`, `started[0].at is invalid: "yesterday" is not a time`},
		{`{"seq":2,"finished":[{"attempt":"1.1#1","outcome":"done","finished_at":"2026-01-02T15:04:05.000Z"}]}`, `finished[0].outcome is "done"`},
		{`{"seq":2,"finished":[{"attempt":"1.1#1","outcome":"","finished_at":"2026-01-02T15:04:05.000Z"}]}`, `finished[0].outcome is ""`},
		{`{"seq":2,"finished":[{"attempt":"1.1#1","outcome":"failed","reason":"bad luck","finished_at":"2026-01-02T15:04:05.000Z"}]}`, `finished[0].reason is "bad luck"`},
		{`{"seq":2,"finished":[{"attempt":"1.1#1","outcome":"failed"}]}`, "finished[0].finished_at is missing"},
		{`{"seq":2,"finished":[{"attempt":"1.1#1","outcome":"failed","log_size":-5}]}`, "finished[0].log_size is -5"},
		{`{"seq":2,"finished":[{"attempt":"1.1#1","outcome":"failed","result":{]}]}`, "finished[0].result is invalid: invalid character ']'"},
		{`{"seq":2,"finished":[{"attempt":"1.1#1","outcome":"failed","artifacts":[{"name":"a","size":-1,"sha256":""}],"finished_at":"2026-01-02T15:04:05.000Z"}]}`, "finished[0].artifacts[0].sha256"},
		{`{"seq":2,"logs":[{"attempt":"1.1#1","offset":-1,"data":""}]}`, "logs[0].offset is -1"},
		{`{"seq":2,"logs":[{"attempt":"1.1#1","offset":0,"data":"*"}]}`, "logs[0].data is invalid: illegal base64 data"},
		{`{"seq":2,"progress":[{"attempt":"1.1#1","progress":1.5}]}`, "progress[0].progress is 1.5"},
		{`{"seq":2,"renew":{"load":{"cpu":-1,"memory":0}}}`, "renew.load.cpu is -1"},
		{`{"seq":2,"renew":{"load":{"cpu":0,"memory":0,"gpus":[{"uuid":"a","memory":-1}]}}}`, `renew.load.gpus[0].memory is invalid: "-1" is not a size`},
		{`{"seq":2,"renew":{"load":{"cpu":0,"memory":0,"gpus":[{"uuid":"a","power":-1}]}}}`, "renew.load.gpus[0].power is -1"},
		{`{"seq":2,"renew":{"load":{"cpu":0,"memory":0,"gpus":[{"uuid":"a"},{"uuid":"a"}]}}}`, `renew.load.gpus[1].uuid is "a", which is a duplicate`},
		{`{"seq":2,"offer":{"kinds":["noop"],"resources":{"cpus":-1,"memory":1,"disk":1,"slots":1}}}`, "offer.resources.cpus is -1"},
		{`{"seq":2,"offer":{"kinds":["noop"],"resources":{"cpus":1,"memory":1,"disk":1,"slots":1,"gpus":[{"index":0}]}}}`, "offer.resources.gpus[0].uuid is missing"},
		{`{"seq":2,"offer":{"kinds":["noop"],"price":1}}`, "offer.price is not a field"},
		{`{"seq":2,"offer":{"kinds":["noop"],"own_kinds":{"name":"resize"}}}`, "offer.own_kinds is not a list"},
		{`{"seq":2,"offer":{"kinds":["noop"],"own_kinds":null}}`, "offer.own_kinds is not a list"},
		{`{"seq":2,"offer":{"kinds":["noop"],"own_kinds":[}}`, "offer"},
		{`{"seq":2,"offer":{"kinds":["noop"],"own_kinds":["` + strings.Repeat("x", MaxOwnKinds) + `"]}}`, "offer.own_kinds has 1048580 bytes: the most is 1048576"},
		{`{"seq":2,"saved":[{"attempt":"1.1#1","sha256":"ab"}]}`, `saved[0].sha256 is "ab"`},
		{`{"seq":2,"saved":[{"sha256":"ab"}]}`, "saved[0].attempt is missing"},
		{`{"seq":2,"finished":[{"attempt":"1.1#1","outcome":"failed","usage":{"wall_seconds":1,"cpu_seconds":1,"cpu_avg":1,"energy_wh":-2},"finished_at":"2026-01-02T15:04:05.000Z"}]}`, "finished[0].usage.energy_wh is -2"},
		{`{"seq":2,"goodbye":{"code":"tired"}}`, `goodbye.code is "tired"`},
		{"{\"seq\":2,\"goodbye\":{\"message\":\"\xff\"}}", "is not UTF-8"},
	} {
		_, err := (&ServerCodec{received: 1}).Decode([]byte(tc.frame))
		if err == nil || !strings.Contains(err.Error(), tc.want) || muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s\n got: %v\nwant: %s", tc.frame, err, tc.want)
		}
	}
	for _, tc := range []struct{ frame, want string }{
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":0}]}`, "assign[0].ref is 0"},
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":1,"grant":{"slots":-1}}]}`, "assign[0].grant has an amount below zero"},
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":1,"grant":{"slot":1}}]}`, "assign[0].grant.slot is not a field"},
		{`{"seq":2,"assign":[{"ref":1}]}`, "assign[0].attempt is missing"},
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":1,"inputs":[{"path":"a","sha256":"A","size":1}]}]}`, "assign[0].inputs[0].sha256"},
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":1,"grant":{"pids":-1}}]}`, "assign[0].grant has an amount below zero"},
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":1,"checkpoint":"zz"}]}`, `assign[0].checkpoint is "zz"`},
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":1,"gang":{"rank":2,"size":2,"master":"a","port":1}}]}`, "assign[0].gang.rank is 2: it must be from 0 to 1"},
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":1,"gang":{"rank":0,"size":2,"master":"a b","port":1}}]}`, `assign[0].gang.master is "a b"`},
		{`{"seq":2,"assign":[{"attempt":"1.1#1","ref":1,"gang":{"rank":0,"size":2,"master":"a","port":65536}}]}`, "assign[0].gang.port is 65536"},
		{`{"seq":2,"heal":["GPU-1",""]}`, "heal[1] has 0 bytes"},
		{`{"seq":2,"log_ack":[{"attempt":"1.1#1","size":1,"pause":"-1s"}]}`, "log_ack[0].pause"},
		{`{"seq":2,"log_ack":[{"attempt":"1.1#1","size":1e3}]}`, "log_ack[0].size is 1e3"},
		{`{"seq":2,"log_ack":[{"attempt":"1.1#1","size":9999999999999999999}]}`, "log_ack[0].size is 9999999999999999999"},
		{`{"seq":2,"cancel":[{"attempt":"1.1#1","reason":"x"}]}`, `cancel[0].reason is "x"`},
		{`{"seq":2,"specs":[{"ref":-1,"name":"n","spec":{}}]}`, "specs[0].ref is -1"},
	} {
		_, err := (&WorkerCodec{received: 1}).Decode([]byte(tc.frame))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s\n got: %v\nwant: %s", tc.frame, err, tc.want)
		}
	}
	for address, want := range map[string]string{"a b": "hello.address", strings.Repeat("a", 254): "hello.address has 254 bytes", "fe80::1%eth0": ""} {
		_, err := new(WorkerCodec).Encode(&ToServer{Hello: &Hello{Version: Version, Worker: "w", Address: address}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("address %q: %v", address, err)
		}
	}
	if _, err := (&WorkerCodec{received: 2}).Decode([]byte(`{"seq":3,"welcome":{"heartbeat":10}}`)); err == nil || !strings.Contains(err.Error(), "welcome belongs") {
		t.Errorf("a late welcome: %v", err)
	}
	if _, err := new(WorkerCodec).Decode([]byte(`{"seq":1}`)); err == nil || !strings.Contains(err.Error(), "welcome belongs") {
		t.Errorf("a first frame without a welcome: %v", err)
	}
	if _, err := new(WorkerCodec).Decode([]byte(`{"seq":1,"welcome":{"heartbeat":0}}`)); err == nil || !strings.Contains(err.Error(), "welcome.heartbeat") {
		t.Errorf("a heartbeat of 0: %v", err)
	}
}

func TestNothingBadLeaves(t *testing.T) {
	first := func(f *ToServer) *ToServer { f.Hello = &Hello{Version: Version, Worker: "w"}; return f }
	c := new(WorkerCodec)
	if _, err := c.Encode(first(&ToServer{Progress: []muster.Progress{{Attempt: attempt(1), Metrics: map[string]float64{"loss": math.NaN()}}}})); err == nil || !strings.Contains(err.Error(), "progress") {
		t.Errorf("NaN: %v", err)
	}
	sum := strings.Repeat("0a", 32)
	for want, live := range map[string][]muster.Artifact{
		"artifacts has 17":          slices.Repeat([]muster.Artifact{{Name: "live/a", SHA256: sum}}, muster.MaxLiveFiles+1),
		"artifacts[1].name":         slices.Repeat([]muster.Artifact{{Name: "live/a", SHA256: sum}}, 2),
		`name is "model.pt"`:        {{Name: "model.pt", SHA256: sum}},
		`name is "live/../model"`:   {{Name: "live/../model", SHA256: sum}},
		`name is "live/"`:           {{Name: "live/", SHA256: sum}},
		`name is "live/.."`:         {{Name: "live/..", SHA256: sum}},
		"artifacts[0].sha256 is":    {{Name: "live/a", SHA256: "0a"}},
		"size is 16777217: the mos": {{Name: "live/a", SHA256: sum, Size: muster.MaxLiveFileSize + 1}},
	} {
		if err := CheckProgress(&muster.Progress{Attempt: attempt(1), Artifacts: live}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	big := first(&ToServer{Rejected: []Rejected{{Attempt: attempt(1), Message: strings.Repeat("x", MaxFrame)}}})
	if _, err := c.Encode(big); muster.CodeOf(err) != muster.TooLarge {
		t.Errorf("a frame that is too long: %v", err)
	}
	own := &ToServer{Hello: &Hello{Version: Version, Worker: "w", Offer: muster.Offer{OwnKinds: json.RawMessage(`["` + strings.Repeat("x", MaxOwnKinds) + `"]`)}}}
	if _, err := c.Encode(own); err == nil || !strings.Contains(err.Error(), "hello.own_kinds has") {
		t.Errorf("too many kinds: %v", err)
	}
	if _, err := c.Encode(first(&ToServer{Logs: []LogChunk{{Attempt: attempt(1), Data: make([]byte, MaxLogs+1)}}})); err == nil {
		t.Error("Encode accepted more log bytes than MaxLogs")
	}
	if b := must(c.Encode(first(&ToServer{})))(t); !bytes.HasPrefix(b, []byte(`{"seq":1,`)) {
		t.Errorf("refused frames got a number: %s", b)
	}
}

// Results, inputs and own kinds arrive as they are, whatever encoding/json accepts; texts arrive as valid UTF-8.
func TestRawJSONKeepsItsBytes(t *testing.T) {
	for _, raw := range []string{`{"a":1,"a":2}`, `"\u003c<\u2028\/é"`, `[1.0,1e400,-0,12345678901234567890]`, strings.Repeat("[", maxResultDepth) + strings.Repeat("]", maxResultDepth)} {
		b := must((&WorkerCodec{sent: 1}).Encode(&ToServer{Finished: []muster.Report{{
			Attempt: attempt(1), Outcome: muster.AttemptFailed, Message: "a\xffb", Result: json.RawMessage(raw), FinishedAt: 1,
		}}}))(t)
		got := must((&ServerCodec{received: 1}).Decode(b))(t).Finished[0]
		if string(got.Result) != raw || got.Message != "a\ufffdb" {
			t.Errorf("%.80q became %.80q, and the message %q", raw, got.Result, got.Message)
		}
	}
	b := must((&ServerCodec{sent: 1}).Encode(&ToWorker{Specs: []GroupSpec{{Ref: 1, UID: "a", Spec: muster.TaskSpec{Input: json.RawMessage(`{"a":1,"a":2}`)}}}}))(t)
	if got := must((&WorkerCodec{received: 1}).Decode(b))(t).Specs[0].Spec.Input; string(got) != `{"a":1,"a":2}` {
		t.Errorf("an input became %s", got)
	}
}

func TestTheLastOfRepeatedNamesCounts(t *testing.T) {
	f := must((&ServerCodec{received: 1}).Decode([]byte(`{"seq":7,"accepted":["1.1#1","1.1#2"],"seq":2,"accepted":["1.1#3"]}`)))(t)
	if f.Seq != 2 || len(f.Accepted) != 1 || f.Accepted[0].N != 3 {
		t.Errorf("%+v", f)
	}
}

func TestAnotherVersionIsReadAsFarAsNeeded(t *testing.T) {
	f := must(new(ServerCodec).Decode([]byte(`{"seq":1,"hello":{"version":99,"worker":"w1","name":"n","build":"b","quantum":{}},"telepathy":true}`)))(t)
	want := &ToServer{Seq: 1, Hello: &Hello{Version: 99, Worker: "w1", Name: "n", Build: "b"}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
}

func FuzzDecodeToServer(f *testing.F) {
	c := WorkerCodec{sent: 1}
	f.Add(must(c.Encode(finisheds(3)))(f))
	f.Add([]byte(`{"seq":5,"accepted":["1.2#3"],"logs":[{"attempt":"1.2#3","offset":7,"data":"AAE="}],"renew":{"held":["1.2#3"],"load":{"cpu":0.5,"memory":"1GiB"}}}`))
	f.Add([]byte(`{"seq":1,"hello":{"version":2,"worker":"w","name":"n","build":"b","kinds":["noop"],"resources":{"cpus":1,"memory":1,"disk":1,"slots":1},"address":"10.0.0.7"},"goodbye":{}}`))
	f.Add([]byte(`{"seq":2,"offer":{"kinds":["noop"],"resources":{"cpus":1,"memory":1,"disk":1,"slots":1,"gpus":[{"uuid":"MIG-1","index":0,"vendor":"nvidia","name":"A100","memory":1,"mig":"1g.10gb","parent":"GPU-1","quarantined":"xid 79"}]}},` +
		`"saved":[{"attempt":"1.2#3","sha256":"` + strings.Repeat("0a", 32) + `"}],"renew":{"load":{"cpu":0,"memory":0,"gpus":[{"uuid":"GPU-1","utilization":0.5,"temperature":-3}]}}}`))
	f.Add([]byte(`{ "seq" : 2 , "progress":[{"attempt":"1.2#3","progress":0.5,"step":"\u00e9\n","metrics":{"a":1e-9},"artifacts":[{"name":"live/a","size":1,"sha256":"` + strings.Repeat("0a", 32) + `"}]}],"ping":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := seqOf(b) - 1
		got, err := (&ServerCodec{received: before}).Decode(b)
		if err != nil {
			if code := muster.CodeOf(err); code != muster.Invalid && code != muster.TooLarge {
				t.Fatalf("code %s: %v", code, err)
			}
			return
		}
		if got.Hello != nil && got.Hello.Version != Version {
			return
		}
		var std ToServer
		if err := strict(b, &std); err != nil {
			t.Fatalf("encoding/json refuses what was accepted: %v", err)
		}
		if diff := cmp.Diff(&std, got, cmpopts.EquateEmpty()); diff != "" && !repeatsNames(b) {
			t.Fatal(diff)
		}
		once := must((&WorkerCodec{sent: before}).Encode(got))(t)
		again := must((&ServerCodec{received: before}).Decode(once))(t)
		if twice := must((&WorkerCodec{sent: before}).Encode(again))(t); !bytes.Equal(once, twice) {
			t.Fatalf("%s\nbecame\n%s", once, twice)
		}
	})
}

func FuzzDecodeToWorker(f *testing.F) {
	c := ServerCodec{sent: 1}
	f.Add(must(c.Encode(assigns(3)))(f))
	f.Add([]byte(`{"seq":1,"welcome":{"heartbeat":10,"keep":[{"attempt":"1.2#3","size":4}],"stop":["1.2#4"]},"finished_ack":["1.2#3"]}`))
	f.Add([]byte(`{"seq":2,"specs":[{"ref":1,"name":"x","spec":{"kind":"noop","timeout":"1h"}}],"cancel":[{"attempt":"1.2#3","drop":true}],"drain":true}`))
	f.Add([]byte(`{"seq":2,"assign":[{"attempt":"1.2#3","ref":1,"grant":{"cpus":0.5,"gpus":["GPU-1"]},"inputs":[]}],"goodbye":{"code":"conflict","message":"m"}}`))
	f.Add([]byte(`{"seq":2,"assign":[{"attempt":"1.2#3","ref":1,"grant":{"pids":9},"checkpoint":"` + strings.Repeat("0a", 32) + `","gang":{"rank":1,"size":2,"master":"fe80::1%eth0","port":29500}}],"heal":["all"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := seqOf(b) - 1
		got, err := (&WorkerCodec{received: before}).Decode(b)
		if err != nil {
			return
		}
		var std ToWorker
		if err := strict(b, &std); err != nil {
			t.Fatalf("encoding/json refuses what was accepted: %v", err)
		}
		if diff := cmp.Diff(&std, got, cmpopts.EquateEmpty()); diff != "" && !repeatsNames(b) {
			t.Fatal(diff)
		}
		once := must((&ServerCodec{sent: before}).Encode(got))(t)
		again := must((&WorkerCodec{received: before}).Decode(once))(t)
		if twice := must((&ServerCodec{sent: before}).Encode(again))(t); !bytes.Equal(once, twice) {
			t.Fatalf("%s\nbecame\n%s", once, twice)
		}
	})
}

func repeatsNames(frame []byte) bool { return !jsontext.Value(frame).IsValid() }

// seqOf returns the number of a frame, which the fuzzer chooses.
func seqOf(b []byte) uint64 {
	var f struct {
		Seq uint64 `json:"seq"`
	}
	if json.Unmarshal(b, &f) != nil || f.Seq == 0 {
		return 1
	}
	return f.Seq
}

func BenchmarkCodec(b *testing.B) {
	const n = 256
	down, up := assigns(n), finisheds(n)
	downBytes := must((&ServerCodec{sent: 1}).Encode(down))(b)
	upBytes := must((&WorkerCodec{sent: 1}).Encode(up))(b)
	for _, bm := range []struct {
		name string
		op   func() error
	}{
		{"encode assign", func() error { _, err := (&ServerCodec{sent: 1}).Encode(down); return err }},
		{"decode assign", func() error { _, err := (&WorkerCodec{received: 1}).Decode(downBytes); return err }},
		{"encode finished", func() error { _, err := (&WorkerCodec{sent: 1}).Encode(up); return err }},
		{"decode finished", func() error { _, err := (&ServerCodec{received: 1}).Decode(upBytes); return err }},
		{"std encode assign", func() error { _, err := json.Marshal(down); return err }},
		{"std decode assign", func() error { return strict(downBytes, new(ToWorker)) }},
		{"std encode finished", func() error { _, err := json.Marshal(up); return err }},
		{"std decode finished", func() error { return strict(upBytes, new(ToServer)) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bm.op(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/message")
		})
	}
}

// TestResultsKeepTheirBytes checks that a result that encoding/json accepts passes the link unchanged: a report that the server refused
// would be sent again without end.
func TestResultsKeepTheirBytes(t *testing.T) {
	for _, result := range []string{`{"file":"a\udcff"}`, `{"a":1,"a":2}`, `[1e400,"\u0000"]`} {
		sent := &ToServer{Finished: []muster.Report{{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}, Outcome: muster.AttemptSucceeded, Result: []byte(result), FinishedAt: 1}}}
		w, s := WorkerCodec{sent: 1}, ServerCodec{received: 1} // after the hello
		b, err := w.Encode(sent)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := s.Decode(b); err != nil || string(f.Finished[0].Result) != result {
			t.Errorf("%s: %v", result, err)
		}
	}
}
