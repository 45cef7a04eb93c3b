//go:build !linux

package seccomp

// Files returns nothing: the profile is a package that exists on Linux only.
func Files() []File { return nil }
