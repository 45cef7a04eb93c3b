// Package keyring finds API keys by their tokens, ends what a key opened when it is revoked or expires, and bounds how many requests and
// streams a key has at a time.
package keyring
