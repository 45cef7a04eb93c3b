//go:build linux && !amd64 && !arm64

package seccomp

// There is no filter for this architecture.
var instructions, clone3Decisions, cloneMasks = []uint64(nil), []int(nil), []int(nil)
