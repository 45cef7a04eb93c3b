// Package simtest simulates the scheduler with a seed: model workers that run, freeze,
// crash and report late, a network that delays, repeats and loses packets, a server that
// crashes between deciding and committing and between committing and sending, and users
// who submit, cancel and retry. Time is virtual; one seed reproduces everything.
//
// After every step the simulation checks the invariants that package sched and the
// guarantees promise (see check.go). After a while all faults end, and then every task
// that can run must end.
//
//	go test ./internal/sched/simtest -run TestWorld -seeds 1000
//	go test ./internal/sched/simtest -run TestWorld -seed 17 -v
package simtest
