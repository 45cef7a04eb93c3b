// Package runtest is the conformance test suite of executors that run processes. It runs real processes. The name of each case is what
// it proves.
package runtest
