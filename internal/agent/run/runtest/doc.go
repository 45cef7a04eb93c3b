// Package runtest holds the contract of executors that run processes as tests,
// with real ones. Each case's name is the sentence that it proves.
package runtest
