// Package seccomp generates the filter of package agent/isolation/seccomp from Docker's default profile.
//
// A profile lists names; the kernel runs a program over the number of each call. Engines write one comparison for each rule, and the
// kernel simulates the program for each of a thousand numbers when a thread enters it: 0.5 ms. This generator merges neighbours of the
// same decision into ranges and writes a binary search: less than 0.1 ms.
package seccomp

// File is a generated file, by its path from the root of the repository.
type File struct {
	Path    string
	Content func() ([]byte, error)
}
