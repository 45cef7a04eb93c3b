// Package sweeper deletes what the policies of package retention do not keep: ended jobs, their logs and artifacts, late reports, workers that
// left, and blobs to which nothing refers.
//
//	every hour       pass: jobs, logs, late reports, workers, keys      decided by retention.Budget, changed by the engine
//	every 6 hours    sweep: artifacts, then blobs by mark and sweep
//	every day        log directories without a job
//	at once          logs and rows of removed jobs
//
// It never delays the engine for long: work is done in small batches, each of which is one short transaction or a few files, and after each
// batch it pauses in proportion (retention.Share). A removed job disappears for all readers in one commit of the engine; its logs and rows
// follow in parts. The list of removed jobs is in the database, so that a kill at any point only delays them.
//
// # Blobs
//
// A blob is removed if nothing refers to it and it was neither uploaded nor touched for the grace period (the age of uploads, at least an
// hour). The sweep marks the blobs to which anything refers, in the order of store.BlobRefReader, then removes files that are unmarked
// and old. This is safe at any time:
//
//   - A reference that was committed before its page is read, and still exists, is marked: references move only in the order of reading.
//   - A reference that is committed later follows a touch of its blob: by POST /blobs/missing, HEAD or PUT of the blob, by the check of the
//     folder at submit, or by the check of a worker's report. These precede the commit by less than the grace period, and Touch and
//     RemoveUnused exclude each other: either the file is young when its time is compared, or the touch finds that it is missing,
//     and the client uploads it again.
//   - A file that a worker uploaded, and whose report is delayed, is marked by the worker's grant as long as the worker has the attempt.
//   - A grant is dropped only if the file is missing, which is checked inside the transaction: an upload names the file before it grants it.
//   - A kill at any point leaves files, never a reference without a file. Marks are in memory only.
//
// File times and the cutoff are of one clock, which does not follow steps of the system's clock (blob.Dir.Now). The first sweep is an hour
// after the start, so that times of an earlier process with another clock do not matter for uploads in progress.
package sweeper
