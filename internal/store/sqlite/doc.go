// Package sqlite keeps Muster's rows in one SQLite file, in WAL mode with
// synchronous=FULL: a Commit that returned nil survives a loss of power.
//
// One connection writes and a few others read; readers see the last committed
// state and never wait for the writer, nor the engine, which writes, for them when it
// looks an idempotency key up. A lock file beside the database keeps a
// second server away from it. Rows are private to this package: it takes and
// returns the types of package muster.
//
// What is rewritten often is kept small. A task's row is addressed by one
// integer (job and number packed), so that a batch of neighbours touches few
// pages, and absent fields take one byte. A job's spec and a group's resolved
// spec stand in tables of their own, since their rows change with every count;
// the writer remembers which resolved spec it wrote last and writes it again only
// when it is another one.
//
// The schema is made by numbered migrations, forward only. Its CHECK constraints
// repeat the invariants, so that a bug is refused rather than stored.
package sqlite
