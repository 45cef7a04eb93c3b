// Package auditlog writes the audit log: it collects the records of package audit from all parts of the server, and one goroutine writes
// them to the store in groups, each with one transaction.
//
// A change is recorded by Write, which returns when the record is on disk, so that the change is acknowledged after it. The submission of jobs, whose
// latency matters most, is recorded by Add, which returns at once; its record is on disk within FlushInterval. So a crash loses records of
// at most the last FlushInterval, of what Add and Count recorded. While records cannot be written, Ready refuses changes
// before they are made.
//
// Denials and failures are not changes, and any client can cause them in any number. Count groups identical ones: the first of a minute is
// written, and at the end of the minute a record with the number of the others. Both have a budget, so that the log grows by a bounded
// number of records of this kind: see counts.
package auditlog
