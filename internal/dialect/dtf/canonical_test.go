package dtf

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func mustParse(t *testing.T, raw string) value {
	t.Helper()
	v, err := parse([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

// The vectors of contracts.md 3.5.
func TestSignaturesAreThoseOfTheVectors(t *testing.T) {
	s := signer{"s3cr3t"}
	for _, tc := range []struct{ text, want string }{
		{`{"timestamp": 1715000000, "type": "heartbeat", "worker_id": "worker-001"}`, "yPHX3EYPpbDXy+rnJZVUsr4PmLKxz4efC/6g6DDEsBE="},
		{`{"execution_time_seconds": 1.0, "hardware_metrics": {"cpu_percent": 0.0, "memory_percent": 2.5}, "result": {"a": [1, 2.5e-07, 1e+16, true], "u": "h\u00e9\u00e9\u2713\ud83d\ude00/<>&\"\\\n", "z": null}, "status": "completed", "task_id": "t", "timestamp": 1715000000, "type": "task_result", "worker_id": "w1"}`, "k+INz6zXDARNLw+iGkq5UOicSp4P+/6BZXTVeoza5KU="},
	} {
		v := mustParse(t, tc.text)
		if got := string(v.canonical()); got != tc.text {
			t.Errorf("canonical form\n got %s\nwant %s", got, tc.text)
		}
		if got := s.sum(&v); got != tc.want {
			t.Errorf("signature of %s: got %s, want %s", tc.text, got, tc.want)
		}
	}
	// The order of keys and the spelling of numbers and strings on the wire do not matter.
	v := mustParse(t, `{"worker_id":"worker\u002d001","type":"heartbeat", "timestamp":1715000000}`)
	if got := s.sum(&v); got != "yPHX3EYPpbDXy+rnJZVUsr4PmLKxz4efC/6g6DDEsBE=" {
		t.Errorf("signature depends on the spelling: %s", got)
	}
}

func TestCanonicalForm(t *testing.T) {
	for in, want := range map[string]string{
		`1`:                      `1`,
		`-0`:                     `0`,
		`-0.0`:                   `-0.0`,
		`1.0`:                    `1.0`,
		`100000e0`:               `100000.0`,
		`1e22`:                   `1e+22`,
		`9999999999999998.0`:     `9999999999999998.0`,
		`1e16`:                   `1e+16`,
		`0.0001`:                 `0.0001`,
		`0.00001`:                `1e-05`,
		`1E400`:                  `Infinity`,
		`NaN`:                    `NaN`,
		`5e-324`:                 `5e-324`,
		`123456789012345678901`:  `123456789012345678901`,
		`"\ud800x"`:              `"\ud800x"`,
		`"\uD83D\uDE00"`:         `"\ud83d\ude00"`,
		`"\/\u007f"`:             `"/\u007f"`,
		`{"b":1,"a":2,"b":3}`:    `{"a": 2, "b": 3}`,
		`{"\ue000":1,"😀":2}`:     `{"\ue000": 1, "\ud83d\ude00": 2}`,
		`[ ]`:                    `[]`,
		`{ "a" : [ { } , "" ] }`: `{"a": [{}, ""]}`,
	} {
		v := mustParse(t, in)
		if got := string(v.canonical()); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	for _, in := range []string{"", "{", `{"a"}`, `{"a":}`, `[1,]`, `{"a":1,}`, `"\x"`, `"a`, "\"\n\"", "\"\xff\"", `01`, `1.`, `.5`, `+1`, `nul`, `1 2`, `"\u12g4"`, strings.Repeat("[", 5000), strings.Repeat("9", 5000)} {
		if _, err := parse([]byte(in)); err == nil {
			t.Errorf("%.20q was read", in)
		}
	}
}

func TestStrictFormIsJSON(t *testing.T) {
	v := mustParse(t, `{"loss":NaN,"i":[Infinity,-Infinity],"s":"\ud800","n":1.50}`)
	if got, want := string(v.strict()), `{"loss":null,"i":[null,null],"s":"�","n":1.5}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// python is json.dumps of what json.loads reads, for many texts at once.
func python(t *testing.T, texts []string) []string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 to compare with")
	}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "-c", "import json,sys\nfor s in json.load(sys.stdin): print(json.dumps(json.loads(s), sort_keys=True))")
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func anyJSON(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.String().AsAny(),
		rapid.Custom(func(t *rapid.T) any {
			return json.Number(repr(rapid.Float64().Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }).Draw(t, "float")))
		}),
		rapid.Custom(func(t *rapid.T) any {
			return json.Number(repr(rapid.Float64Range(-1, 1).Draw(t, "m") * math.Pow(10, float64(rapid.IntRange(-20, 20).Draw(t, "e")))))
		}),
	}
	if depth > 0 {
		leaves = append(leaves, rapid.SliceOfN(anyJSON(depth-1), 0, 4).AsAny(), rapid.MapOfN(rapid.String(), anyJSON(depth-1), 0, 4).AsAny())
	}
	return rapid.OneOf(leaves...)
}

// The canonical form is Python's, whatever the value.
func TestCanonicalFormIsPythons(t *testing.T) {
	var texts []string
	gen := anyJSON(3)
	for seed := range 500 {
		raw, err := json.Marshal(gen.Example(seed))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(raw))
	}
	texts = append(texts, `"\ud800"`, `"\udc00\ud800"`, `NaN`, `[-Infinity, 1E400, -0, -0.0, 1e15, 1e16, 1e17, 123456789012345680.0]`, `{"b":{"\ud800":1,"\ue000":2,"\ud83d\ude00":3},"b":4}`)
	want := python(t, texts)
	if len(want) != len(texts) {
		t.Fatalf("python wrote %d lines for %d texts", len(want), len(texts))
	}
	for i, text := range texts {
		v := mustParse(t, text)
		if got := string(v.canonical()); got != want[i] {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want[i])
		}
	}
}

func TestSignedMessagesAreVerified(t *testing.T) {
	s, now := signer{"s3cr3t"}, time.Unix(1715000000, 500)
	raw, err := s.sign(map[string]any{"type": "heartbeat", "worker_id": "wé", "timestamp": "2024-05-06T12:00:00", "x": 1.5}, now)
	if err != nil {
		t.Fatal(err)
	}
	v := mustParse(t, string(raw))
	for _, tc := range []struct {
		name string
		s    signer
		v    value
		at   time.Time
		want bool
	}{
		{"as it was signed", s, v, now, true},
		{"60 s later", s, v, time.Unix(1715000060, 0), true},
		{"61 s later", s, v, time.Unix(1715000061, 0), false},
		{"an hour before", s, v, now.Add(-time.Hour), true},
		{"another secret", signer{"s3cr3u"}, v, now, false},
		{"a changed field", s, v.with("x", value{kind: 'i', text: "2"}), now, false},
		{"another field", s, v.with("y", value{kind: 'w', text: "null"}), now, false},
		{"no signature", s, v.without("signature"), now, false},
		{"no timestamp", s, v.without("timestamp"), now, false},
		{"a time as text", s, v.with("timestamp", value{kind: 's', text: "1715000000"}), now, false},
		{"a time that is NaN", s, v.with("timestamp", value{kind: 'd', number: math.NaN()}), now, false},
		{"a signature that is not a string", s, v.with("signature", value{kind: 'i', text: "1"}), now, false},
	} {
		if got := tc.s.verify(&tc.v, tc.at); got != tc.want {
			t.Errorf("%s: verified: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// What is read can be written and read again as the same, and its strict form is JSON of the same shape.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5e-07,true,null,"\ud83d\ude00"],"\ud800":NaN}`))
	f.Add([]byte(`-0`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := parse(raw)
		if err != nil {
			return
		}
		once := v.canonical()
		again, err := parse(once)
		if len(once) > maxFrame {
			return
		}
		if err != nil {
			t.Fatalf("%q was read, its canonical form %q is not: %v", raw, once, err)
		}
		if twice := again.canonical(); !bytes.Equal(once, twice) {
			t.Fatalf("%q: %q, then %q", raw, once, twice)
		}
		if !json.Valid(v.strict()) {
			t.Fatalf("%q: the strict form %q is not JSON", raw, v.strict())
		}
		if json.Valid(raw) {
			return
		}
		if !bytes.Contains(raw, []byte("NaN")) && !bytes.Contains(raw, []byte("Infinity")) {
			t.Fatalf("%q was accepted and is not JSON", raw)
		}
	})
}
