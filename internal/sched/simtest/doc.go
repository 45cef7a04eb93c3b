// Package simtest runs the scheduler in a seeded world: model workers that run,
// freeze, crash and lie late, a network that delays, repeats and loses, a server
// that dies between deciding and committing and between committing and sending,
// and users who submit, cancel and retry. Time is virtual; one seed reproduces
// everything.
//
// After every step the world checks the invariants that package sched and the
// guarantees promise (see check.go). After a while all faults end, and then
// every task that can run must end.
//
//	go test ./internal/sched/simtest -run TestWorld -seeds 1000
//	go test ./internal/sched/simtest -run TestWorld -seed 17 -v
package simtest
