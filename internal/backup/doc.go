// Package backup writes the data directory of a server to one tar stream while the server runs, checks such a stream, and restores it.
//
// A stream has, in this order: muster-backup.json, which describes it; muster.db, a snapshot of the database; keys and the state of
// gateways; logs; blobs; and end.json, with the SHA-256 of all entries before it. A stream that was cut or changed anywhere is not
// a backup: Check and Restore refuse it.
//
// Files are read after the snapshot. That is consistent: blobs that the database refers to were complete before, a log is a prefix of
// what the worker has and may be longer than the database knows, and nothing is deleted until the end (Source.Hold).
package backup
