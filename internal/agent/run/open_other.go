//go:build !unix

package run

const openFlags = 0
