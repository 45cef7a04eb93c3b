// Package retention decides how long the server keeps what it stores. It is pure: package sweeper reads the entries, asks a Budget
// about each of them, and deletes.
//
// A Limit bounds entries of one kind and project by age, number and size; the first that is reached counts. A Policy has a Limit for each
// kind of a project's data, a ServerPolicy for the data that belongs to no project. Numbers and sizes count the newest entries
// that are not kept: an entry that a user keeps never goes, and takes no space of others.
package retention
