package wire

import "github.com/muster-dev/muster/internal/audit"

// AuditRecord is a record of the audit log.
type AuditRecord audit.Record

// AuditPage is a page of the audit log.
type AuditPage struct {
	Records []AuditRecord `json:"records"`
	Next    string        `json:"next,omitempty" doc:"cursor of the next page; absent on the last one"`
}

// AuditVerification is the result of a verification of the audit log.
type AuditVerification struct {
	Intact  bool   `json:"intact"`
	Records int64  `json:"records" doc:"number of verified records"`
	Base    string `json:"base" doc:"HASH@SEQ of the last record that retention removed; the number is 0 for none"`
	Head    string `json:"head" doc:"HASH@SEQ of the last verified record. Note it elsewhere: a later verification that is given it finds that records at the end were removed or that the log was written again"`
	Seq     int64  `json:"seq,omitempty" doc:"number of the first record that is not as it was written"`
	Problem string `json:"problem,omitempty"`
}

// NewAuditVerification returns the wire form of a result.
func NewAuditVerification(r audit.Result) AuditVerification {
	v := AuditVerification{Intact: r.Problem == nil, Records: r.Records, Base: r.Base.String(), Head: r.Head.String()}
	if r.Problem != nil {
		v.Seq, v.Problem = r.Problem.Seq, r.Problem.Text
	}
	return v
}

// An export of the audit log is lines of JSON: an AuditBase, all AuditRecords, and an AuditHead.
type (
	// AuditBase is the first line of an export.
	AuditBase struct {
		Base audit.Head `json:"base"`
	}
	// AuditHead is the last line of an export. Without it the export is not complete.
	AuditHead struct {
		Head audit.Head `json:"head"`
	}
)
