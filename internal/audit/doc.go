// Package audit is the record of the audit log and its hash chain: who did what, from where, to what, and whether it was allowed. It is pure:
// package auditlog collects records, and a store keeps them.
//
// The hash of a record is SHA-256 of the hash of the record before it, 32 bytes, followed by the record in its canonical encoding: the text
// "muster-audit-1", then each field in the order of the struct, except Hash, as a netstring: its length in decimal, a colon, its bytes, a
// comma. Numbers are written in decimal, times as milliseconds since 1970. The first record follows a hash of 32 zero bytes.
//
// Records are numbered from 1 without gaps. Changing, removing, inserting or reordering records breaks the chain from there on. Two
// things do not: removing the last records, and computing all hashes again from some record on. Both are found by comparing with a Head
// that was noted elsewhere.
//
// Retention removes the first records, and keeps the Head of the last one that it removed: the base, from which verification
// starts. Before that it appends a record of OpRemoveRecords with that Head, so that the base is part of the chain.
package audit
