package store

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
)

// AuditStore stores the audit log. Only AppendAudit and RemoveAudit change it.
type AuditStore interface {
	AuditReader
	// AppendAudit appends records in one transaction, sets their numbers, times and hashes, and returns the new head.
	AppendAudit(ctx context.Context, records []audit.Record) (audit.Head, error)
	// RemovableAudit returns the head of the last record that was recorded before a time or is not one of the last keep records; a zero time or
	// keep is no limit. The zero Head means that there is none.
	RemovableAudit(ctx context.Context, before muster.Time, keep int64) (audit.Head, error)
	// RemoveAudit removes at most limit of the records up to a head, the oldest first. A record with that removal is appended before, once.
	RemoveAudit(ctx context.Context, upTo audit.Head, now muster.Time, limit int) (removed int, held time.Duration, err error)
}

// AuditReader reads the audit log.
type AuditReader interface {
	// Audit lists records, the newest first, or from the oldest on with OldestFirst, at most Limit.
	Audit(ctx context.Context, q AuditQuery) ([]audit.Record, error)
	// AuditHeads returns the heads of the last removed and of the last record.
	AuditHeads(ctx context.Context) (base, head audit.Head, err error)
}

// AuditQuery selects records. Empty fields mean any.
type AuditQuery struct {
	Since, Until muster.Time // recorded then or later, then or earlier
	Key          string      // id or name of the caller's key
	Operation    string
	Object       string
	Project      string
	Outcome      audit.Outcome
	After        int64 // only records with a higher number
	Before       int64 // only records with a lower number; 0 means all
	OldestFirst  bool
	Limit        int // at least 1
}
