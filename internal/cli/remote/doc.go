// Package remote is how commands reach the server and name what is on it: the
// options --server, --token-file and --token, the context that up and server save for the
// commands after them, and selectors such as 17, 17.3, 17.0-9 and last.
package remote
