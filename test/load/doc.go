// Package load measures the whole program beside the bare limits of the machine,
// in one run:
//
//	go test -run '^$' -bench . -benchtime 1x ./test/load
//
// docs/performance.md says what each figure means and holds the last ones.
package load
