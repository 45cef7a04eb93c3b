package audit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Outcome is how an operation ended.
type Outcome string

// The outcomes.
const (
	Allowed Outcome = "allowed" // it was done
	Denied  Outcome = "denied"  // the caller may not do it, or is unknown
	Failed  Outcome = "failed"  // the caller may do it, but it was not possible
)

// Operations that are no operations of the API.
const (
	OpStartServer   = "start-server"
	OpStopServer    = "stop-server"
	OpRestoreBackup = "restore-backup"
	OpAcceptLoss    = "accept-loss"
	OpRemoveRecords = "remove-audit-records"
	OpStartSession  = "start-worker-session"
	OpRejectFrame   = "reject-link-frame"
	OpQuarantine    = "quarantine-worker"
	OpOther         = "other" // a path without an operation
)

// Record is one record. It never has a token, nor a value of a job's environment.
type Record struct {
	Seq       int64       `json:"seq" doc:"number, from 1 without gaps"`
	At        muster.Time `json:"at" doc:"of the first occurrence; never before that of the previous record"`
	Key       string      `json:"key,omitempty" doc:"id of the caller's API key; absent for an unknown caller and for the server itself"`
	KeyName   string      `json:"key_name,omitempty"`
	Role      string      `json:"role,omitempty" doc:"role of the key; server for the server itself"`
	Worker    string      `json:"worker,omitempty" doc:"worker of the key"`
	Address   string      `json:"address,omitempty" doc:"IP address of the caller's connection"`
	Via       string      `json:"via,omitempty" doc:"gateway that the caller used"`
	Operation string      `json:"operation" doc:"id of the operation in the API, or one of the server itself"`
	Object    string      `json:"object,omitempty" example:"job/17"`
	Project   string      `json:"project,omitempty"`
	Outcome   Outcome     `json:"outcome" enum:"allowed,denied,failed"`
	Status    int         `json:"status,omitempty" doc:"HTTP status of the answer"`
	Detail    string      `json:"detail,omitempty" doc:"why it was denied, the code of the error, or what was done"`
	Request   string      `json:"request,omitempty" doc:"trace id of the request"`
	Count     int64       `json:"count" doc:"number of occurrences that this record stands for"`
	Until     muster.Time `json:"until,omitzero" doc:"of the last occurrence, if there are several"`
	Hash      Hash        `json:"hash"`
}

// Server is the Role of what the server does by itself, or by its options.
const Server = "server"

// The maximum lengths of fields, in bytes.
const (
	maxField  = 128
	maxDetail = 300
)

// Clean shortens the fields and removes what they must not have: tokens, control characters and invalid text.
func (r *Record) Clean() {
	for _, f := range []*string{&r.Key, &r.KeyName, &r.Role, &r.Worker, &r.Address, &r.Via, &r.Operation, &r.Object, &r.Project, &r.Request} {
		*f = clean(*f, maxField)
	}
	r.Detail = clean(r.Detail, maxDetail)
	r.Count = max(r.Count, 1)
}

var tokenPattern = lazyregexp.New(`mst_[a-z]+_[A-Za-z0-9_.:-]+`)

func clean(s string, limit int) string {
	if s == "" {
		return s
	}
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return ' '
	}, s)
	s = tokenPattern.Get().ReplaceAllString(s, "mst_…")
	if len(s) <= limit {
		return s
	}
	s = s[:limit-len("…")]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
