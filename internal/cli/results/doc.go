// Package results writes the results of tasks as one table: for a terminal, as CSV, or as Parquet.
//
// A row is a task. Its columns are those of the task and its job, then one for each parameter, then one for each field of the results:
// {"loss": {"train": 0.1}} has the column result.loss.train. What an object within 8 objects has is a column; a list is its JSON text. The
// type of a column is that of all its values: boolean, integer (64 bits), number (a double, also of integers and numbers, or of integers that
// are larger), or text, for all else. Values that are null or missing are null.
//
// The columns are only known when all results have been read, so tasks are read once, from the server, and kept in a compressed temporary
// file: memory does not depend on their number. At most maxFields columns of results are written; the column result has all of them.
package results
