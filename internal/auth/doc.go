// Package auth decides who may do what: principals, roles, tokens, and the function
// Authorize. It is pure: the caller passes random bytes and stores the keys.
//
// A token is "mst_ROLE_RANDOM". Only its hash is stored, and a key is looked up by the
// hash of the presented token, so that secrets are never compared byte by byte.
package auth
