//go:build !unix

package process

const openFlags = 0
