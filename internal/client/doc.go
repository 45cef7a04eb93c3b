// Package client is the typed Go client of the HTTP API, for the command line
// and for tests.
//
// Errors are *muster.Error with the code that the server gave. A server that
// cannot be reached is Unavailable, and the message names its address. What is safe to repeat
// is repeated with a growing pause until Options.Patience has passed: every call
// that the server refused with "not done", every call that never left this machine, and
// reads whose answer was lost. Streams (Logs, Events) go on where they broke off, over a
// restart of the server too, until Options.StreamRetryTimeout has passed without a connection.
//
// Every call takes a context, and ends when it ends. Without a deadline of the
// context a call takes at most Options.Timeout per try; streams and transfers are
// limited by how long they may stand still.
package client
