// Package auth says who may do what: principals, roles, tokens, and the one
// function Can. It is pure: random bytes are given to it, and where keys are
// kept is no concern of its.
//
// A token is "mst_KIND_RANDOM". Only its hash is ever stored, so a token is found by
// the hash of what the caller shows; no two secrets are compared byte by byte.
package auth
