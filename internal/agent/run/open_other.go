//go:build !unix

package run

const (
	noFollowFlags = 0
	nonBlock      = 0
)
