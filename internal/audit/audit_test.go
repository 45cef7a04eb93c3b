package audit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
)

// log returns n records after an empty log.
func log(n int) (records []audit.Record, head audit.Head) {
	var at muster.Time
	for i := range n {
		r := audit.Record{At: muster.Time(1000 + i), Key: "k1", Operation: "cancel-job", Object: fmt.Sprintf("job/%d", i), Outcome: audit.Allowed, Status: 200}
		head = audit.Append(head, at, &r)
		at = r.At
		records = append(records, r)
	}
	return records, head
}

func verify(base audit.Head, records []audit.Record, expected *audit.Head) audit.Result {
	v := audit.NewVerifier(base, expected)
	for i := range records {
		v.Add(&records[i])
	}
	return v.Result()
}

// The encoding is a promise: other programs verify exports.
func TestHashIsAsDocumented(t *testing.T) {
	t.Parallel()
	r := audit.Record{
		At: 1_700_000_000_123, Key: "kabc", KeyName: "ci", Role: "submitter", Address: "10.0.0.7", Operation: "submit-job", Object: "job/17", Project: "vision",
		Outcome: audit.Allowed, Status: 201,
	}
	head := audit.Append(audit.Head{}, 0, &r)
	text := strings.Repeat("\x00", 32) + "muster-audit-1" +
		"1:1,13:1700000000123,4:kabc,2:ci,9:submitter,0:,8:10.0.0.7,0:,10:submit-job,6:job/17,6:vision,7:allowed,3:201,0:,0:,1:1,1:0,"
	want := sha256.Sum256([]byte(text))
	if head.Seq != 1 || head.Hash != want {
		t.Errorf("the head is %s, want %s@1", head, hex.EncodeToString(want[:]))
	}
	if parsed, err := audit.ParseHead(head.String()); err != nil || parsed != head {
		t.Errorf("%s is read as %v, %v", head, parsed, err)
	}
}

// Each change of the log is found, at the first record that is not as it was written.
func TestTamperingIsFound(t *testing.T) {
	t.Parallel()
	records, head := log(20)
	if res := verify(audit.Head{}, records, &head); res.Problem != nil || res.Head != head || res.Records != 20 {
		t.Fatalf("the intact log: %+v", res)
	}
	rehash := func(list []audit.Record) []audit.Record { // as someone does who knows the format
		var h audit.Head
		for i := range list {
			h = audit.Append(h, 0, &list[i])
		}
		return list
	}
	noted := audit.Head{Seq: 15, Hash: records[14].Hash}
	tests := map[string]struct {
		change   func([]audit.Record) []audit.Record
		expected *audit.Head
		seq      int64 // of the problem
	}{
		"altered":      {func(l []audit.Record) []audit.Record { l[9].Outcome = audit.Denied; return l }, nil, 10},
		"altered hash": {func(l []audit.Record) []audit.Record { l[9].Hash[3]++; return l }, nil, 10},
		"removed":      {func(l []audit.Record) []audit.Record { return slices.Delete(l, 4, 5) }, nil, 5},
		"removed, renumbered": {func(l []audit.Record) []audit.Record {
			l = slices.Delete(l, 4, 5)
			for i := range l {
				l[i].Seq = int64(i + 1)
			}
			return l
		}, nil, 5},
		"first removed":       {func(l []audit.Record) []audit.Record { return l[3:] }, nil, 1},
		"swapped":             {func(l []audit.Record) []audit.Record { l[6], l[7] = l[7], l[6]; return l }, nil, 7},
		"swapped, renumbered": {func(l []audit.Record) []audit.Record { l[6], l[7] = l[7], l[6]; l[6].Seq, l[7].Seq = 7, 8; return l }, nil, 7},
		"inserted": {func(l []audit.Record) []audit.Record {
			return slices.Insert(l, 8, audit.Record{Seq: 9, Operation: "x"})
		}, nil, 9},
		"twice":                 {func(l []audit.Record) []audit.Record { return slices.Insert(l, 8, l[7]) }, nil, 8},
		"tail removed":          {func(l []audit.Record) []audit.Record { return l[:12] }, &noted, 13},
		"written again":         {func(l []audit.Record) []audit.Record { l[2].KeyName = "someone else"; return rehash(l) }, &noted, 15},
		"tail removed, no head": {func(l []audit.Record) []audit.Record { return l[:12] }, nil, 0}, // what only a noted head finds
	}
	for name, c := range tests {
		res := verify(audit.Head{}, c.change(slices.Clone(records)), c.expected)
		switch {
		case c.seq == 0 && res.Problem != nil:
			t.Errorf("%s: %+v", name, res.Problem)
		case c.seq != 0 && (res.Problem == nil || res.Problem.Seq != c.seq):
			t.Errorf("%s: the problem is %+v, want one at record %d", name, res.Problem, c.seq)
		}
	}
}

