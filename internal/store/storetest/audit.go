package storetest

import (
	"fmt"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/store"
)

// verifyAudit verifies the stored log, and returns its number of records.
func (f *fixture) verifyAudit(t *testing.T) int64 {
	t.Helper()
	base, head, err := f.AuditHeads(t.Context())
	noError(t, err)
	v := audit.NewVerifier(base, &head)
	for after := base.Seq; ; {
		page := must(f.Audit(t.Context(), store.AuditQuery{After: after, OldestFirst: true, Limit: 7}))(t)
		for i := range page {
			v.Add(&page[i])
			after = page[i].Seq
		}
		if len(page) < 7 {
			break
		}
	}
	res := v.Result()
	if res.Problem != nil || res.Head != head {
		t.Fatalf("the log does not verify: %+v, head %s", res.Problem, head)
	}
	return res.Records
}

func auditLog(t *testing.T, f *fixture) {
	appendAll := func(records ...audit.Record) {
		t.Helper()
		before, _, err := f.AuditHeads(t.Context())
		noError(t, err)
		head, err := f.AppendAudit(t.Context(), records)
		noError(t, err)
		if base, last, err := f.AuditHeads(t.Context()); err != nil || last != head || base != before {
			t.Fatalf("heads %s and %s, want %s and %s: %v", base, last, before, head, err)
		}
	}
	full := audit.Record{
		At: 1_000, Key: "k1", KeyName: "ci", Role: "submitter", Worker: "w1", Address: "10.0.0.7", Via: "qubix", Operation: "submit-job", Object: "job/1", Project: "vision",
		Outcome: audit.Denied, Status: 403, Detail: "why", Request: "abc", Count: 7, Until: 1_500,
	}
	appendAll(full)
	f.reopen(t)
	got := must(f.Audit(t.Context(), store.AuditQuery{Limit: 10}))(t)
	full.Seq, full.Hash = 1, got[0].Hash
	wantEqual(t, "a record", []audit.Record{full}, got)
	for i := range 20 {
		outcome := audit.Allowed
		if i%2 == 1 {
			outcome = audit.Failed
		}
		appendAll(audit.Record{At: muster.Time(2_000 + 10*i), Key: fmt.Sprint("k", i%3), Operation: "cancel-job", Object: fmt.Sprint("job/", i%5), Project: "p", Outcome: outcome})
	}
	appendAll(audit.Record{At: 100, Operation: "late", Outcome: audit.Allowed}) // the clock was set back
	if last := must(f.Audit(t.Context(), store.AuditQuery{Limit: 1}))(t)[0]; last.At != 2_190 {
		t.Errorf("the last record is of %d: times go back", last.At)
	}
	if n := f.verifyAudit(t); n != 22 {
		t.Errorf("%d records", n)
	}
	for name, c := range map[string]struct {
		q    store.AuditQuery
		want []int64
	}{
		"newest first": {store.AuditQuery{Limit: 3}, []int64{22, 21, 20}},
		"before":       {store.AuditQuery{Before: 20, Limit: 2}, []int64{19, 18}},
		"after":        {store.AuditQuery{After: 19, OldestFirst: true, Limit: 9}, []int64{20, 21, 22}},
		"since":        {store.AuditQuery{Since: 2_185, Limit: 9}, []int64{22, 21}},
		"until":        {store.AuditQuery{Until: 2_009, Limit: 9}, []int64{2, 1}},
		"range":        {store.AuditQuery{Since: 2_000, Until: 2_010, Limit: 9}, []int64{3, 2}},
		"nothing":      {store.AuditQuery{Since: 9_000, Limit: 9}, nil},
		"name of key":  {store.AuditQuery{Key: "ci", Limit: 9}, []int64{1}},
		"key, object":  {store.AuditQuery{Key: "k1", Object: "job/1", Limit: 9}, []int64{18, 3, 1}},
		"outcome":      {store.AuditQuery{Outcome: audit.Failed, Project: "p", Limit: 2}, []int64{21, 19}},
		"operation":    {store.AuditQuery{Operation: "late", Limit: 2}, []int64{22}},
	} {
		var seqs []int64
		for _, r := range must(f.Audit(t.Context(), c.q))(t) {
			seqs = append(seqs, r.Seq)
		}
		wantEqual(t, name, c.want, seqs)
	}
	_, err := f.Audit(t.Context(), store.AuditQuery{})
	wantCode(t, "no limit", err, muster.Invalid)
	if _, err := f.AppendAudit(t.Context(), []audit.Record{{Operation: "one", Outcome: audit.Allowed}, {Operation: "two", Outcome: "unknown"}}); err == nil {
		t.Error("an unknown outcome is accepted")
	}
	if n := f.verifyAudit(t); n != 22 {
		t.Errorf("%d records after a refused append", n)
	}
	removeAudit(t, f)
}

func removeAudit(t *testing.T, f *fixture) {
	t.Helper()
	if head := must(f.RemovableAudit(t.Context(), 1_000, 22))(t); head != (audit.Head{}) {
		t.Errorf("records up to %s are removable", head)
	}
	if head := must(f.RemovableAudit(t.Context(), 2_010, 0))(t); head.Seq != 2 {
		t.Errorf("by age, records up to %s are removable", head)
	}
	upTo := must(f.RemovableAudit(t.Context(), 0, 12))(t)
	if upTo.Seq != 10 {
		t.Fatalf("by number, records up to %s are removable", upTo)
	}
	for left := int64(22); ; {
		removed, _, err := f.RemoveAudit(t.Context(), upTo, 5_000, 4)
		noError(t, err)
		if left == 22 {
			left++ // the record of the removal
		}
		left -= int64(removed)
		if n := f.verifyAudit(t); n != left {
			t.Fatalf("%d records are left, want %d", n, left)
		}
		f.reopen(t)
		if removed < 4 {
			break
		}
	}
	base, head, err := f.AuditHeads(t.Context())
	noError(t, err)
	if base != upTo || head.Seq != 23 {
		t.Errorf("base %s and head %s", base, head)
	}
	if removed, _, err := f.RemoveAudit(t.Context(), head, 6_000, 100); err != nil || removed != 13 || f.verifyAudit(t) != 1 {
		t.Errorf("all are removed but the record of it: %d, %v", removed, err)
	}
}
