// Package cid computes the content identifier that IPFS gives a file.
package cid
