// Package frame is what all commands have in common: how a command and its
// options are described, how output is written in the format that was asked
// for, and how errors become a sentence on standard error and an exit status.
package app
