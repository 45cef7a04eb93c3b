// Package vm runs the real program on Linux as most machines have it: with control groups of version 2 only, and a
// worker in the group of a service. scripts/vm runs these tests in a virtual machine; elsewhere they skip.
package vm
