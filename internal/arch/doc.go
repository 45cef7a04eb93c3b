// Package arch holds the house rules as tests: which package may import which,
// how big files, packages and interfaces may grow, and which names are banned.
// A package without a rule fails: a new room is given its ring first.
package arch
