// Package sealing encrypts small texts that a server stores, with keys from a file or from a command (LoadKeys), so that a copy of its database
// does not disclose them. A Box uses XChaCha20-Poly1305.
//
// A key is replaced by writing a new one in the first line: what the others sealed can be opened until their lines are removed, and Current
// says what is to be sealed again.
package sealing
