// Package cli is the command line: one file for each command, and a package below it
// for those of one theme.
//
// A command is a config struct, whose flags method lists its options, and a
// function that does the work. A flag beats its environment variable, which beats
// the saved context (see package remote), which beats the default. Commands answer
// with an error; Main alone turns it into a sentence on standard error and an
// exit status (see package frame).
//
// Standard output carries what was asked for, in the format that was asked for;
// everything said along the way goes to standard error, and what moves (bars,
// the status line) only to a terminal.
package cli