// A log whose first records were removed verifies from its base only if a record says so.
func TestRemovalIsPartOfTheChain(t *testing.T) {
	t.Parallel()
	records, head := log(10)
	base := audit.Head{Seq: 4, Hash: records[3].Hash}
	if res := verify(base, records[4:], nil); res.Problem == nil || res.Problem.Seq != 4 {
		t.Errorf("removed without a record: %+v", res.Problem)
	}
	removal := audit.Removal(base, 4, 2000)
	head = audit.Append(head, 0, &removal)
	records = append(records, removal)
	for from := range 5 { // also while it is being removed
		b := audit.Head{}
		if from > 0 {
			b = audit.Head{Seq: int64(from), Hash: records[from-1].Hash}
		}
		if res := verify(b, records[from:], &head); res.Problem != nil {
			t.Errorf("from %d: %+v", from, res.Problem)
		}
	}
	if res := verify(audit.Head{Seq: 5, Hash: records[4].Hash}, records[5:], nil); res.Problem == nil {
		t.Error("more was removed than a record says")
	}
	if res := verify(base, records[4:], &audit.Head{Seq: 2}); res.Problem == nil {
		t.Error("a removed head cannot be compared")
	}
}

// Any change of any field changes the hash, and a record is the same after JSON.
func TestEveryFieldIsHashed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9:,/ ]{0,20}`)
		r := audit.Record{
			At: 5, Key: text.Draw(t, "key"), KeyName: text.Draw(t, "name"), Role: text.Draw(t, "role"), Worker: text.Draw(t, "worker"), Address: text.Draw(t, "address"),
			Via: text.Draw(t, "via"), Operation: text.Draw(t, "operation"), Object: text.Draw(t, "object"), Project: text.Draw(t, "project"), Outcome: audit.Denied,
			Status: 403, Detail: text.Draw(t, "detail"), Request: text.Draw(t, "request"), Count: 3, Until: 9,
		}
		head := audit.Append(audit.Head{}, 0, &r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again audit.Record
		if err := json.Unmarshal(b, &again); err != nil || again != r {
			t.Fatalf("%s is read as %+v, %v", b, again, err)
		}
		if res := verify(audit.Head{}, []audit.Record{again}, &head); res.Problem != nil {
			t.Fatal(res.Problem)
		}
		changes := []func(*audit.Record){
			func(r *audit.Record) { r.At++ }, func(r *audit.Record) { r.Status++ }, func(r *audit.Record) { r.Count++ }, func(r *audit.Record) { r.Until++ },
			func(r *audit.Record) { r.Outcome = audit.Failed },
			func(r *audit.Record) { r.Key += "x" },
			func(r *audit.Record) { r.KeyName += "x" }, func(r *audit.Record) { r.Role += "x" }, func(r *audit.Record) { r.Worker += "x" }, func(r *audit.Record) { r.Address += "x" },
			func(r *audit.Record) { r.Via += "x" }, func(r *audit.Record) { r.Operation += "x" }, func(r *audit.Record) { r.Object += "x" },
			func(r *audit.Record) { r.Project += "x" }, func(r *audit.Record) { r.Detail += "x" }, func(r *audit.Record) { r.Request += "x" },
		}
		for i, change := range changes {
			changed := r
			if change(&changed); verify(audit.Head{}, []audit.Record{changed}, nil).Problem == nil {
				t.Fatalf("change %d is not found", i)
			}
		}
	})
}

// Records have no tokens, no control characters, and a bounded length.
func TestClean(t *testing.T) {
	t.Parallel()
	r := audit.Record{
		Object: "key/mst_admin_abcdefghij0123456789.ca7", Detail: "\x1b[31mred\x00 mst_join_secretsecret, " + strings.Repeat("é", 1000), KeyName: "a\xffb\u202e", Project: strings.Repeat("p", 1000),
	}
	r.Clean()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"abcdefghij", "secretsecret", `\u001b`, `\u0000`, "\u202e"} {
		if strings.Contains(string(b), bad) {
			t.Errorf("%q is in %s", bad, b)
		}
	}
	if len(b) > 1200 || !utf8.ValidString(r.Detail) || !utf8.ValidString(r.KeyName) || r.Count != 1 {
		t.Errorf("%d bytes: %s", len(b), b)
	}
	before := r
	if r.Clean(); r != before {
		t.Error("a clean record changes")
	}
}
