package audit

import (
	"fmt"

	"github.com/muster-dev/muster"
)

// Problem is where a log is broken.
type Problem struct {
	Seq  int64 // of the first record that is not as it was written
	Text string
}

// Verifier verifies a log record by record, in constant memory.
type Verifier struct {
	base     Head // of the last removed record
	head     Head // of the last verified record
	last     muster.Time
	expected *Head // that someone noted
	matched  bool
	allowed  Head // the latest removal that a record allows
	problem  *Problem
}

// NewVerifier returns a Verifier of the records after base. expected, if not nil, is a head that the log must have or have had.
func NewVerifier(base Head, expected *Head) *Verifier {
	v := &Verifier{base: base, head: base, expected: expected}
	if base.Seq == 0 && base.Hash != (Hash{}) {
		v.fail(1, "the hash before the first record is not zero: records before it are missing")
	}
	v.compare()
	return v
}

func (v *Verifier) fail(seq int64, format string, args ...any) bool {
	if v.problem == nil {
		v.problem = &Problem{seq, fmt.Sprintf(format, args...)}
	}
	return false
}

// compare compares the last record with the expected head.
func (v *Verifier) compare() {
	if v.expected != nil && v.expected.Seq == v.head.Seq {
		if v.matched = v.expected.Hash == v.head.Hash; !v.matched {
			v.fail(v.head.Seq, "record %d is not the one that was noted: the log was written again from this record or an earlier one", v.head.Seq)
		}
	}
}

// Add verifies the next record. It returns false after the first problem.
func (v *Verifier) Add(r *Record) bool {
	if v.problem != nil {
		return false
	}
	want := v.head.Seq + 1
	switch {
	case r.Seq > want:
		return v.fail(want, "record %d is missing: it was removed or renumbered", want)
	case r.Seq < want:
		return v.fail(r.Seq, "record %d is there twice or in the wrong place", r.Seq)
	case hashOf(v.head.Hash, r) != r.Hash:
		return v.fail(want, "the hash of record %d does not match: the record was changed, inserted or moved, or the one before it", want)
	case r.At < v.last:
		return v.fail(want, "record %d is older than the one before it", want)
	}
	v.head, v.last = Head{r.Seq, r.Hash}, r.At
	v.compare()
	if upTo, ok := removedBy(r); ok && upTo.Seq < r.Seq && upTo.Seq > v.allowed.Seq {
		v.allowed = upTo
	}
	return v.problem == nil
}

// Result is the result of a verification.
type Result struct {
	Records int64    // that were verified
	Base    Head     // of the last record that retention removed
	Head    Head     // of the last verified record
	Problem *Problem // nil if the log is intact
}

// Result returns the result after the last record.
func (v *Verifier) Result() Result {
	if v.problem == nil {
		v.finish()
	}
	return Result{Records: v.head.Seq - v.base.Seq, Base: v.base, Head: v.head, Problem: v.problem}
}

func (v *Verifier) finish() {
	switch {
	case v.base.Seq > v.allowed.Seq, v.base.Seq == v.allowed.Seq && v.base.Hash != v.allowed.Hash:
		v.fail(v.base.Seq, "the records up to %d are missing, and no record says that retention removed them", v.base.Seq)
	case v.expected == nil || v.matched:
	case v.expected.Seq > v.head.Seq:
		v.fail(v.head.Seq+1, "the log ends with record %d, but record %d was noted: records at the end were removed", v.head.Seq, v.expected.Seq)
	case v.expected.Seq < v.base.Seq:
		v.fail(v.expected.Seq, "retention has removed record %d, so that it cannot be compared: use a later head", v.expected.Seq)
	}
}
