// Package sqlite stores Muster's rows in one SQLite file, in WAL mode with
// synchronous=FULL: a Commit that returned nil survives a loss of power.
//
// One connection writes and a few others read. Readers see the last committed
// state and never wait for the writer, and the engine never waits for readers. A lock file beside
// the database prevents a second server from opening it.
//
// Rows that change often are small. A task's row is addressed by one
// integer (job and number packed), so that a batch of neighbours touches few
// pages, and absent fields take one byte. A job's spec and a group's resolved
// spec are in tables of their own, because their rows change with every count;
// the writer remembers which resolved spec it wrote last and writes it again only
// after a change.
//
// Numbered migrations create and change the schema, forward only. Its CHECK constraints
// repeat the invariants, so that a bug is refused rather than stored.
package sqlite
